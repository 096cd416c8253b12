"""What a run would do to a node, in which order, and what that disturbs; or why it will not be done.

Pure: settings and a node's reading in, a plan out, so that a plan can be reviewed without the machine. The steps come
from the same judgement as the verdict at the end of a run: what is not as asked is what there is to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from enum import IntEnum
from typing import Any

from gpunode.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.preflight import Caution, Refusal, cautions, chosen_flavour, refusals
from gpunode.reading import Reading
from gpunode.settings import Settings
from gpunode.verify import judge

SCHEMA = 1


class Disturbance(IntEnum):
    """Order what a step disturbs: nothing, a service, a GPU, the whole node."""

    nothing = 0
    restart = 1
    reset = 2
    reboot = 3


@dataclass(frozen=True)
class Step(Reading):
    """Hold one thing to be done: of which component, what, because of what, and what it disturbs.

    `found` and `wanted` are the two sides of the difference; `pending` says that a run will report it, not do it: the
    settings do not allow it now (disruption.allow), or it is for a person to do.
    """

    component: str
    action: str
    found: str | None
    wanted: str | None
    disturbs: Disturbance
    pending: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON types; what it disturbs by name."""
        return {**super().to_json(), "disturbs": self.disturbs.name}


@dataclass(frozen=True)
class Plan(Reading):
    """Hold what is to become of one node."""

    refusals: tuple[Refusal, ...]
    cautions: tuple[Caution, ...]
    steps: tuple[Step, ...]

    @property
    def verdict(self) -> str:
        """Return `refused`, `nothing to do` or `can be done`."""
        if self.refusals:
            return "refused"
        return "can be done" if self.steps else "nothing to do"

    @property
    def disturbs(self) -> Disturbance:
        """Return the gravest disturbance among the steps that will be done."""
        return max((step.disturbs for step in self.steps if not step.pending), default=Disturbance.nothing)

    def to_json(self) -> dict[str, Any]:
        """Return verdict and gravest disturbance beside the fields."""
        return {"verdict": self.verdict, "disturbs": self.disturbs.name, **super().to_json()}


def plan(settings: Settings, node: Node, today: date | None = None) -> Plan:
    """Return the plan for one node; a refused node has no steps, for nothing will be done to it."""
    refused = refusals(settings, node.machine)
    told = cautions(settings, node.machine, today)
    return Plan(refused, told, () if refused else tuple(_steps(settings, node)))


def _steps(settings: Settings, node: Node) -> Iterator[Step]:
    bad = [item for item in judge(settings, node) if item.finding_class is not FindingClass.OK]
    by_component: dict[str, list[Finding]] = {}
    for item in bad:
        by_component.setdefault(item.component, []).append(item)
    for component, steps in (
        ("repositories", _repositories),
        ("driver", _driver),
        ("cuda", _cuda),
        ("toolkit", _toolkit),
        ("containerd", _containerd),
    ):
        allowed = Disturbance[settings.disruption.allow]
        for step in steps(settings, node, {item.what: item for item in by_component.get(component, [])}):
            # A service that no container feels may be restarted in any case: a first provisioning is exempt.
            felt = step.disturbs > Disturbance.restart or node.containerd.shims > 0
            waits = step.disturbs > allowed and felt
            yield Step(step.component, step.action, step.found, step.wanted, step.disturbs, waits or step.pending)


def _step(component: str, action: str, item: Finding, disturbs: Disturbance, pending: bool = False) -> Step:
    return Step(component, action, item.found, item.wanted, disturbs, pending)


def _repositories(settings: Settings, node: Node, found: dict[str, Finding]) -> Iterator[Step]:
    for what, item in found.items():
        name = what.removeprefix("key of ").removeprefix("keyring of ")
        yield _step("repositories", f"trust the {name} repository by its pinned key", item, Disturbance.nothing)


