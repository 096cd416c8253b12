"""What is to be done about the driver: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from gpunode.base import versions
from gpunode.base.comparison import RUN, by_hand
from gpunode.base.decision import Decision, Step, bad, behind
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.driver.coming import (
    bring,
    bring_back,
    bring_modules,
    brings_modules,
    headers,
    hold,
    installs_nothing,
    libraries,
    lost_files,
    packages,
    told_lost,
)
from gpunode.components.driver.loading import (
    BLOCKED,
    INSTALLED_BY,
    MIGRATE,
    MIXED,
    MODULE_ON_DISK,
    NO_MODULE,
    UVM,
    Act,
    Loading,
    decide_loading,
    decide_removal,
    gpus,
)
from gpunode.components.driver.next_boot import NEXT_BOOT, next_boot, nouveau_steps, other_kernels
from gpunode.components.driver.services import (
    SERVICE,
    decide_peermem,
    fabric_steps,
    fresh_steps,
    service_steps,
    services,
)
from gpunode.components.driver.sides import Actual, Desired
from gpunode.components.driver.state import DriverState, driver_finding
from gpunode.packages.families.wording import wording
from gpunode.settings.driver import DriverSettings
from gpunode.system.health import health
from gpunode.system.service import MASKED, masked_refusal

_ONLY_VERIFIED = "driver.source is 'present': a run verifies what is there, and does not change it"

DRIVER_ROOT = driver_finding(
    "driver root",
    "The folder of a driver that gpunode does not install is not there.",
    "Something else, such as a driver container, has to provide the driver at driver.root.",
    cause="what provides that driver, such as a driver container, has not done so, or has removed it",
)
DKMS = driver_finding(
    "DKMS",
    "The driver's module is not kept by DKMS as the settings ask.",
    "DKMS builds the module for every kernel that is installed. Without it the next kernel boots without a driver.",
    cause="without DKMS no new kernel gets the module; with it every one does",
)
GPU = driver_finding(
    "GPU",
    "The node has no NVIDIA GPU.",
    "The driver is installed (driver.without_gpu). Right for an image; on a machine a GPU is lost or was removed.",
    cause="the driver cannot be loaded, nor its service be judged, without one",
    remedies=("boot this system on a machine with a GPU, and run again",),
    classes=(FindingClass.UNSUPPORTED,),
)
FLAVOUR = driver_finding(
    "flavour",
    "The kernel module is of the other flavour (open or proprietary) than the settings ask for.",
    "GPUs from Blackwell on need the open module, those before Turing the proprietary one.",
)
HELD = driver_finding(
    "held",
    "The driver's packages are not held at their version.",
    "The next upgrade of the system would replace the driver under the loaded module; GPUs fail until a boot.",
    cause="the next upgrade of the system's packages would move the driver under the loaded module",
)


_REPAIR = (
    "repair the driver by what installed it: reinstall the library's package (`dpkg -S` or `rpm -qf` with its path "
    "names it), run `ldconfig`, and boot the node where another version is loaded"
)


def decide(desired: Desired, actual: Actual) -> Decision[Any]:
    """Return what is to be done about the driver; what only a new boot can show is not asked for while one is pending.

    What is on disk comes with the packages, or the runfile, and disturbs nobody: the loaded module stays until the
    node boots.
    """
    settings, driver = desired.settings, actual.driver
    if not settings.enabled:
        # Without the libraries of a loaded driver every CUDA program and GPU container fails, whatever installed it.
        found = libraries(desired, actual) if driver.loaded_version else ()
        wrong = (item for item in found if item.finding_class is not FindingClass.OK)
        return Decision(tuple(replace(item, remedy=_REPAIR) for item in wrong))
    if settings.removes:
        removal = decide_removal(desired.allowed, driver)
        return replace(removal, findings=_judged(settings, removal.findings, removal.steps))
    way, dkms = tuple(_installed_by(settings, driver)), tuple(_dkms(settings, driver))
    module, flavour = tuple(_module(desired, actual)), tuple(_flavour(desired, driver))
    loaded = tuple(libraries(desired, actual))
    # Another remedy than a run is of what the packages do not bring.
    lost = tuple(item for item in bad(*loaded) if item.remedy == RUN)
    another = bad(*module, *flavour) if settings.installs else ()
    answers: tuple[Finding, ...] = (
        (gpus(len(actual.pci.gpus), actual.gpus),) if actual.has_gpu and not driver.reboot_pending else ()
    )
    coming = (*bad(*way), *another, *lost, *bad(*dkms)) if settings.installs else ()
    # Headers that come build the module again.
    builds = another and headers(desired, actual) is not None
    again: tuple[Finding, ...] = ()
    if coming and not bad(*way, *dkms) and not builds and installs_nothing(desired, actual):
        coming, again = (), tuple(item for item in lost if item.actual == "none" and lost_files(driver))
        loaded = tuple(told_lost(each, desired, actual) if each in {*lost} - {*again} else each for each in loaded)
        module, flavour = (tuple(told_lost(each, desired, actual) for each in found) for found in (module, flavour))
        another = ()
    lacking = bad(*packages(desired, actual))
    if not coming and driver.loaded_version is not None and desired.lacks(driver):
        # What a GPU does not answer by may be the package that is missing.
        coming = bad(*(item for item in answers if item.finding_class is FindingClass.DRIFT))
    if actual.gpus.status == "absent" and not coming and installs_nothing(desired, actual):
        answers = tuple(told_lost(item, desired, actual) for item in answers)
    if not actual.has_gpu:
        bus = "an NVIDIA GPU on the PCI bus"
        no_gpu = GPU.finding(FindingClass.UNSUPPORTED, "no GPU", bus, cause=GPU.cause, remedy=GPU.remedies[0])
        loading = Decision[Any]((no_gpu,))
    else:
        what = Loading(desired.rule, desired.parameters, desired.allowed, wording(actual.system).initramfs)
        loading = decide_loading(what, driver, actual.boot, another[0] if another else None)
    if settings.is_elsewhere:
        # Whoever brings that driver loads it, and boots nothing for it.
        loading = replace(loading, steps=())
    # Another module is a boot away, and this one with it.
    waits = bool(another) and driver.loaded_version is not None
    peermem = decide_peermem(settings.peermem and actual.has_gpu and not waits, driver)
    held = tuple(_held(desired, driver))
    by_node = not settings.is_elsewhere
    serving = tuple(services(settings, driver, actual.pci, desired.packages)) if actual.has_gpu and by_node else ()
    boots = tuple(next_boot(actual.boot, driver, actual.system))
    if brings_modules(desired):
        boots = tuple(replace(each, remedy=RUN) if each in bad(*_module_to_boot(boots)) else each for each in boots)
    source = desired.source
    others: tuple[Finding, ...] = ()
    if source is not None and source.kernels:
        others = tuple(other_kernels(source, desired.flavour, actual.boot, driver, actual.system))
    uvm = tuple(item for item in loading.findings if item.code == UVM.code)
    findings = (
        *_root(settings, driver),
        *way,
        *dkms,
        *packages(desired, actual),
        *module,
        *(item for item in loading.findings if item not in uvm),
        *flavour,
        *loaded,
        *uvm,
        *peermem.findings,
        *answers,
        *held,
        *serving,
        *boots,
        *others,
    )
    steps: list[Step[Any]] = []
    target = desired.target(actual.boot, driver)
    if settings.installs:
        after = bad(*answers, *_module_to_boot(boots))
        steps += bring(desired, actual, (*coming, *lacking) if coming else (), bad(*serving), after)
        if again:
            # Without libnvidia-ml, no GPU can answer.
            silent = actual.gpus.status in ("no library", "mismatch") and driver.library_version is None
            settled = (*again, *bad(*answers)) if silent else again
            steps.append(Step("reinstall the driver's packages that lost libraries", settled, Disruption.nothing))
        steps += bring_back(desired, actual, () if coming else lacking)
        # Steps that settle nothing install headers and tools, by operations of their own.
        steps = [replace(step, target=target) if step.settles else step for step in steps]
        steps += fabric_steps(serving, with_packages=bool(coming))
        steps += hold(settings, held, bool(coming or lacking))
    steps += nouveau_steps(boots, actual.boot.new_images)
    before = len(steps)
    if settings.installs:
        if coming and driver.module_version is None and actual.has_gpu:
            steps += fresh_steps(actual.pci)
        steps += service_steps(serving)
    # Without a module in memory, no GPU can answer.
    own = () if coming or driver.loaded_version is not None else bad(*answers)
    steps += (replace(step, settles=(*step.settles, *own)) for step in loading.steps)
    steps += peermem.steps
    modules: tuple[Step[Any], ...] = ()
    if settings.installs and not coming:
        modules = tuple(bring_modules(desired, actual, bad(*_module_to_boot(boots))))
        steps += (replace(step, target=target) for step in modules)
    told = _judged(settings, findings, steps)
    no_module = driver.module_version is None and not (coming or builds or lacking or modules)
    no_module = no_module and any(step.change is Act.LOAD for step in steps)
    masked = (f"{SERVICE.named(item)}.service" for item in serving if item.actual == MASKED)
    refusal = NO_MODULE if no_module else next(map(masked_refusal, masked), None)
    if refusal is not None:
        # Services are started after the module is loaded, and the node is booted after both.
        late = steps[before:] if no_module else [step for step in steps if step.disruption is Disruption.reboot]
        steps = [replace(step, waits=refusal) if step in late else step for step in steps]
        steps.sort(key=lambda step: step.waits is not None)
    decision = Decision((*told, *health(actual.health, actual.gpus, actual.pci)), tuple(steps), refusal)
    return _unless_blocked(decision, actual) if actual.has_gpu and by_node else decision


def _unless_blocked(decision: Decision[Any], actual: Actual) -> Decision[Any]:
    """Return the decision with what keeps the module from GPUs; a run that would load it stops behind the packages."""
    blockers = actual.driver.blockers
    if not blockers:
        return decision
    item = replace(BLOCKED.compared("; ".join(blockers), "none", False), by_person=True)
    # A line is for all GPUs, another driver for the one that it has.
    for_all = blockers[-1].startswith("/") or len(blockers) >= len(actual.pci.gpus)
    if actual.driver.loaded_version is None and for_all:
        cause, remedy = f"{item.actual}: {item.cause}", str(item.remedy)
        decision = behind(decision, cause, lambda step: step.change is Act.LOAD or step.action[:4] == "run ", remedy)
        if any(step.change is Act.LOAD for step in decision.steps):
            decision = replace(decision, refusal=f"driver: {cause}. Remedy: {remedy}")
    return replace(decision, findings=(*decision.findings, item))


def _judged(desired: DriverSettings, findings: Iterable[Finding], steps: Iterable[Step[Any]]) -> tuple[Finding, ...]:
    """Return the findings, a difference that no step settles as a person's; some say themselves what to do."""
    settled = {item for step in steps for item in step.settles}
    only_verified = _ONLY_VERIFIED if desired.source == "present" else None
    judged = []
    for item in findings:
        if item not in settled and item.remedy == RUN:
            item = by_hand(item, "; ".join(filter(None, (item.cause, only_verified))))
        judged.append(replace(item, by_person=item not in settled and bool(bad(item))))
    return tuple(judged)


