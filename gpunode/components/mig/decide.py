"""What is to be done about MIG: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gpunode.base.comparison import (
    ANY_PENDING,
    AS_DESIRED,
    REBOOT,
    RESTART,
    RUN,
    awaits_boot,
    by_hand,
    file_message,
    finding_message,
    pending,
)
from gpunode.base.decision import Decision, Step, bad, behind, is_forbidden, target_digest
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.components.mig.boot import NAME, MigBoot, desired_files, lines_of
from gpunode.components.mig.device_filter import Match
from gpunode.components.mig.state import Holder, Mig
from gpunode.components.mig.target import StateNotKnown, Target, TargetError, chosen, instance, targets
from gpunode.settings.mig import MigSettings
from gpunode.system.pci import PciGpu
from gpunode.system.smi import DRIVERLESS

_MODE_WAITS, _BOOT_OR_FREE = (
    "the mode waits for a reset of the GPU, or a boot",
    f"boot the node, or {RUN} while nothing uses the GPU; where neither helped, see `dmesg` and `nvidia-smi -q -d MIG`",
)
_ON_DISK, _BOOT = "it is applied by the driver on disk", f"boot the node, and {RUN}"
_CHANGES, _CONTAINERS = "instances or modes are to change", "{containers} containers run"
_ALLOW_RESET = "set disruption.allow to 'reset', or run when the node is drained"
_NOT_RESTORED = f"it did not bring the layout back; see `journalctl -u {NAME}`"
IN_USE = (
    "GPU {index} is in use by {others}. Remedy: end these processes, or name their units in mig.stop_units, and run "
    "again"
)
_declared = partial(finding_message, "mig", classes=RESTART, remedies=(RUN, _ALLOW_RESET))
SERVICE = _declared(
    "service",
    "The service that restores the MIG layout at boot failed or is missing.",
    "After a boot the GPUs have no instances, and programs that need them do not start.",
    causes=(_NOT_RESTORED,),
)
CONFIGURATION = _declared(
    "MIG configuration",
    "The desired MIG configuration cannot be applied or judged.",
    "Its name is not known for this GPU, its file is wrong, or the GPUs do not answer.",
    causes=(_ON_DISK,),
    remedies=(RUN, _BOOT),
    classes=REBOOT,
)
RECORD = _declared(
    "layout for the next boot",
    "The MIG layout that is to be restored at boot is not recorded.",
    "A GPU forgets its instances at every boot. gpunode's service restores them from this record.",
)
AT_BOOT = _declared(
    "starts at boot:",
    "The service that restores the MIG layout does not start at boot.",
    "After the next boot the GPUs will have no instances.",
)
FILE = file_message("mig")
MODE = _declared(
    "MIG mode of GPU",
    "MIG is on where it is to be off, or off where it is to be on.",
    "A change of the mode waits for a reset of the GPU or a boot, which ends what runs on it.",
    causes=(_MODE_WAITS, f"{_CHANGES}, and {_CONTAINERS}"),
    remedies=(RUN, _BOOT_OR_FREE, _ALLOW_RESET),
    classes=ANY_PENDING,
)
INSTANCES = _declared(
    "MIG instances of GPU",
    "A GPU is divided into other MIG instances than the settings ask for.",
    "Instances are what pods and jobs get. They were changed by hand, or lost by a boot or reset.",
    causes=(f"{{steps}}, and {_CONTAINERS}",),
)


@dataclass(frozen=True)
class Desired:
    """Hold which configuration a node is to have, its GPUs by PCI address, and what a change may disturb.

    in_cluster: whether the run may take pods off the node for a change; which of them leave, the cluster knows
    """

    settings: MigSettings
    gpus: tuple[PciGpu, ...]
    allowed: Disruption = Disruption.restart
    in_cluster: bool = False


@dataclass(frozen=True)
class Actual:
    """Hold what is there of MIG, how many containers run, and how the driver stands.

    reboot_pending: another driver waits on disk for a boot; driver_comes: where none runs, this run still brings one
    """

    mig: Mig
    boot: MigBoot
    containers: int = 0
    reboot_pending: bool = False
    driver_comes: bool = False


@dataclass(frozen=True)
class MigChange:
    """Hold what one transaction does.

    layout: the record for the next boot; None: nothing brings a layout back any more
    goal, rest: lines of that record, of the GPUs that change and of those that stay
    goals: what is desired of each GPU, wherever its instances stand; said: what becomes of them, for people
    takes: whether anything is taken from a GPU; resets: whether one may be reset
    learns: where instances may stand is known only then: another change comes after it
    waits: a mode is set, and comes with a reset or a boot; target: digest of what is to be reached
    containers: the short IDs of the pods' containers that hold what it takes
    """

    layout: str | None = None
    goal: str = ""
    rest: str = ""
    goals: tuple[str, ...] = ()
    said: str = ""
    takes: bool = False
    resets: bool = False
    learns: bool = False
    waits: bool = False
    target: str = ""
    containers: tuple[str, ...] = ()


def decide(desired: Desired, actual: Actual) -> Decision[MigChange]:
    """Return what is to be done about mode and instances of each GPU, and about what brings them back at a boot.

    Each step has the whole change, for one transaction brings all of it; None where the driver is still to come.
    """
    if desired.settings.config is None:
        # A node that lost its label is not asked to lose its layout.
        if not actual.boot.is_there or desired.settings.config_from_label:
            return Decision(())
        item = SERVICE.compared("there", "none", False, of=NAME)
        action = "no longer bring a MIG layout back at boot; the instances stay"
        return Decision((item,), (Step(action, (item,), Disruption.nothing, change=MigChange()),))
    try:
        every = targets(desired.settings, desired.gpus, actual.mig)
    except TargetError as error:
        return _untold(desired, actual, error)
    layout = "\n".join(each.record for each in every)
    layouts = (item for each in every for item in (_mode(each), _instances(each)))
    findings = (*layouts, *_unmatched(desired), *_next_boot(every, actual.boot))
    if lines_of(layout) is None:
        refusal = f"a GPU gives a name that is none: {layout[:200]!r}"
        return Decision(tuple(by_hand(item, refusal) for item in findings), (), refusal)
    ahead = [each for each in every if not each.is_reached]
    cost = max((each.disruption for each in ahead), default=Disruption.nothing)
    waits = None
    # What would take nothing by itself waits as well.
    if is_forbidden(cost, desired.allowed, actual.containers):
        waits = f"containers run, and disruption.allow is {desired.allowed.name}"
        findings = tuple(_waiting(item, actual.containers) for item in findings)
    goals = tuple(each.goal for each in every)
    stops = desired.settings.stop_units
    users = [(each.gpu.index, user) for each in ahead for user in _users(each, actual.mig.holders, stops)]
    change = MigChange(
        layout=layout,
        goal="\n".join(each.record for each in ahead),
        rest="\n".join(each.record for each in every if each not in ahead),
        goals=goals,
        said="; ".join(f"GPU {each.gpu.index}: {each.steps}" for each in ahead),
        takes=cost >= Disruption.reset,
        resets=desired.allowed >= Disruption.reset or not actual.containers,
        learns=any(each.learns for each in every),
        waits=any(each.waits for each in every),
        target=target_digest(*goals, *desired.settings.stop_units, desired.allowed.name),
        containers=tuple(each.container for _, each in users if each.in_pod and each.container),
    )
    decision = Decision(findings, tuple(_steps(ahead, findings, waits, change, desired.allowed)))
    stay = [(index, each) for index, each in users if not (each.in_pod and desired.in_cluster)]
    if waits or not stay:
        return decision
    first = stay[0][0]
    others = dict.fromkeys(str(each) for index, each in stay if index == first)
    refusal = IN_USE.format(index=first, others="; ".join(others))
    return replace(behind(decision, refusal), refusal=refusal)


def _users(target: Target, holders: Sequence[Holder], stops: Collection[str]) -> Iterator[Holder]:
    """Yield who holds what a change takes of a GPU, the units left out that a run stops for it."""
    changes, gone = target.gpu.current != target.mode, {each.identity for each in target.change.destroyed}
    for each in holders:
        is_taken = changes if each.instance is None else not changes and str(each.instance) in gone
        if each.gpu == target.gpu.uuid and is_taken and each.unit not in stops:
            yield each


def _untold(desired: Desired, actual: Actual, error: TargetError) -> Decision[MigChange]:
    reason = str(error)
    item = CONFIGURATION.compared("not applied", desired.settings.config, False, cause=reason)
    if actual.reboot_pending and actual.mig.status in DRIVERLESS:
        item = awaits_boot(item, _ON_DISK, _BOOT)
    elif actual.mig.status not in DRIVERLESS or not actual.driver_comes:
        if isinstance(error, StateNotKnown) and actual.mig.status not in DRIVERLESS:
            item = CONFIGURATION.not_known(desired.settings.config, reason, error.remedy)
        return Decision((by_hand(item, reason),), (), reason)
    cost = item.disruption or Disruption.nothing
    waits = item.cause if is_forbidden(cost, desired.allowed, actual.containers) else None
    action = f"divide the GPUs by MIG configuration {desired.settings.config}, once the driver runs"
    return Decision((item,), (Step(action, (item,), cost, waits),))


def _steps(
    ahead: Sequence[Target], findings: Sequence[Finding], waits: str | None, change: MigChange, allowed: Disruption
) -> Iterator[Step[MigChange]]:
    different = {item.what: item for item in bad(*findings)}
    every: list[Step[MigChange]] = []
    for target in ahead:
        index = str(target.gpu.index)
        names = (INSTANCES.about(index), MODE.about(index))
        settles = tuple(different.pop(name) for name in names if name in different)
        # A mode that no reset brings comes with a boot, where that is allowed.
        boots = target.waits and allowed is Disruption.reboot
        cost = Disruption.reset if waits else Disruption.reboot if boots else target.disruption
        every.append(Step(f"GPU {index}: {target.steps}", settles, cost, waits, change))
    rest = tuple(different.values())
    if rest and not every:
        every.append(Step("bring the MIG layout back at every boot", rest, Disruption.nothing, waits, change))
    elif rest:
        # That comes along with any other change.
        every[0] = replace(every[0], settles=(*every[0].settles, *rest))
    yield from every


def _mode(target: Target) -> Finding:
    gpu = target.gpu
    found = gpu.current if gpu.settled else f"{gpu.current}, {gpu.pending} after the next reset"
    good = (gpu.current, gpu.pending) == (target.mode, target.mode)
    item = MODE.compared(found, target.mode, good, of=str(gpu.index), disruption=target.disruption)
    return awaits_boot(item, _MODE_WAITS, _BOOT_OR_FREE) if target.waits else item


def _instances(target: Target) -> Finding:
    actual = " ".join(str(instance(each)) for each in target.gpu.instances or ())
    desired = " ".join(map(str, target.instances))
    of = str(target.gpu.index)
    good = target.change.is_nothing and not target.learns
    return INSTANCES.compared(
        actual or "none", desired or "none", good, of=of, cause=target.steps, disruption=target.disruption
    )


def _unmatched(desired: Desired) -> Iterator[Finding]:
    """Yield the GPUs of which nothing tells whether an entry is for them: no run acts on them."""
    for each in chosen(desired.settings, desired.gpus):
        if each.entry is not None and each.match is Match.MAYBE:
            cause = f"{each.entry.path} is for boards of one subsystem id, and nothing tells the GPU's"
            remedy = "name the GPUs of that entry by `devices`, their indices, in place of `device-filter`"
            yield INSTANCES.not_known(each.entry.path, cause, remedy, of=str(each.index))


def _waiting(item: Finding, containers: int) -> Finding:
    reason = f"{item.cause or _CHANGES}, and {_CONTAINERS.format(containers=containers)}"
    return pending(item, reason, _ALLOW_RESET, Disruption.reset)


def _next_boot(every: Sequence[Target], boot: MigBoot) -> Iterator[Finding]:
    recorded = boot.record == tuple(each.record for each in every)
    actual = "unreadable" if not boot.readable else "none" if boot.record is None else "another"
    yield RECORD.compared("this" if recorded else actual, "this", recorded)
    yield AT_BOOT.compared("yes" if boot.enabled else "no", "yes", boot.enabled, of=NAME)
    if boot.failed:
        yield SERVICE.compared("failed", "done", False, of=NAME, cause=_NOT_RESTORED)
    if not recorded or not boot.enabled or boot.failed:
        return
    # Nothing else tells that unit or script are not what they are to be.
    digests = dict(boot.files)
    for path, text in desired_files().items():
        if digests.get(path) != hashlib.sha256(text.encode()).hexdigest():
            found = "another text" if path in digests else "none"
            yield FILE.compared(found, AS_DESIRED, False, of=path)
