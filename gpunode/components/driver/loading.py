"""The module in memory: is it the one on disk, by the parameters that are desired, and do the GPUs answer by it?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from gpunode.base import versions
from gpunode.base.comparison import REBOOT, REBOOT_NODE, RUN, awaits_boot
from gpunode.base.decision import Decision, Step, bad, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.driver.state import DriverState, driver_finding
from gpunode.system.boot import Boot
from gpunode.system.gpu import Gpus

UVM_DEVICE = "/dev/nvidia-uvm"

_ON_OLD_MODULE = "the driver was changed while the old module was loaded"
_STAYED = "the driver was changed before this boot, and the boot loaded the old module all the same"
_LOOK_FOR_OLD = (
    "look for the old module in the initial file system of kernel {release} (`lsinitramfs`, `lsinitrd`) and below "
    "/lib/modules/{release}, make the initial file system again (`{initramfs}`), then drain and reboot the node"
)
_ON_OLD_KERNEL = "kernel {running} runs, for which there is no module on disk"
REMOVED = "the driver was removed while its module was in use"
_CHANGED = "they were changed after the module was loaded"
_BOOT_OR_LOOK = (
    f"{REBOOT_NODE}; where that did not help, look for another value in `modprobe --showconfig` and in the initial "
    "file system"
)
_NO_UVM = "CUDA does not start without it"
_NO_UVM_DEVICE = f"CUDA does not start without {UVM_DEVICE}, in containers neither"
# nvidia-smi's status -> why, and what to do.
_CAUSES = {
    "hangs": "nvidia-smi gives no answer: a GPU is wedged",
    "lost": "a GPU fell off the bus",
    "mismatch": "the library is not of the loaded module's version",
    "no driver": "the module is not loaded or does not drive this GPU",
    "no library": "libnvidia-ml, which nvidia-smi needs, is missing",
    "absent": "nvidia-smi is gone, or was never installed",
}
_REMEDIES = {"hangs": "drain and reboot the node; look for Xid in dmesg", "lost": REBOOT_NODE}
_EXITS, _NOT_DRIVEN, _LOOK = "nvidia-smi exits {code}", "a GPU on the bus is not driven", "run nvidia-smi on the node"
GPUS = driver_finding(
    "GPUs by nvidia-smi",
    "nvidia-smi does not show the GPUs that are on the bus.",
    "A GPU is not driven or fell off the bus, or the driver does not answer. Jobs on that GPU have failed or will.",
    causes=(*_CAUSES.values(), _EXITS, _NOT_DRIVEN),
    remedies=(RUN, *_REMEDIES.values(), _LOOK),
    classes=(FindingClass.DRIFT, FindingClass.ERROR),
)
LOADED_MODULE = driver_finding(
    "loaded module",
    "The loaded kernel module of the driver is not the one that the settings ask for.",
    "The kernel holds an older module, or none, while the right one may already be on disk. A loaded module is "
    "swapped by a boot alone, so that it waits as reboot pending unless disruption.allow is 'reboot'. Libraries "
    "of the new version do not work with the old module.",
    causes=(_ON_OLD_MODULE, _STAYED, _ON_OLD_KERNEL, REMOVED),
    remedies=(RUN, _LOOK_FOR_OLD),
    classes=REBOOT,
)
PARAMETERS = driver_finding(
    "module parameters",
    "The parameters of the loaded module are not those that the settings ask for.",
    "Parameters count when the module is loaded. They were changed afterwards, and count from the next boot on.",
    cause=_CHANGED,
    remedies=(_BOOT_OR_LOOK,),
    classes=(FindingClass.REBOOT_PENDING,),
)
UVM = driver_finding(
    "nvidia_uvm",
    "The module nvidia_uvm is not loaded, or has no device file.",
    "CUDA does not start without it, though nvidia-smi works.",
    causes=(_NO_UVM, _NO_UVM_DEVICE),
)

BLOCKED = driver_finding(
    "module blocked",
    "A line of modprobe's configuration, or another driver, keeps NVIDIA's module from a GPU.",
    "No version of the driver helps. A module that is loaded now works until the next boot.",
    cause="it keeps nvidia from loading, or from a GPU",
    remedies=(
        "remove that line; keep that driver from the GPU, in modprobe.d and on the kernel's command line, and boot the "
        "node; or leave the GPU to it",
    ),
)


class Act(StrEnum):
    """Name what a run does about the module in memory."""

    LOAD = "load"
    BOOT = "boot"
    REMOVE = "remove"


@dataclass(frozen=True)
class Loading:
    """Hold what the loaded module is to be; rule: its version or branch, None: the one on disk.

    initramfs: the command by which the node makes its initial file systems
    """

    rule: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    allowed: Disruption = Disruption.reboot
    initramfs: str = ""


def decide_loading(
    desired: Loading, actual: DriverState, boot: Boot | None = None, coming: Finding | None = None
) -> Decision[Act]:
    """Return what is to be done about the module in memory, on a node with a GPU.

    A module goes into memory at once where none is loaded, else by a boot alone.

    boot: the boot that runs; coming: the difference for which a run brings another module
    """
    if coming is not None and _brings_loaded(desired, actual, coming):
        return Decision((LOADED_MODULE.compared(actual.loaded_version, desired.rule, True),))
    loaded = _loaded(desired, actual, boot)
    # Right after the boot that is pending, so that only without one they are told.
    parameters = () if actual.reboot_pending else tuple(_parameters(desired, actual))
    uvm = () if actual.reboot_pending or actual.loaded_version is None else (_uvm(actual),)
    steps = _steps(desired, actual, loaded, bad(*parameters), bad(*uvm), coming)
    return Decision((loaded, *parameters, *uvm), tuple(steps))


def _brings_loaded(desired: Loading, actual: DriverState, coming: Finding) -> bool:
    """Return whether a run brings the very module to the disk that is loaded, so that no boot is needed."""
    if coming.code != MODULE_ON_DISK.code or actual.loaded_version is None or desired.rule is None:
        return False
    is_desired = versions.same(actual.loaded_version, desired.rule) and actual.loaded_flavour == actual.module_flavour
    return is_desired and not actual.waits_for_kernel


def step_of(decision: Decision[Act], act: Act) -> Step[Act] | None:
    """Return the step of a decision that is a run's `act`."""
    return next((step for step in decision.steps if step.change is act), None)