def _root(settings: DriverSettings, actual: DriverState) -> Iterator[Finding]:
    if settings.is_elsewhere:
        found = actual.root_smi or (f"{settings.root} without nvidia-smi" if actual.root_folder else None)
        yield DRIVER_ROOT.compared(
            found, f"nvidia-smi below {settings.root}", actual.root == settings.root and actual.root_smi is not None
        )


def _installed_by(settings: DriverSettings, actual: DriverState) -> Iterator[Finding]:
    """Judge by which way the driver came, where a runfile's is desired or there."""
    if settings.source == "present" or (settings.source != "runfile" and not actual.runfile):
        return
    ways = actual.ways
    desired = "runfile" if settings.source == "runfile" else "packages"
    yield INSTALLED_BY.compared(
        " and ".join(ways) or None,
        desired,
        ways == (desired,),
        cause=MIXED if len(ways) > 1 else None,
        remedy=RUN if settings.migrate or not ways else MIGRATE,
    )


def _dkms(desired: DriverSettings, actual: DriverState) -> Iterator[Finding]:
    if desired.source != "runfile" or not actual.runfile:
        return
    found, dkms = ("registered" if each else "not registered" for each in (actual.dkms, desired.dkms))
    yield DKMS.compared(found, dkms, found == dkms)


