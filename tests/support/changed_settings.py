"""Every setting of the model, and by which value a test changes it: taken from the model, so that a new one is in it.

A boolean is turned, a choice takes each of its others. What else there is of values stands in EXAMPLES; what says how
something is done, and not what a node is to be, in METHODS with the reason why its change is no difference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from gpunode.settings import component_models
from gpunode.settings.component import Component

# Their desired state is the cluster's, not a node's: tests/unit/test_changed_cluster_settings.py.
CLUSTER = (
    "kubernetes",
    "device_plugin",
    "gpu_operator",
    "dcgm_exporter_chart",
    "gpushare",
    "rdma_shared_device_plugin",
    "sharing",
)
_URL = "http://127.0.0.1:8900/moved/{distribution}"
_SUM = "a" * 64
_STAYS = "what is there stays; nothing of it is judged any more"
_RUNFILE = "where the .run file is: its SHA-256 is pinned, and what is installed is judged by its version"
_KEY = "where the key is: its fingerprint is pinned, and is what counts"
_UNIT = "counts where another containerd runs than the lab's (tests/cases/…needed_change/of-k3s.yaml)"
_CRIO = "counts where there is a CRI-O, which the lab's nodes have not (scenario crio, tests/unit/test_crio.py)"
_SLURM = "counts where there is a slurmd, which the lab's nodes have not (scenario slurm, tests/unit/test_slurm.py)"
_IMEX = "counts on GPUs whose NVLink reaches other machines (scenario imex, tests/unit/test_imex.py)"
_DCGM = "counts where DCGM is asked for (tests/unit/test_dcgm.py)"
METHODS: Mapping[str, str] = {
    "engine.site": "says whose workers reach the machine, and nothing of what it is to be",
    "driver.enabled": _STAYS,
    "driver.root": "counts with a driver of somebody else's below a root of its own (scenario toolkit)",
    "cuda.enabled": _STAYS,
    "toolkit.enabled": _STAYS,
    "containerd.enabled": _STAYS,
    "containerd.unit": _UNIT,
    "containerd.config": _UNIT,
    "docker.enabled": _STAYS,
    "docker.cdi": "counts with docker 25.0 and newer, which Debian 12 has not (tests/unit/test_docker_change.py)",
    "driver.runfile_url": _RUNFILE,
    "driver.runfile_sha256": _RUNFILE,
    "cuda.runfile_url": _RUNFILE,
    "cuda.runfile_sha256": _RUNFILE,
    "cuda.release": "counts with source runfile alone (scenario runfile)",
    "driver.dkms": "counts with source runfile alone (scenario runfile)",
    "driver.migrate": "how a driver is replaced",
    "driver.kernel_headers": "how a module is built",
    "driver.without_gpu": "counts on a machine without a GPU",
    "driver.allow_branch_change": "what a change of branch is allowed to do",
    "driver.hold_kernel": "counts where the node's kernel is a package: the lab's nodes have none",
    "driver.rollback": "how the way back is kept",
    "driver.persistenced": "off: the unit stays as it is",
    "driver.peermem": "its file comes, and the RDMA stack that it waits for is a person's (default/test_peermem.py)",
    "cuda.compatibility": "which driver is enough for preflight",
    "toolkit.migrate": "how nvidia-docker2 is replaced",
    "mig.config_from_label": "takes the configuration from the cluster (scenario cluster)",
    "mig.stop_units": "what is stopped around a change",
    "repositories.cuda.key_url": _KEY,
    "repositories.toolkit.key_url": _KEY,
    "repositories.docker.key_url": _KEY,
    "repositories.docker.url": "counts where Docker's repository is taken (scenario docker)",
    "repositories.docker.key_fingerprint": "counts where Docker's repository is taken (scenario docker)",
    "crio.enabled": _CRIO,
    "crio.source": "the one that there is",
    "crio.version": _CRIO,
    "crio.default_runtime": _CRIO,
    "crio.systemd_cgroup": _CRIO,
    "imex.enabled": _IMEX,
    "imex.domain": _IMEX,
    "imex.address": _IMEX,
    "imex.channel0": _IMEX,
    "imex.nodes": _IMEX,
    "slurm.enabled": _SLURM,
    "slurm.node_name": _SLURM,
    "slurm.type": _SLURM,
    "slurm.autodetect": _SLURM,
    "slurm.cores": _SLURM,
    "slurm.node_line": _SLURM,
    "slurm.node_hardware": _SLURM,
    "dcgm.diagnostics": _DCGM,
    "dcgm.profiling": _DCGM,
    "dcgm.health": _DCGM,
    "dcgm.migrate": "how DCGM 3 is replaced",
    "dcgm.exporter.version": _DCGM,
    "dcgm.exporter.address": _DCGM,
    "dcgm.exporter.port": _DCGM,
    "dcgm.exporter.interval": _DCGM,
    "dcgm.exporter.engine": _DCGM,
    "mps.clients": "what preflight refuses by; no daemon is told of it",
    "disruption.allow": "what a run may disturb",
    "disruption.max_parallel": "how many nodes at once",
    "disruption.reboot_timeout": "how long a boot may take",
    "verify.smoke": "a test of the run's own",
    "verify.vector_add": "a test of the run's own",
    "verify.vector_add_pods": "a test of the run's own",
}
# What podman needs beside it.
_CDI: Mapping[str, Mapping[str, Any]] = {"toolkit": {"cdi": "generate"}}
# Setting -> data by which it is changed: a mapping by component, with what it needs beside it.
EXAMPLES: Mapping[str, tuple[Mapping[str, Mapping[str, Any]], ...]] = {
    "driver.source": (
        {"driver": {"source": "distribution"}},
        {"driver": {"source": "runfile", "version": "580.95.05", "runfile_sha256": _SUM}},
        {
            "driver": {"source": "absent"},
            "cuda": {"enabled": False},
            "toolkit": {"enabled": False},
            "containerd": {"default_runtime": "runc"},
        },
    ),
    # What the H100 takes either of, auto makes open.
    "driver.flavour": ({"driver": {"flavour": "proprietary"}},),
    "driver.branch": ({"driver": {"branch": "570", "version": None, "allow_branch_change": True}},),
    "driver.version": ({"driver": {"version": "580.159.04"}},),
    "driver.module_parameters": ({"driver": {"module_parameters": {"NVreg_EnableGpuFirmware": "0"}}},),
    "cuda.source": (
        {"cuda": {"source": "runfile", "version": "12.9", "release": "12.9.1", "runfile_sha256": _SUM}},
        {"cuda": {"source": "distribution"}},
    ),
    "cuda.version": ({"cuda": {"version": "12.8"}},),
    "toolkit.version": ({"toolkit": {"version": "1.17.4"}},),
    # The lab's mirror has one address for both.
    "toolkit.channel": (
        {
            "toolkit": {"channel": "experimental"},
            "repositories": {"toolkit": {"url": "http://127.0.0.1:8900/{channel}"}},
        },
    ),
    "toolkit.mode": ({"toolkit": {"mode": "legacy"}}, {"toolkit": {"mode": "cdi", "cdi": "generate"}}),
    # Off is what the file says by itself.
    "toolkit.debug": ({"toolkit": {"debug": True}},),
    "containerd.version": ({"containerd": {"version": "1.6.1"}},),
    "containerd.default_runtime": ({"containerd": {"default_runtime": "runc"}},),
    "containerd.source": ({"containerd": {"source": "docker-repository"}},),
    # What `auto` comes to on the lab's containerd is the root file.
    "containerd.placement": ({"containerd": {"placement": "drop-in"}},),
    "docker.source": ({"docker": {"source": "docker-repository"}, "containerd": {"enabled": False}},),
    "docker.version": ({"docker": {"version": "27.1"}},),
    "docker.default_runtime": ({"docker": {"default_runtime": "runc"}},),
    "podman.enabled": ({"podman": {"enabled": True}, **_CDI},),
    "podman.source": ({"podman": {"enabled": True, "source": "present"}, **_CDI},),
    "podman.version": ({"podman": {"enabled": True, "version": "4.3"}, **_CDI},),
    "podman.default_runtime": ({"podman": {"enabled": True, "default_runtime": "nvidia"}, **_CDI},),
    "mig.config": ({"mig": {"config": "all-1g.10gb"}},),
    "mig.file": ({"mig": {"file": "tests/molecule/default/mig.yaml", "config": "small"}},),
    "power.limit": ({"power": {"limit": 600}},),
    "power.limits": ({"power": {"limits": {"NVIDIA H100 80GB HBM3": 600}}},),
    "power.application_clocks": ({"power": {"application_clocks": "2619,1410"}},),
    "power.locked_graphics_clocks": ({"power": {"locked_graphics_clocks": "1200,1500"}},),
    "power.locked_memory_clocks": ({"power": {"locked_memory_clocks": "2619,2619"}},),
    "power.ecc": ({"power": {"ecc": False}},),
    "mps.memory_limit": ({"mps": {"memory_limit": "4G"}},),
    "mps.memory_limits": ({"mps": {"memory_limits": {"0": "2G"}}},),
    "mps.active_thread_percentage": ({"mps": {"active_thread_percentage": "25"}},),
    "dcgm.version": ({"dcgm": {"enabled": True, "version": "4.5"}},),
    "dcgm.exporter.enabled": ({"dcgm": {"enabled": True, "exporter": {"enabled": True}}},),
    "proxy.http": ({"proxy": {"http": "http://proxy.example:3128"}},),
    "proxy.https": ({"proxy": {"https": "http://proxy.example:3128"}},),
    "proxy.no_proxy": ({"proxy": {"http": "http://proxy.example:3128", "no_proxy": ["registry.example"]}},),
    "repositories.cuda.url": ({"repositories": {"cuda": {"url": _URL}}},),
    "repositories.toolkit.url": ({"repositories": {"toolkit": {"url": _URL}}},),
    "repositories.cuda.key_fingerprint": ({"repositories": {"cuda": {"key_fingerprint": "A" * 40}}},),
    "repositories.toolkit.key_fingerprint": ({"repositories": {"toolkit": {"key_fingerprint": "A" * 40}}},),
}


@dataclass(frozen=True)
class Change:
    """Hold one change of a setting: the data that bring it about, by component."""

    setting: str
    data: Mapping[str, Mapping[str, Any]]

    @property
    def host(self) -> str:
        """Return a name for a host that has it."""
        return f"{self.setting}-{hashlib.sha256(repr(self.data).encode()).hexdigest()[:6]}"


def settings_of_nodes() -> Iterator[tuple[str, Any]]:
    """Yield (setting, its type) of all components that a node's own state follows from."""
    for name, model in component_models().items():
        if name not in CLUSTER:
            yield from fields(name, model)


