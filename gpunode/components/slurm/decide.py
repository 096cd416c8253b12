"""What is to be done about a Slurm node: every comparison with what is desired, and the steps for the differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from gpunode.base import versions
from gpunode.base.comparison import (
    AS_DESIRED,
    BY_HAND,
    RESTART,
    RUN,
    by_hand,
    file_message,
    finding_message,
    pending,
    running_configuration,
)
from gpunode.base.decision import Decision, Step, bad, is_forbidden, target_digest
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.components.mig.state import Mig
from gpunode.components.slurm.state import (
    FILES,
    FOLDER,
    GRES,
    NODES,
    OURS,
    Slurm,
    Untold,
    devices,
    gres_of,
    node_name,
    texts,
)
from gpunode.settings.slurm import SlurmSettings, known

UNIT = "slurmd.service"
_SITE = {GRES: f"{FOLDER}/gres.conf", NODES: f"{FOLDER}/slurm.conf"}

_OLD = "slurmd {version} knows no MultipleFiles, by which a MIG device is one resource"
_NOT_READ = "Slurm does not read it. Remedy: add the line `include {path}` to {file}"
_NO_ANSWER = "slurmctld does not answer `scontrol show node` of this node. Remedy: see to it, and to munge"
_SITE_LINE = "the site's own NodeName line differs. Remedy: correct it, and restart slurmctld"
_ELSEWHERE = "slurmctld, on another machine, reads another line. Remedy: restart it there"
_STEPS = "steps of jobs run ({steps}), which other devices may end, and disruption.allow is below reset"
_DRAIN = f"drain the node (scontrol update State=DRAIN), or set disruption.allow = 'reset', and {RUN}"
_declared = partial(finding_message, "slurm", remedies=(RUN, _DRAIN))
SERVICE = _declared(
    "service",
    "slurmd does not run as the settings ask, or cannot be configured.",
    "Without it the node takes no jobs.",
    classes=RESTART,
    causes=(_STEPS,),
)
NODE_GRES = _declared(
    "Gres of the node",
    "Slurm does not offer the GPUs that the node has.",
    "Gres is what jobs request. With a wrong one jobs stay pending, or get devices that are not there.",
    classes=RESTART,
    causes=(_OLD, _NO_ANSWER, _SITE_LINE, _ELSEWHERE, _STEPS),
)
FILE = file_message("slurm")
INCLUDE = _declared(
    "include of",
    "Slurm's configuration does not include gpunode's file.",
    "gpunode writes the node's GPUs to a file of its own, which counts only where slurm.conf or gres.conf includes it.",
    name="include",
    causes=(_NOT_READ,),
    remedies=(BY_HAND,),
)
RUNNING_CONFIGURATION = running_configuration("slurm", "they were written after slurmd started")
NODE_STATE = _declared(
    "state of the node",
    "Slurm has the node down, drained or otherwise not at work.",
    "It takes no jobs. slurmctld says why (`scontrol show node`).",
    classes=RESTART,
    causes=(_STEPS,),
)


@dataclass(frozen=True)
class Desired:
    """Hold what a Slurm node is to be, and what a change may disturb."""

    settings: SlurmSettings
    allowed: Disruption = Disruption.restart


@dataclass(frozen=True)
class SlurmChange:
    """Hold what one transaction does: `written` path -> text, `removed` paths.

    included: whether the site's files include all that is written: then `slurmd -G` judges it by them, else by a
    slurm.conf that says nothing else; restart: whether slurmd is restarted; controller: whether slurmctld, which runs
    on this very node, is, too; resume: whether the node gets jobs again that slurmctld took out for its devices
    gres: what slurmctld is to count then; empty: nothing of GPUs. by_nvml: whether slurmd finds the types
    target: digest of what is to be reached
    """

    written: Mapping[str, str]
    removed: tuple[str, ...] = ()
    name: str = ""
    gres: str = ""
    included: bool = False
    restart: bool = False
    controller: bool = False
    resume: bool = False
    by_nvml: bool = False
    target: str = ""


def lacks(settings: SlurmSettings, actual: Slurm) -> tuple[str, str] | None:
    """Return why nothing of the settings can be brought about on a node, and what to do; None where it can."""
    row, off = known(), "or set slurm.enabled = False"
    if actual.version is None:
        return (
            "there is no slurmd on this node, and gpunode installs none",
            f"install Slurm as your cluster does, {off}",
        )
    if not actual.configured:
        return f"there is no {FOLDER}/slurm.conf, beside which gpunode's files stand", f"bring it, {off}"
    if "gpu" not in actual.types:
        said = ",".join(actual.types) or "nothing"
        return f"GresTypes of {FOLDER}/slurm.conf names {said}, and no gpu", f"add the line GresTypes=gpu to it, {off}"
    if not versions.at_least(actual.version, row.first_with_autodetect_off):
        return (
            f"slurmd {actual.version} knows no AutoDetect=off: {row.first_with_autodetect_off} does",
            f"upgrade, {off}",
        )
    if settings.autodetect == "nvml" and not actual.nvml:
        return "this slurmd was built without NVML (no gpu_nvml.so)", "set slurm.autodetect = 'off'"
    return None


def decide(desired: Desired, actual: Slurm, mig: Mig) -> Decision[SlurmChange]:
    """Return what is to be done about the files, slurmd, and a node that slurmctld took out for its devices."""
    if not desired.settings.enabled:
        return _removal(actual)
    if (lacking := lacks(desired.settings, actual)) is not None:
        reason, remedy = lacking
        item = SERVICE.compared("cannot be configured", AS_DESIRED, False, of=UNIT)
        return Decision((by_hand(item, f"{reason}. Remedy: {remedy}"),), (), f"slurm: {reason}. Remedy: {remedy}")
    try:
        every, wanted = devices(desired.settings, actual, mig), texts(desired.settings, actual, mig)
    except Untold as untold:
        if actual.gpus:
            remedy = f"run `nvidia-smi -L` and `slurmd -C` on the node, mend what they name, and {RUN}"
            return Decision((NODE_GRES.not_known("those of the node", str(untold), remedy),))
        item = NODE_GRES.compared("not told", "those of the node", False)
        # The driver, or MIG, may come with the same run, before this.
        item = replace(item, cause=str(untold))
        return Decision((item,), (Step("tell Slurm of the GPUs", (item,), Disruption.nothing),))
    old = any(len(each.files) > 1 for each in every) and not versions.at_least(
        actual.version or "0", known().first_with_multiple_files
    )
    if old:
        reason = _OLD.format(version=actual.version)
        item = NODE_GRES.compared("not to be written", gres_of(every), False)
        return Decision((by_hand(item, reason),), (), f"slurm: {reason}; nothing was changed")
    return _kept(desired, actual, wanted, gres_of(every))


def _kept(desired: Desired, actual: Slurm, wanted: Mapping[str, str], gres: str) -> Decision[SlurmChange]:
    settings, there = desired.settings, dict(actual.texts)
    if foreign := [path for path in wanted if path in there and not there[path].startswith(OURS)]:
        items = tuple(FILE.compared("somebody else's", AS_DESIRED, False, of=path) for path in foreign)
        reason = f"{', '.join(foreign)} is not of gpunode's making, and would be written over. Remedy: move it away"
        return Decision(tuple(by_hand(item, reason) for item in items), (), f"slurm: {reason}")
    extra = [path for path in FILES if there.get(path, "").startswith(OURS) and path not in wanted]
    files = (*_files(wanted, there), *(_gone(path, actual) for path in extra))
    to_come = tuple(item for item in bad(*files) if not item.by_person)
    includes = tuple(_includes(wanted, actual))
    included = not bad(*includes)
    service = tuple(_service(actual, included))
    here = actual.slurmctld is not None and actual.slurmctld.active
    counted = () if to_come or not included else tuple(_counts(settings, actual, gres, here))
    findings = (*files, *includes, *service, *counted)
    done = tuple(item for item in bad(*files, *service, *counted) if not item.by_person)
    if not done:
        return Decision(findings)
    change = SlurmChange(
        written={path: text for path, text in wanted.items() if there.get(path) != text},
        removed=tuple(path for path in extra if not actual.included_in(path)),
        name=node_name(settings, actual),
        gres=gres,
        included=included,
        restart=bool(bad(*service)) or (included and bool(to_come)),
        controller=included and here and bool(to_come or bad(*counted)),
        resume=(actual.reason or "").startswith(known().reason_of_devices),
        by_nvml=settings.autodetect == "nvml",
        target=target_digest(*(f"{path}\0{text}" for path, text in sorted(wanted.items())), str(included)),
    )
    unread = bool(to_come) or (actual.slurmd is not None and actual.slurmd.stale)
    return _with_steps(desired, actual, findings, done, change, unread)


def _with_steps(
    desired: Desired,
    actual: Slurm,
    findings: tuple[Finding, ...],
    done: tuple[Finding, ...],
    change: SlurmChange,
    unread: bool,
) -> Decision[SlurmChange]:
    """Have the change wait where jobs would lose their devices: slurmctld aborts those whose devices change.

    unread: whether slurmd is to read what it does not run by yet; one that starts as it was keeps its jobs
    """
    waits, forbidden = None, is_forbidden(Disruption.reset, desired.allowed, actual.steps)
    if change.restart and unread and forbidden:
        waits = _STEPS.format(steps=actual.steps)
        waiting = {item: pending(item, waits, _DRAIN, Disruption.reset) for item in done}
        findings = tuple(waiting.get(item, item) for item in findings)
        done = tuple(waiting[item] for item in done)
    steps = tuple(
        Step(_action(item), (item,), item.disruption or Disruption.nothing, waits, change, felt=bool(actual.steps))
        for item in done
    )
    return Decision(findings, steps)


def _files(wanted: Mapping[str, str], there: Mapping[str, str]) -> Iterator[Finding]:
    for path in FILES:
        if path in wanted:
            found = AS_DESIRED if there.get(path) == wanted[path] else "another text" if path in there else "none"
            yield FILE.compared(found, AS_DESIRED, found == AS_DESIRED, of=path, disruption=Disruption.restart)


def _includes(wanted: Mapping[str, str], actual: Slurm) -> Iterator[Finding]:
    for path in wanted:
        file = actual.included_in(path)
        item = INCLUDE.compared(file, file or f"in {_SITE[path]}", file is not None, of=path)
        yield by_hand(item, _NOT_READ.format(path=path, file=_SITE[path]))


def _service(actual: Slurm, included: bool) -> Iterator[Finding]:
    unit = actual.slurmd
    active = unit is not None and unit.active
    yield SERVICE.compared("active" if active else "stopped", "active", active, of=UNIT)
    if active and unit is not None and unit.stale and included:
        yield RUNNING_CONFIGURATION.compared(
            "older than its files", "the files'", False, of=UNIT, disruption=Disruption.restart
        )


def _counts(settings: SlurmSettings, actual: Slurm, gres: str, here: bool) -> Iterator[Finding]:
    """Judge what slurmctld, here or elsewhere, counts by its own reading of the node's line."""
    if actual.node is None:
        yield NODE_GRES.not_known(gres or "none", _NO_ANSWER, BY_HAND)
        return
    counts = None if actual.gres is None else _counted(actual.gres)
    good = counts == _counted(gres)
    item = NODE_GRES.compared(gres or "none" if good else actual.gres, gres or "none", good)
    if not settings.node_line:
        yield by_hand(item, _SITE_LINE)
    else:
        yield item if here else by_hand(item, _ELSEWHERE)
    reason = actual.reason or ""
    if reason.startswith(known().reason_of_devices):
        yield NODE_STATE.compared(f"taken out: {reason}", "not taken out for its devices", False)


