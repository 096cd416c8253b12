"""What is to be done about MPS: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from gpunode.base.comparison import (
    AS_DESIRED,
    RESTART,
    RUN,
    by_hand,
    file_message,
    finding_message,
    pending,
    running_configuration,
)
from gpunode.base.decision import Decision, Step, bad, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mps.change import (
    APPLY,
    PATHS,
    PIPE_DIRECTORY,
    MpsChange,
    actual_digests,
    change,
    desired_files,
    environment_files,
)
from gpunode.components.mps.daemon import COMPUTE_MODES, UNITS, Daemon
from gpunode.components.mps.state import Mps, MpsDaemon
from gpunode.settings.sharing import MpsSettings
from gpunode.system.gpu import Gpu
from gpunode.system.smi import WITHOUT_VALUE


def without_room(desired: MpsSettings, memory: Mapping[int, int | None]) -> str | None:
    """Return why the clients do not fit on a GPU; None where they do, or nobody can say.

    `memory` is index -> the GPU's memory in MiB, None where it is not known.
    """
    for index, actual in sorted(memory.items()):
        limit = desired.limit_of(index)
        if limit is None or actual is None:
            continue
        needed = (desired.clients or 1) * int(limit[:-1]) * (1024 if limit.endswith("G") else 1)
        if needed > actual:
            which = (
                f"{desired.clients} clients with {limit} each" if desired.clients else f"a client's limit of {limit}"
            )
            return f"{which} are {needed} MiB, and GPU {index} has {actual} MiB: lower mps.clients or mps.memory_limit"
    return None


# As nvidia-smi prints them.
_MODES = ("Default", "Exclusive_Process", "Exclusive_Thread", "Prohibited")
_CLIENTS = "MPS clients run ({clients}) and disruption.allow is nothing"
_END_CLIENTS = f"end its clients, or set disruption.allow = 'restart', and {RUN}"
_LOG = "its log: {last_error}"
_declared = partial(finding_message, "mps", causes=(_CLIENTS,), remedies=(RUN, _END_CLIENTS), classes=RESTART)
SERVICE = _declared(
    "service",
    "An MPS daemon does not answer, or runs although the settings do not ask for it.",
    "Programs share GPUs through this daemon. They hang or fail where it does not answer.",
    causes=(_LOG, _CLIENTS),
)
_FEWER = "in the mode {mode} the GPU refuses {whom}"
_OTHER_DAEMON = "an MPS daemon that gpunode does not manage runs (process {pids}); it may or may not serve this GPU"
_TO_DEFAULT = "run `nvidia-smi -i {index} -c DEFAULT` on the node"
_QUERY = "run `nvidia-smi --query --display=COMPUTE` on the node, and mend what it names"
COMPUTE_MODE = _declared(
    "compute mode of GPU",
    "A GPU is in another compute mode than its use needs.",
    "MPS needs the mode that mps.compute_mode names: otherwise programs may bypass the MPS server and take the GPU for "
    "themselves. Without MPS a GPU needs the mode Default: in another one, programs and pods that share it fail.",
    causes=(_CLIENTS, _FEWER, _OTHER_DAEMON),
    remedies=(RUN, _END_CLIENTS, _TO_DEFAULT, _QUERY),
)
AT_BOOT = _declared(
    "starts at boot:",
    "An MPS daemon does not start at boot.",
    "It runs now, and will be missing after the next boot.",
)
RUNNING_CONFIGURATION = running_configuration("mps", "the unit was written after the daemon started")
LIMITS = _declared(
    "daemon",
    "An MPS daemon has other limits than the settings ask for.",
    "The daemon itself reports its limits of threads and memory. Clients get more or less of the GPU than desired.",
)
ENVIRONMENT = _declared(
    "CUDA_MPS_PIPE_DIRECTORY in",
    "The variable by which programs find the MPS daemon is not set as the settings ask.",
    "Without CUDA_MPS_PIPE_DIRECTORY a program bypasses the daemon, or is refused the GPU.",
    name="cuda-mps-pipe-directory",
)
FILE = file_message("mps")


@dataclass(frozen=True)
class Desired:
    """Hold the daemons that a node is to have (none: what gpunode set up goes), and what a change may disturb.

    by_plugin: whether the device plugin's MPS daemon sets the compute mode
    driver_comes: whether the run brings a driver before it comes to MPS, and the control program with it
    """

    daemons: tuple[Daemon, ...]
    settings: MpsSettings
    allowed: Disruption = Disruption.restart
    by_plugin: bool = False
    driver_comes: bool = False


def decide(desired: Desired, actual: Mps, gpus: Sequence[Gpu], mps_pids: Sequence[int] = ()) -> Decision[MpsChange]:
    """Return what is to be done about the daemons, their settings and files, and the GPUs' compute mode.

    A run is one transaction: while a restart waits for clients it leaves all of MPS as it is, down to a percentage.
    Each step has the whole change, None where the control program is still to come: no file can be rendered without it.

    gpus: as nvidia-smi lists them; mps_pids: process numbers of MPS daemons, of any origin
    """
    to_come = change(desired.daemons, desired.settings, actual, gpus)
    findings = (*_findings(desired, actual, gpus, to_come), *_foreign(desired, actual))
    if _no_room(desired, gpus):
        findings += (LIMITS.compared("more than a GPU has", "room for every client", False, of="memory limits"),)
    findings += tuple(_files(desired, actual, to_come, findings))
    if (refusal := _refusal(desired, actual, gpus)) is not None:
        return Decision(tuple(by_hand(item, refusal) for item in findings), (), refusal)
    waits = None
    if is_forbidden(Disruption.restart, desired.allowed, len(to_come.felt)):
        clients = (f"{'?' if each.clients is None else each.clients} of {each.unit}" for each in to_come.felt)
        waits = _CLIENTS.format(clients=", ".join(clients))
        findings = tuple(waiting(item, waits) for item in findings)
    ready = None if desired.daemons and actual.program is None else to_come
    # What a file is to contain is in place before a daemon is told of it.
    differences = sorted(bad(*findings), key=lambda item: FILE.named(item) is None)
    steps = tuple(
        Step(_action(item), (item,), item.disruption or Disruption.nothing, waits, ready, felt=bool(to_come.felt))
        for item in differences
    )
    # A daemon that goes sets the mode back itself, and a mode of unknown origin is a person's to change.
    modes = () if desired.daemons or actual.daemons else _modes_without_mps(desired, gpus, mps_pids)
    return Decision((*findings, *modes), steps)


def _modes_without_mps(desired: Desired, gpus: Sequence[Gpu], mps_pids: Sequence[int]) -> Iterator[Finding]:
    """Judge each GPU that is not in the compute mode Default."""
    for gpu in gpus:
        mode, of = gpu.compute_mode, str(gpu.index)
        if mode == "Default" or (mode == "Exclusive_Process" and desired.by_plugin):
            continue
        remedy = _TO_DEFAULT.format(index=of)
        if mode not in _MODES:
            desired_mode = None if mode in WITHOUT_VALUE else "Default"
            yield COMPUTE_MODE.not_known(desired_mode, f"nvidia-smi answers {mode or 'nothing'}", _QUERY, of=of)
        elif mode == "Exclusive_Process" and mps_pids:
            cause = _OTHER_DAEMON.format(pids=", ".join(map(str, mps_pids)))
            yield COMPUTE_MODE.not_known(None, cause, f"{remedy}, unless that daemon serves the GPU", of=of)
        else:
            whom = "every program" if mode == "Prohibited" else "every program but the first"
            cause = _FEWER.format(mode=mode, whom=whom)
            yield COMPUTE_MODE.compared(mode, "Default", False, of=of, cause=cause, remedy=remedy)


def waiting(item: Finding, waits: str) -> Finding:
    """Return a difference as pending: the settings do not allow a restart that interrupts clients."""
    return pending(replace(item, finding_class=FindingClass.DRIFT), waits, _END_CLIENTS) if bad(item) else item


def _findings(desired: Desired, actual: Mps, gpus: Sequence[Gpu], to_come: MpsChange) -> Iterator[Finding]:
    for daemon in desired.daemons:
        yield from _daemon(daemon, actual.daemon(daemon.unit))
    for extra in actual.daemons:
        if extra.unit not in {daemon.unit for daemon in desired.daemons}:
            yield SERVICE.compared("there", "none", False, of=extra.unit, disruption=Disruption.restart)
    yield from _environment(desired, actual, to_come)
    # The unit sets the mode, and brings it back at each start: another unit is a restart.
    daemons = (actual.daemon(daemon.unit) for daemon in desired.daemons)
    exclusive = desired.settings.compute_mode == "exclusive-process"
    by_unit = any(each is not None and each.exclusive is (not exclusive) for each in daemons)
    disruption = Disruption.restart if by_unit else Disruption.nothing
    for gpu in gpus if desired.daemons else ():
        mode, found = COMPUTE_MODES[desired.settings.compute_mode], gpu.compute_mode
        if found not in _MODES:
            yield COMPUTE_MODE.not_known(mode, f"nvidia-smi answers {found or 'nothing'}", _QUERY, of=str(gpu.index))
            continue
        good = found == mode and not by_unit
        found = f"{mode}, until the daemon starts again" if found == mode and by_unit else found
        yield COMPUTE_MODE.compared(found, mode, good, of=str(gpu.index), disruption=disruption)


def _daemon(daemon: Daemon, actual: MpsDaemon | None) -> Iterator[Finding]:
    answers = actual is not None and actual.active and actual.answers
    state = "none" if actual is None else "answers" if answers else "does not answer" if actual.active else "stopped"
    cause = _LOG.format(last_error=actual.last_error) if actual is not None and actual.last_error else None
    # One that runs and does not answer may have clients.
    costs = Disruption.restart if actual is not None and actual.active else Disruption.nothing
    yield SERVICE.compared(state, "answers", answers, of=daemon.unit, cause=cause, disruption=costs)
    if actual is None or not answers:
        return
    at_boot = "yes" if actual.enabled else "no"
    yield AT_BOOT.compared(at_boot, "yes", actual.enabled, of=daemon.unit)
    if actual.stale:
        yield RUNNING_CONFIGURATION.finding(
            FindingClass.RESTART_PENDING,
            "older than its unit",
            "the unit's",
            of=daemon.unit,
            cause=RUNNING_CONFIGURATION.cause,
            remedy=RUN,
            disruption=Disruption.restart,
        )
    for item in daemon.controls:
        said = actual.reads(item.question)
        of = f"{daemon.name}, {item.question.removeprefix('get_default_')}"
        yield LIMITS.compared(said or "none", item.answer or "none", said == item.answer, of=of)


def _environment(desired: Desired, actual: Mps, to_come: MpsChange) -> Iterator[Finding]:
    texts = environment_files(desired.settings) if desired.daemons else {}
    digests = actual_digests(actual)
    for path in PATHS:
        text, digest = texts.get(path), digests.get(path)
        if text is None and digest is None:
            continue
        good = text is not None and path not in to_come.written
        found = PIPE_DIRECTORY if good or text is None else "none" if digest is None else "another text"
        found = "somebody else's" if text is not None and path in actual.foreign else found
        to_be = "none" if text is None else PIPE_DIRECTORY
        yield ENVIRONMENT.compared(found, to_be, good, of=path)


def _files(desired: Desired, actual: Mps, to_come: MpsChange, told: Sequence[Finding]) -> Iterator[Finding]:
    """Judge each file that a run would write or remove, where nothing tells of its effect already."""
    different, digests = bad(*told), actual_digests(actual)
    for path in (*to_come.written, *to_come.removed):
        if path in PATHS or path in actual.foreign or _tells(path, desired, to_come, different):
            continue
        found = "none" if path not in digests else "another text" if path in to_come.written else "there"
        to_be = AS_DESIRED if path in to_come.written else "none"
        disruption = Disruption.restart if path in UNITS and actual.daemons else Disruption.nothing
        yield FILE.compared(found, to_be, False, of=path, disruption=disruption)


def _tells(path: str, desired: Desired, to_come: MpsChange, different: Sequence[Finding]) -> bool:
    """Say whether another difference is about a file's effect: then its name says nothing new."""
    down = {unit for item in different if (unit := SERVICE.named(item))}
    if path in UNITS:
        # A daemon that runs is restarted for its unit, which has to be told as well.
        units = [each.unit for each in desired.daemons]
        starts = bool(units) and down.issuperset(units)
        return any(item.disruption for item in different) or (starts and path in to_come.written)
    return bool(down) or (path != APPLY and any(LIMITS.named(item) for item in different))