def fields(name: str, model: type[Component]) -> Iterator[tuple[str, Any]]:
    """Yield (setting, its type) of a component, of those within it as well."""
    for key, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Component):
            yield from fields(f"{name}.{key}", inner)
        else:
            yield f"{name}.{key}", inner


def changes(base: Mapping[str, Mapping[str, Any]], *components: str) -> list[Change]:
    """Return the changes of all settings of some components, from what a base says; METHODS apart."""
    return [
        Change(setting, data)
        for setting, kind in settings_of_nodes()
        if setting.partition(".")[0] in components and setting not in METHODS
        for data in values(setting, kind, base)
    ]


def values(setting: str, kind: Any, base: Mapping[str, Mapping[str, Any]]) -> Iterator[Mapping[str, Mapping[str, Any]]]:
    """Yield the data by which a setting is changed; none for one that nobody has named a value of."""
    if setting in EXAMPLES:
        yield from EXAMPLES[setting]
        return
    component, _, key = setting.partition(".")
    model = component_models()[component]
    now = getattr(model.model_validate(dict(base.get(component, {}))), key, None)
    for value in others(kind, now):
        yield {component: {key: value}}


def others(kind: Any, now: Any) -> list[Any]:
    """Return the other values of a boolean or a choice; none of what has no such end."""
    if kind is bool:
        return [not now]
    if bool in get_args(kind):
        return [value for value in (True, False) if value is not now]
    choices = [part for part in (kind, *get_args(kind)) if get_origin(part) is Literal]
    return [choice for part in choices for choice in get_args(part) if choice != now]