def _counted(gres: str) -> Counter[str]:
    """Return type -> count of what slurmctld prints: `gpu:h100:8(S:0-1)`."""
    found: Counter[str] = Counter()
    for word in gres.split(","):
        parts = word.partition("(")[0].split(":")
        if parts[0] == "gpu" and parts[-1].isdecimal():
            found[":".join(parts[1:-1])] += int(parts[-1])
    return found


def _gone(path: str, actual: Slurm) -> Finding:
    """Judge a file that is to go: not before Slurm can start without it."""
    item, file = FILE.compared("there", "none", False, of=path), actual.included_in(path)
    reason = f"{file} includes it, and Slurm does not start without it: take that line out first"
    return item if file is None else by_hand(item, reason)


def _removal(actual: Slurm) -> Decision[SlurmChange]:
    """Return what takes gpunode's files away: none of a file that Slurm would miss at its next start."""
    ours = [path for path, text in actual.texts if text.startswith(OURS)]
    removed = tuple(path for path in ours if not actual.included_in(path))
    change, found = (
        SlurmChange({}, removed, target=target_digest(str(False))),
        {path: _gone(path, actual) for path in ours},
    )
    steps = (Step(f"remove {path}", (found[path],), Disruption.nothing, None, change) for path in removed)
    return Decision(tuple(found.values()), tuple(steps))


def _action(item: Finding) -> str:
    if path := FILE.named(item):
        return f"remove {path}" if item.desired == "none" else f"write {path} anew"
    if item.code == NODE_STATE.code:
        return "give the node jobs again"
    if item.code == NODE_GRES.code:
        return "restart slurmctld on this node"
    return "restart slurmd" if RUNNING_CONFIGURATION.named(item) else "start slurmd"
