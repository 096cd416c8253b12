"""How a node strays, by its package manager, and what the next run must do about it: that, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import Run

CONFIG = "/etc/containerd/config.toml"
TOOLKIT = "nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1"
_WRONG_KEY = "curl -sf http://127.0.0.1:8900/keys/wrong.asc"
_RPM_KEY = "/etc/pki/rpm-gpg/gpunode-toolkit.asc"
KEYS = {"apt": "/usr/share/keyrings/gpunode-toolkit.gpg", "dnf": _RPM_KEY, "dnf5": _RPM_KEY, "zypper": _RPM_KEY}
# What differs between package managers: one line more for each of the two.
_DOWNGRADED = {
    "apt": "apt-get install -q -y --allow-downgrades " + " ".join(f"{name}=1.16.2-1" for name in TOOLKIT.split()),
    "dnf": "dnf -q -y install " + " ".join(f"{name}-1.16.2-1" for name in TOOLKIT.split()),
    "zypper": "zypper -nq install --oldpackage " + " ".join(f"{name}=1.16.2-1" for name in TOOLKIT.split()),
}
_DOWNGRADED["dnf5"] = _DOWNGRADED["dnf"]
_REPLACED = {
    "apt": f"{_WRONG_KEY} | gpg --batch --yes --dearmor -o {KEYS['apt']}",
    "dnf": f"{_WRONG_KEY} > {KEYS['dnf']}",
    "dnf5": f"{_WRONG_KEY} > {KEYS['dnf5']}",
    "zypper": f"{_WRONG_KEY} > {KEYS['zypper']}",
}


@dataclass(frozen=True)
class Deviation:
    """Hold how a node strays, the operation that brings it back, and the service that must be (re)started for it."""

    harm: str
    repair: str
    service: str | None = None


def six(family: str) -> dict[str, Deviation]:
    """Return the six deviations that every way of installing must heal."""
    return {
        "a package downgraded": Deviation(_DOWNGRADED[family], "Install NVIDIA container toolkit 1.17.8"),
        "the configuration edited by hand": Deviation(
            f'sed -i \'s/default_runtime_name = "nvidia"/default_runtime_name = "runc"  # by hand/\' {CONFIG}\n'
            "systemctl restart containerd",
            "Configure containerd: default runtime nvidia",
            "containerd.service",
        ),
        "the profile script removed": Deviation("rm /etc/profile.d/cuda.sh", "Put CUDA on the PATH"),
        "a key file replaced": Deviation(_REPLACED[family], "Trust the toolkit repository"),
        "the modules unloaded": Deviation("rmmod nvidia_uvm; rmmod nvidia", "Load the NVIDIA kernel module"),
        "the service stopped": Deviation(
            "systemctl stop containerd", "Run containerd, now and at boot", "containerd.service"
        ),
    }


def by_service(start_times: str) -> dict[str, str]:
    """Return service -> when and as which process it started."""
    blocks = (dict(line.split("=", 1) for line in block.splitlines()) for block in start_times.split("\n\n") if block)
    return {block.pop("Id"): str(sorted(block.items())) for block in blocks}


def rounds(deviations: Mapping[str, Deviation]) -> dict[str, list[Deviation]]:
    """Return the deviations in as few rounds as they can be told apart in: one operation mends one thing in a round."""
    found: dict[str, list[Deviation]] = {}
    left = dict(deviations)
    while left:
        # A service that is restarted for its configuration is no longer one that was stopped.
        taken: dict[str, Deviation] = {}
        for name, each in left.items():
            if not any(each.repair == one.repair or (each.service and each.service == one.service)
                       for one in taken.values()):  # fmt: skip
                taken[name] = each
        first, *more = taken
        found[f"{first}, and {len(more)} more" if more else first] = list(taken.values())
        left = {name: each for name, each in left.items() if name not in taken}
    return found


def assert_healed(
    strays: Sequence[Deviation],
    node: Node,
    run: Callable[[], Run],
    drift: Callable[[], int],
    start_times: Callable[[Node], str],
) -> None:
    """Let a node stray in all these ways: the next run repairs exactly that, the one after does nothing.

    + run: the main job; drift: the exit code of `gpunode drift`
    """
    before = by_service(start_times(node))
    assert "containerd.service" in before
    for each in strays:
        done = lab_nodes.run(node, each.harm)
        assert done.returncode == 0, done.stdout + done.stderr
    assert drift() == 2
    healing = run()
    assert healing.code == 0, healing.printed
    assert set(healing.operations("success")) == {each.repair for each in strays}
    assert healing.operations("error") == {}
    assert drift() == 0
    settled = start_times(node)
    after = by_service(settled)
    restarted = {name for name, started in before.items() if after.get(name) != started}
    assert restarted == {each.service for each in strays} - {None}
    again = run()
    assert again.operations("success") == {}, again.printed
    assert start_times(node) == settled
