"""All settings of one host, those of a run among them, and how host data becomes them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpunode.base import tables
from gpunode.settings.component import Component, component_of, matching
from gpunode.settings.dcgm import DcgmExporterChartSettings, DcgmSettings
from gpunode.settings.device_plugin import DevicePluginSettings, GpuOperatorSettings, GpushareSettings
from gpunode.settings.driver import CudaSettings, DriverSettings
from gpunode.settings.imex import ImexSettings
from gpunode.settings.imex import known as imex_known
from gpunode.settings.kubernetes import KubernetesSettings
from gpunode.settings.layers import DEEPEST, is_too_deep
from gpunode.settings.mig import MigSettings
from gpunode.settings.power import PowerSettings
from gpunode.settings.problems import (
    CONTRADICTION,
    NOT_ALLOWED,
    SECRET,
    UNKNOWN_NAME,
    WRONG_TYPE,
    Problem,
    SettingsError,
    dotted,
    nearest,
    problem_of,
    written,
)
from gpunode.settings.rdma import RdmaSharedDevicePluginSettings
from gpunode.settings.repositories import ProxySettings, RepositoriesSettings
from gpunode.settings.runtimes import ContainerdSettings, CrioSettings, DockerSettings, PodmanSettings, ToolkitSettings
from gpunode.settings.sharing import MpsSettings, SharingSettings
from gpunode.settings.slurm import SlurmSettings

ImageName = Annotated[
    str,
    matching(
        r"[A-Za-z0-9.-]+(:\d{1,5})?(/[A-Za-z0-9._~+-]+)*"
        r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|@sha256:[0-9a-f]{64})",
        "an image with tag or digest, such as 'registry/cuda-sample:vectoradd-cuda12.5.0'",
    ),
]

SiteName = Annotated[str, matching(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", "a name in small letters, digits and -")]


class VerifySettings(Component):
    """The verdict at the end of a run."""

    smoke: bool = False
    """Start containers on the node, one that asks for its GPUs and one that does not, look at what they see, also after
    `systemctl daemon-reload`, and remove them. The one that asks runs `nvidia-smi -L` where the toolkit hands it in,
    and is to have libcuda and each MIG device. No image is fetched. deploys/smoke.py does that alone."""
    vector_add: ImageName | None = None
    """Image with tag of a pod that adds vectors on one GPU, such as
    `nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0`. Where `kubernetes.enabled`, one is started on each node at
    the end of a run, must end with `PASSED`, and is removed. Not given: none is started."""
    vector_add_pods: int = Field(1, ge=1, le=64)
    """How many of these pods are started at once on each node, to prove that sharing shares. A node that promises fewer
    parts of GPUs is refused. The run tells which of them were on one GPU, and whether nvidia-smi had their processes at
    the same time; NVIDIA's plugin spreads them over the GPUs, so that it takes more pods than there are GPUs."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what cannot be asked for together."""
        if self.vector_add_pods > 1 and self.vector_add is None:
            yield "vector_add_pods", "says nothing without verify.vector_add, the pods' image; give it, or leave it out"


class DisruptionSettings(Component):
    """How much a run may disturb a node. What needs more than is allowed is not done but reported as pending; a node
    without workloads (its first provisioning) is exempt. Workloads are the containers of containerd and docker and the
    clients of MPS; podman's containers are none: no restart ends them, but the reset of a GPU that they use fails and
    is undone, and a boot ends them like all others."""

    allow: Literal["nothing", "restart", "reset", "reboot"] = "restart"
    """The gravest allowed: nothing < restart (a service) < reset (a GPU) < reboot (the node)."""
    max_parallel: int = Field(1, ge=1)
    """How many nodes may be disturbed at the same time."""
    retry: bool = False
    """Whether a change that failed on a node and was put back is tried again. For one run: `gpunode apply --retry`, or
    pyinfra's `--data gpunode_retry=1`."""
    reboot_timeout: int = Field(900, ge=10, le=7200)
    """Seconds within which a rebooted node must answer from its new boot, or it failed."""


class EngineSettings(Component):
    """Where a machine is, for whoever reads or changes many at once by `--engine dask://…` (docs/scale.md)."""

    site: SiteName | None = None
    """The site whose workers reach this machine: those that were started with `--resources site-NAME=1`. Not given:
    those that were started without a site."""


OWN_DATA_PREFIX = "x_"
# pyinfra's `--data gpunode_retry=1`: disruption.retry for one run.
RETRY = "gpunode_retry"
_NEED_THE_DRIVER = (
    *((name, "enabled") for name in ("cuda", "toolkit", "mps", "imex", "slurm", "dcgm", "dcgm_exporter_chart")),
    ("mig", "config"),
    ("mig", "config_from_label"),
)