def _module(desired: Desired, actual: Actual) -> Iterator[Finding]:
    on_disk, rule = actual.driver.module_version, desired.rule
    if rule is None or actual.is_image or desired.settings.is_elsewhere:
        return
    good = on_disk is not None and versions.in_branch(on_disk, rule)
    yield MODULE_ON_DISK.compared(on_disk, rule, good)


def _flavour(desired: Desired, actual: DriverState) -> Iterator[Finding]:
    """Judge the flavour of the loaded module, or while a boot is pending, of the one on disk that it will load."""
    settings = desired.settings
    # Where any flavour will do and gpunode did not install it, the one that is there is right.
    if settings.flavour == "auto" and settings.source == "present":
        return
    found = actual.module_flavour if actual.reboot_pending else actual.loaded_flavour or actual.module_flavour
    if found is None and (actual.loaded_version or actual.module_version) and not actual.reboot_pending:
        cause = "neither /proc/driver/nvidia/version nor the licence of the module on disk tells the flavour"
        remedy = "look at `modinfo --field license nvidia` and at /proc/driver/nvidia/version on the node"
        yield FLAVOUR.not_known(desired.flavour, cause, remedy)
    elif found is not None:
        disruption = Disruption.nothing if actual.loaded_version is None else Disruption.reboot
        good = found == desired.flavour
        yield FLAVOUR.compared(found, desired.flavour, good, disruption=disruption)


def _held(desired: Desired, actual: DriverState) -> Iterator[Finding]:
    if not desired.settings.installs or not desired.settings.hold:
        return
    to_be = [*(name for name, _ in actual.packages), *(actual.kernels if desired.holds_kernels else ())]
    loose = [name for name in to_be if name not in actual.held]
    yield HELD.compared(f"not {', '.join(loose)}" if loose else "all", "all", not loose)


def _module_to_boot(boots: tuple[Finding, ...]) -> tuple[Finding, ...]:
    return tuple(item for item in boots if item.code == NEXT_BOOT.code)