def boot_step(
    action: str, settles: tuple[Finding, ...], allowed: Disruption, change: Act | None = Act.BOOT
) -> Step[Act]:
    """Return a step that boots the node, which waits where the settings do not allow that."""
    waits = f"disruption.allow is {allowed.name}" if is_forbidden(Disruption.reboot, allowed, 0) else None
    return Step(action, settles, Disruption.reboot, waits, change)


def gpus(on_bus: int, actual: Gpus) -> Finding:
    """Compare nvidia-smi's answer with the GPUs on the bus; with a boot pending it cannot answer, which is no news."""
    answering = len(actual.gpus)
    if actual.status in ("hangs", "lost", "error"):
        return GPUS.finding(
            FindingClass.ERROR,
            actual.message or actual.status,
            f"{on_bus}",
            cause=_CAUSES.get(actual.status, _EXITS.format(code=actual.exit_code)),
            remedy=_REMEDIES.get(actual.status, _LOOK),
            disruption=Disruption.reboot if actual.status in _REMEDIES else None,
        )
    good = actual.status == "ok" and answering == on_bus
    told = answering if actual.status == "ok" else f"{answering} ({actual.message or actual.status})"
    cause = _CAUSES.get(actual.status, _NOT_DRIVEN)
    return GPUS.compared(told, on_bus, good, cause=cause)


def _loaded(desired: Loading, actual: DriverState, boot: Boot | None) -> Finding:
    if actual.reboot_pending:
        running, item = boot.running if boot else "", LOADED_MODULE.compared(actual.runs, actual.to_come, False)
        if boot is not None and actual.is_outlived(boot):
            return awaits_boot(item, _STAYED, _LOOK_FOR_OLD.format(release=running, initramfs=desired.initramfs))
        return awaits_boot(item, _ON_OLD_KERNEL.format(running=running) if actual.waits_for_kernel else _ON_OLD_MODULE)
    version, rule = actual.loaded_version, desired.rule
    good = version is not None and (rule is None or versions.in_branch(version, rule))
    # A module that is not loaded yet comes without a boot; one that is loaded goes by a boot alone.
    disruption = Disruption.nothing if version is None else Disruption.reboot
    to_be = rule or (None if actual.is_elsewhere else actual.module_version) or "any version"
    return LOADED_MODULE.compared(version, to_be, good, disruption=disruption)


def _parameters(desired: Loading, actual: DriverState) -> Iterator[Finding]:
    told = dict(actual.parameters)
    untold = [name for name in desired.parameters if name.removeprefix("NVreg_") not in told]
    if untold and actual.loaded_version is not None:
        # A module prints some texts nowhere, so that they can be as desired all the same.
        cause = f"/proc/driver/nvidia/params, where a loaded module tells its parameters, has no {', '.join(untold)}"
        remedy = "look whether the module has them: `modinfo --parameters nvidia` on the node"
        yield PARAMETERS.not_known(None, cause, remedy, of=", ".join(untold))
    if not (others := actual.other_parameters(desired.parameters)):
        return
    names = [other.partition("=")[0] for other in others]
    to_be = ", ".join(f"{name}={desired.parameters[name]}" for name in names)
    yield awaits_boot(PARAMETERS.compared(", ".join(others), to_be, False), _CHANGED, _BOOT_OR_LOOK)