class Settings(BaseModel):
    """Hold the validated settings of one host, one field per component."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    driver: DriverSettings = Field(default_factory=lambda: DriverSettings.model_validate({}))
    cuda: CudaSettings = Field(default_factory=lambda: CudaSettings.model_validate({}))
    toolkit: ToolkitSettings = Field(default_factory=lambda: ToolkitSettings.model_validate({}))
    containerd: ContainerdSettings = Field(default_factory=lambda: ContainerdSettings.model_validate({}))
    docker: DockerSettings = Field(default_factory=lambda: DockerSettings.model_validate({}))
    podman: PodmanSettings = Field(default_factory=lambda: PodmanSettings.model_validate({}))
    crio: CrioSettings = Field(default_factory=lambda: CrioSettings.model_validate({}))
    mig: MigSettings = Field(default_factory=lambda: MigSettings.model_validate({}))
    mps: MpsSettings = Field(default_factory=lambda: MpsSettings.model_validate({}))
    power: PowerSettings = Field(default_factory=lambda: PowerSettings.model_validate({}))
    imex: ImexSettings = Field(default_factory=lambda: ImexSettings.model_validate({}))
    slurm: SlurmSettings = Field(default_factory=lambda: SlurmSettings.model_validate({}))
    dcgm: DcgmSettings = Field(default_factory=lambda: DcgmSettings.model_validate({}))
    kubernetes: KubernetesSettings = Field(default_factory=lambda: KubernetesSettings.model_validate({}))
    device_plugin: DevicePluginSettings = Field(default_factory=lambda: DevicePluginSettings.model_validate({}))
    gpu_operator: GpuOperatorSettings = Field(default_factory=lambda: GpuOperatorSettings.model_validate({}))
    dcgm_exporter_chart: DcgmExporterChartSettings = Field(
        default_factory=lambda: DcgmExporterChartSettings.model_validate({})
    )
    gpushare: GpushareSettings = Field(default_factory=lambda: GpushareSettings.model_validate({}))
    rdma_shared_device_plugin: RdmaSharedDevicePluginSettings = Field(
        default_factory=lambda: RdmaSharedDevicePluginSettings.model_validate({})
    )
    sharing: SharingSettings = Field(default_factory=lambda: SharingSettings.model_validate({}))
    repositories: RepositoriesSettings = Field(default_factory=lambda: RepositoriesSettings.model_validate({}))
    proxy: ProxySettings = Field(default_factory=lambda: ProxySettings.model_validate({}))
    disruption: DisruptionSettings = Field(default_factory=lambda: DisruptionSettings.model_validate({}))
    verify: VerifySettings = Field(default_factory=lambda: VerifySettings.model_validate({}))
    engine: EngineSettings = Field(default_factory=lambda: EngineSettings.model_validate({}))

    @property
    def module_parameters(self) -> dict[str, str]:
        """Return the parameters that the driver's module is to be loaded with, those of other components among them."""
        found = dict(self.driver.module_parameters)
        if self.imex.enabled and self.imex.channel0:
            found.setdefault(imex_known().channel_parameter, "1")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return every setting, defaults included, as plain JSON types."""
        return self.model_dump(mode="json")

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the settings as canonical JSON: equal settings, equal digest."""
        # disruption.retry is of a run, and changes nothing about a node that is as desired.
        found = self.model_dump(mode="json", exclude={"disruption": {"retry"}})
        canonical = json.dumps(found, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def component_models() -> dict[str, type[Component]]:
    """Return host-data name -> model of every component."""
    return {name: model for name, field in Settings.model_fields.items() if (model := component_of(field.annotation))}


def _component(name: str, model: type[Component], value: object) -> tuple[Component | None, list[Problem]]:
    if not isinstance(value, Mapping):
        hint = "; to leave the component out: {'enabled': False}" if "enabled" in model.model_fields else ""
        message = f"must be a mapping of settings, not {type(value).__name__}{hint}"
        return None, [Problem(name, written(value), message, tuple(model.model_fields), code=WRONG_TYPE)]
    odd = [key for key in value if not isinstance(key, str)]
    if odd:
        message = "the key must be a string"
        return None, [Problem(dotted(name, key), written(value[key]), message, code=WRONG_TYPE) for key in odd]
    for key, item in value.items():
        if is_too_deep(item):
            message = f"is nested deeper than {DEEPEST} levels"
            return None, [Problem(dotted(name, key), written(item), message, code=WRONG_TYPE)]
    try:
        found = model.of(value)
    except ValidationError as error:
        return None, [problem_of(name, model, detail) for detail in error.errors(include_url=False)]
    problems = [
        Problem(f"{name}.{key}", written(_value(found, key)), message, code=CONTRADICTION)
        for key, message in found.contradictions()
    ]
    problems += _impossible_versions(name, found)
    return (None, problems) if problems else (found, [])


def _impossible_versions(name: str, settings: Component) -> Iterator[Problem]:
    """Yield each version that no release has, or that is older than gpunode supports: no node can have it."""
    for releases in tables.releases().values():
        for setting in releases.settings:
            component, _, key = setting.partition(".")
            version = attrgetter(key)(settings) if component == name else None
            if version is not None and (message := releases.mistake(version)) is not None:
                yield Problem(setting, written(version), message, (*releases.spans, "any newer"), code=NOT_ALLOWED)


def _value(settings: Component, key: str) -> object:
    """Return what stands under a dotted key, which may lead through a mapping by names of the user's own."""
    found: Any = settings
    for name in key.split("."):
        found = found[name] if isinstance(found, Mapping) else getattr(found, name)
    if not isinstance(found, Mapping):
        return found
    return {
        name: each.model_dump(exclude_defaults=True) if isinstance(each, Component) else each
        for name, each in found.items()
    }


def _between(parts: Mapping[str, Component]) -> Iterator[Problem]:
    for name, part in parts.items():
        for key, message in part.beside(parts):
            yield Problem(f"{name}.{key}", written(getattr(part, key)), message, code=CONTRADICTION)
    yield from _same_release(parts)
    driver = parts.get("driver")
    if not isinstance(driver, DriverSettings) or not driver.removes:
        return
    for name, key in _NEED_THE_DRIVER:
        if value := getattr(parts.get(name), key, None):
            out = f"set {name}.enabled = False (what is there of it stays)" if key == "enabled" else "leave it out"
            message = f"needs the driver, which driver.source = 'absent' removes; {out}, or keep the driver"
            yield Problem(f"{name}.{key}", written(value), message, code=CONTRADICTION)


def _same_release(parts: Mapping[str, Component]) -> Iterator[Problem]:
    """Yield each plugin by a chart whose release is another's, too: one would take the other's place, or away."""
    releases: list[tuple[str, tuple[str, str]]] = []
    for key in ("device_plugin", "gpu_operator", "dcgm_exporter_chart"):
        own: Any = parts.get(key)
        if own is not None and getattr(own, "enabled", True):
            releases.append((key, (own.namespace, own.release)))
    for name, plugin in getattr(parts.get("kubernetes"), "device_plugins", {}).items():
        if plugin.chart is not None and plugin.namespace is not None:
            releases.append((f"kubernetes.device_plugins.{name}", (plugin.namespace, plugin.release or name)))
    taken: dict[tuple[str, str], str] = {}
    for key, at in releases:
        if (whose := taken.setdefault(at, key)) != key and key != "gpu_operator":
            message = f"is the release {at[0]}/{at[1]} of {whose}, too; give it a release or a namespace of its own"
            yield Problem(f"{key}.release", repr(at[1]), message, code=CONTRADICTION)


def _unknown_names(data: Mapping[str, Any], foreign: Collection[str]) -> Iterator[Problem]:
    ours = tuple(Settings.model_fields)
    for name in sorted(name for name in data if isinstance(name, str)):
        if name in (*ours, *foreign, RETRY) or name.startswith(("_", OWN_DATA_PREFIX)):
            continue
        near = nearest(name, (*ours, *foreign))
        message = f"unknown name{f'; did you mean {near!r}?' if near else ''}"
        allowed = (*ours, "pyinfra's own names", f"your own data as {OWN_DATA_PREFIX}…")
        # A misspelt ssh_password is still a password: a value shows only under a name that was meant to be one of ours.
        value = written(data[name]) if near in ours else SECRET
        yield Problem(dotted(name), value, message, allowed, code=UNKNOWN_NAME)


def settings_from(data: Mapping[str, Any], foreign: Collection[str] | None = None) -> Settings:
    """Return the settings in one host's data; raise SettingsError with every mistake in them.

    `data` is pyinfra's host data, of which the component names are read. Other names are refused unless they are in
    `foreign` (pyinfra's own), or begin with `_` or `x_`; with `foreign=None` they are not looked at, for callers that
    judged them before.
    """
    problems = list(_unknown_names(data, foreign)) if foreign is not None else []
    parts: dict[str, Component] = {}
    for name, model in component_models().items():
        found, wrong = _component(name, model, data.get(name, {}))
        problems += wrong
        if found is not None:
            parts[name] = found
    problems += _between(parts)
    if problems:
        raise SettingsError(problems)
    found_all = _told_the_root(Settings.model_validate(parts))
    # Late: what is in no cluster needs none of it.
    if found_all.kubernetes.enabled or found_all.sharing.model_fields_set or found_all.mig.config_from_label:
        from gpunode.settings.cluster.contradictions import contradictions

        if problems := list(contradictions(found_all)):
            raise SettingsError(problems)
    return found_all


def _told_the_root(settings: Settings) -> Settings:
    """Return the settings with the device plugin's driver_root filled in, where the node's driver is not at /."""
    if not settings.driver.is_elsewhere or settings.device_plugin.driver_root is not None:
        return settings
    plugin = settings.device_plugin.model_copy(update={"driver_root": settings.driver.root})
    return settings.model_copy(update={"device_plugin": plugin})