def _foreign(desired: Desired, actual: Mps) -> Iterator[Finding]:
    for path in _of_others(desired, actual):
        if path not in PATHS:
            to_be = AS_DESIRED if path in desired_files(desired.daemons, desired.settings, "") else "none"
            yield FILE.compared("somebody else's", to_be, False, of=path)


def _no_room(desired: Desired, gpus: Sequence[Gpu]) -> str | None:
    return without_room(desired.settings, {gpu.index: gpu.memory_mib for gpu in gpus}) if desired.daemons else None


def _of_others(desired: Desired, actual: Mps) -> list[str]:
    """Return the paths at which somebody else's files are in the way: a variable that is not desired is anybody's."""
    if not desired.daemons:
        return []
    return [path for path in actual.foreign if path not in PATHS or path in environment_files(desired.settings)]


def _refusal(desired: Desired, actual: Mps, gpus: Sequence[Gpu]) -> str | None:
    if theirs := _of_others(desired, actual):
        setting = "mps.environment" if set(theirs) <= set(PATHS) else "mps.enabled"
        return (
            f"{', '.join(theirs)} is not of gpunode's making, and would be written over; nothing was changed"
            f". Remedy: stop that service and remove it, or leave {setting} out"
        )
    if desired.daemons and actual.program is None and not desired.driver_comes:
        return (
            "mps: nvidia-cuda-mps-control is not installed; nothing was changed. Remedy: leave mps.enabled out, or "
            "install it: it comes with the driver's packages of NVIDIA's repository and with its .run file, and is the "
            "package nvidia-cuda-mps in Debian's archive"
        )
    reason = _no_room(desired, gpus)
    return None if reason is None else f"{reason}; nothing was changed"


def _action(item: Finding) -> str:
    if path := FILE.named(item):
        return f"remove {path}" if item.desired == "none" else f"write {path} anew"
    if unit := SERVICE.named(item):
        return f"stop {unit}" if item.desired == "none" else f"run {unit}, now and at boot"
    if name := LIMITS.named(item):
        return f"tell the MPS daemon of {name} {item.desired}"
    if index := COMPUTE_MODE.named(item):
        restart = ", which takes a restart of the MPS daemon" if item.disruption else ""
        return f"set the compute mode of GPU {index}{restart}"
    if RUNNING_CONFIGURATION.named(item):
        return "restart the MPS daemon"
    if ENVIRONMENT.named(item):
        return f"{'no longer ' if item.desired == 'none' else ''}set {item.what}"
    return f"set {item.what}"