def _uvm(actual: DriverState) -> Finding:
    if actual.uvm_without_device:
        return UVM.compared(f"loaded, without {UVM_DEVICE}", "loaded", False, cause=_NO_UVM_DEVICE)
    return UVM.compared("loaded" if actual.uvm_loaded else None, "loaded", actual.uvm_loaded, cause=_NO_UVM)


def _steps(
    desired: Loading,
    actual: DriverState,
    loaded: Finding,
    parameters: tuple[Finding, ...],
    uvm: tuple[Finding, ...],
    coming: Finding | None,
) -> Iterator[Step[Act]]:
    if actual.loaded_version is None and not actual.nouveau_bound and not actual.waits_for_kernel:
        yield Step("load the kernel module", (loaded, *parameters), Disruption.nothing, change=Act.LOAD)
    elif coming or actual.reboot_pending:
        source = "from nouveau " if actual.loaded_version is None and actual.nouveau_bound else ""
        settles = (*bad(loaded, *((coming,) if coming else ())), *parameters, *uvm)
        # What the packages are still to bring, nobody can boot into.
        change = Act.BOOT if actual.reboot_pending else None
        step = boot_step(f"boot the node {source}into the new module", settles, desired.allowed, change)
        yield replace(step, waits=_STAYED) if loaded.cause == _STAYED else step
    else:
        if uvm:
            action = f"make {UVM_DEVICE}" if actual.uvm_loaded else "load nvidia_uvm"
            yield Step(action, uvm, Disruption.nothing, change=Act.LOAD)
        if parameters:
            action = "boot the node, so that the module is loaded with its new parameters"
            yield boot_step(action, parameters, desired.allowed)


NO_MODULE = (
    "driver: there is no nvidia module on disk, neither for the kernel that runs nor for the one that boots next, and "
    "the run brings none. Remedy: look at `dkms status` and at the headers of the kernel on the node, and have the "
    "module built"
)
MIXED, MIGRATE = "a runfile and packages overwrite each other's files", f"set driver.migrate = True and {RUN}"
_LOADED = "the module {loaded_version} is loaded, and disruption.allow is {name}"
_ALLOW = f"drain the node, set disruption.allow = 'reboot' and {RUN}"
_NOT_OURS = "no package and no runfile of NVIDIA's brought it: gpunode does not remove it"
_FIND_IT = "see where it lies (`modinfo -F filename nvidia`), remove it and run depmod"
INSTALLED_BY = driver_finding(
    "installed by",
    "The driver was installed in another way than the settings ask for.",
    "Packages and NVIDIA's .run installer overwrite each other's files; driver.migrate allows the change.",
    causes=(MIXED, _LOADED),
    remedies=(RUN, MIGRATE, _ALLOW),
    classes=REBOOT,
)
MODULE_ON_DISK = driver_finding(
    "module on disk",
    "The driver's module on disk is not of the version that the settings ask for.",
    "It is what the next boot loads: missing, of another version, or there although it is to be absent.",
    causes=(_NOT_OURS,),
    remedies=(RUN, _FIND_IT),
)


def removal_waits(allowed: Disruption, actual: DriverState) -> bool:
    """Say whether a driver that is to go stays for now: below `reboot` a run unloads nothing, and removes no driver."""
    return actual.loaded_version is not None and is_forbidden(Disruption.reboot, allowed, 0)


def decide_removal(allowed: Disruption, actual: DriverState) -> Decision[Act]:
    """Return what is to be done about a driver that is to be absent; its module goes at once where nothing uses it."""
    ways, loaded = actual.ways, actual.loaded_version is not None
    if ways:
        installed = _installed(allowed, actual)
        boots = ", and boot the node where its module is in use" if loaded else ""
        action, disruption = f"remove the driver of the {installed.actual}{boots}", installed.disruption
        waits = installed.cause if removal_waits(allowed, actual) else None
        step = Step(action, (installed,), disruption or Disruption.nothing, waits, Act.REMOVE)
        return Decision((installed,), (step,))
    absent = INSTALLED_BY.compared(None, "none", True)
    module = MODULE_ON_DISK.compared(
        actual.module_version, "none", actual.module_version is None, cause=_NOT_OURS, remedy=_FIND_IT
    )
    if not loaded:
        return Decision((absent, module))
    gone = awaits_boot(LOADED_MODULE.compared(actual.runs, "none", False), REMOVED)
    return Decision((absent, module, gone), (boot_step("boot the node without the driver", bad(gone), allowed),))


def _installed(allowed: Disruption, actual: DriverState) -> Finding:
    ways = " and ".join(actual.ways)
    if removal_waits(allowed, actual):
        cause = _LOADED.format(loaded_version=actual.loaded_version, name=allowed.name)
        return awaits_boot(INSTALLED_BY.compared(ways, "none", False), cause, _ALLOW)
    disruption = Disruption.nothing if actual.loaded_version is None else Disruption.reboot
    return INSTALLED_BY.compared(ways, "none", False, disruption=disruption)