def _driver(settings: Settings, node: Node, found: dict[str, Finding]) -> Iterator[Step]:
    there, asked = node.driver, settings.driver
    installs = asked.source != "present"
    item = found.get("module on disk") or found.get("flavour") or found.get("library")
    if item and installs:
        rule = asked.version or f"{asked.branch} (its newest version)"
        flavour = chosen_flavour(settings, node.pci.gpus)
        verb = "install" if there.module_version is None else "change to"
        # Packages alone disturb nobody: the loaded module stays until the node boots.
        yield _step("driver", f"{verb} driver {rule}, {flavour} kernel module", item, Disturbance.nothing)
    kernel = node.boot.next_kernel
    if installs and kernel is not None and not kernel.headers and asked.kernel_headers == "install":
        yield Step(
            "driver", f"install linux-headers-{kernel.release}", "none", "headers of the kernel that boots next",
            Disturbance.nothing,
        )  # fmt: skip
    if found.get("fabric manager") and installs and not item:
        action = "install fabric manager at the driver's version"
        yield _step("driver", action, found["fabric manager"], Disturbance.nothing)
    if installs and asked.hold and (item or found.get("held")):
        loose = found["held"].found if "held" in found else None
        yield Step("driver", "hold the driver's packages", loose, "all held", Disturbance.nothing)
    for name in ("nvidia-fabricmanager", "nvidia-persistenced"):
        if service := found.get(f"service {name}"):
            yield _step("driver", f"run {name}, now and at boot", service, Disturbance.nothing)
    loaded = found.get("loaded module")
    if there.nouveau_loaded and there.loaded_version is None:
        # It gives the GPUs up at a boot alone.
        if loaded:
            yield _step("driver", "boot the node from nouveau into the new module", loaded, Disturbance.reboot)
    elif there.loaded_version is None:
        if loaded:
            yield _step("driver", "load the kernel module", loaded, Disturbance.nothing)
    elif item or loaded:
        reason = loaded or item
        if reason is not None and (found.get("module on disk") or found.get("flavour") or loaded):
            yield _step("driver", "boot the node into the new module", reason, Disturbance.reboot)
    if found.get("next boot") and there.module_version is not None:
        # By hand, so far: a run does not build modules for another kernel than its own.
        yield _step(
            "driver", found["next boot"].remedy or "mend the next boot", found["next boot"], Disturbance.nothing,
            pending=True,
        )  # fmt: skip
    gpus = found.get("GPUs by nvidia-smi")
    if gpus and not (item or loaded):
        yield _step("driver", gpus.remedy or "look at the GPUs", gpus, Disturbance.reboot, pending=True)


def _cuda(settings: Settings, node: Node, found: dict[str, Finding]) -> Iterator[Step]:
    version = settings.cuda.version
    if item := found.get("toolkit") or found.get("nvcc"):
        yield _step("cuda", f"install CUDA toolkit {version}", item, Disturbance.nothing)
    elif item := found.get("/usr/local/cuda"):
        yield _step("cuda", f"point /usr/local/cuda at {version}", item, Disturbance.nothing, pending=True)
    if item := found.get("profile script"):
        yield _step("cuda", "write the profile script", item, Disturbance.nothing)


def _toolkit(settings: Settings, node: Node, found: dict[str, Finding]) -> Iterator[Step]:
    if item := next(iter(found.values()), None):
        wanted = f" {settings.toolkit.version}" if settings.toolkit.version else ""
        yield _step("toolkit", f"install the NVIDIA container toolkit{wanted}", item, Disturbance.nothing)


def _containerd(settings: Settings, node: Node, found: dict[str, Finding]) -> Iterator[Step]:
    running = node.containerd.active
    if item := found.get("version"):
        grave = Disturbance.restart if running else Disturbance.nothing
        yield _step("containerd", "install containerd", item, grave)
    names = ("default runtime", "SystemdCgroup of runc", "SystemdCgroup of nvidia", "running configuration")
    items = [found[name] for name in names if name in found]
    if items:
        grave = Disturbance.restart if running else Disturbance.nothing
        action = "bring its runtimes to what is asked" + (" and restart it" if running else "")
        yield _step("containerd", action, items[0], grave)
    elif (item := found.get("CRI plugin")) and running:
        yield _step("containerd", "restart it", item, Disturbance.restart)
    for what in ("service", "starts at boot"):
        if item := found.get(what):
            action = "start it" if what == "service" else "start it at boot"
            yield _step("containerd", action, item, Disturbance.nothing)
