"""Whether the GPUs themselves are well: uncorrected memory errors, rows to be remapped, Xids of the kernel log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from gpunode.base import tables
from gpunode.base.comparison import FindingMessage, finding_message
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import Reading
from gpunode.system.gpu import Gpus
from gpunode.system.pci import PciGpus
from gpunode.system.smi import ANSWERED, REMAPPED, address, data, exit_code_of, parse_answer, rows, warnings

# NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus. Older drivers leave PCI: out.
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([^)]{1,40})\): (\d{1,4})(?:, ?(.*))?$")
# The words of a driver that does not know the query of remapped rows, and of GPUs that have no row remapper.
_NO_REMAPPER = re.compile(r"not recognized|not supported|not a valid", re.IGNORECASE)
_FLAGS = {"1": True, "yes": True, "0": False, "no": False}
# The words of a GPU to which a field does not apply, or that has to be reset: other ones, such as Unknown Error, say
# that the field could not be read.
_IS_READ = re.compile(r"\[?(n/a|not supported|.*deprecated.*|.*requires reset.*)\]?", re.IGNORECASE)
_REMEDIES = {
    "reset": "drain the node and reset the GPU (`nvidia-smi --gpu-reset -i {address}`) or reboot; "
    "where it comes back, have the GPU replaced",
    "reboot": "drain and reboot the node; where it comes back, have the GPU replaced",
    "named": "drain the node, and do what the message names; where it comes back, have the GPU replaced",
}
_ECC = ("ecc.errors.uncorrected.volatile.total", "ecc.errors.uncorrected.aggregate.total")
_ASK = "run `nvidia-smi --query --display=ECC,ROW_REMAPPER` on the node"
# ... changed from 0x0 (None) to 0x2 (Node Reboot Required)
_ACTION = re.compile(r"recovery action changed from \S+ .{0,60}? ?to (0x[0-9a-fA-F]{1,2})\b")


_declared = partial(finding_message, "health", classes=(FindingClass.ERROR,))
_REPLACE = "drain the node and have the GPU replaced"
_IN_LOG = "{name}; it stays in the kernel log until the node boots"
_LOST, _NO_SPARE = "its memory lost data since the driver was loaded", "it has no spare row left"
_NO_LOG = "neither `dmesg` nor `journalctl --dmesg` printed the kernel log, where the driver writes errors of GPUs"
_READ_LOG = "run `dmesg` as root on the node; a container needs the capability SYSLOG of its host for that"
_AT_RESET = "bad rows of its memory are replaced at the next reset"
_WARNS = "nvidia-smi answers, and warns of a GPU; it goes on working"
_NO_COUNTS = "nvidia-smi {ended} to the question for memory errors"
_UNREAD, _ASK_AGAIN = "nvidia-smi answers {unread}", f"{_ASK}; where it answers the same, {_REMEDIES['reset']}"
MEMORY_ERRORS = _declared(
    "memory errors by nvidia-smi",
    "nvidia-smi does not report whether the GPUs' memory has errors.",
    "It ended with an exit code that is no answer. Nothing is known of the memory.",
    causes=(_NO_COUNTS,),
    remedies=(f"{_ASK}, and look at what it answers",),
    classes=(FindingClass.NOT_KNOWN,),
)
XID = _declared(
    "Xid",
    "The kernel log has a critical Xid error of a GPU.",
    "The driver reports errors of a GPU in the kernel log as Xids. Only those that mean a sick GPU are shown "
    "(gpunode/data/health.yaml), not those that an application causes. They stay in the log until the node boots.",
    causes=(_IN_LOG,),
    remedies=tuple(_REMEDIES.values()),
)
NO_XIDS = _declared(
    "Xids",
    "Whether the kernel log has a critical Xid error of a GPU.",
    "As ok it has none. No setting asks for the log: while it is not known, the exit code stays as it is.",
    causes=(_NO_LOG,),
    remedies=(_READ_LOG,),
    classes=(),
)
ECC_ERRORS = _declared(
    "uncorrected ECC errors",
    "A GPU's memory has lost data (uncorrected ECC errors).",
    "Programs that read this memory were ended or have wrong results. The count is since the driver was loaded.",
    causes=(_LOST,),
    remedies=(_REMEDIES["reset"],),
)
ROW_REMAPPING = _declared(
    "row remapping",
    "Rows of a GPU's memory wait to be replaced, or cannot be.",
    "Bad rows are replaced by spare rows at a reset. Failed: no spare row is left, and the GPU has to be replaced.",
    causes=(_NO_SPARE, _AT_RESET),
    remedies=(_REPLACE, _REMEDIES["reset"]),
)
STATE = _declared(
    "state",
    "A GPU has to be reset.",
    "It takes no new work, or will fail on it, until then.",
    remedies=(_REMEDIES["reset"],),
)
GPU_MEMORY = _declared(
    "memory of",
    "Whether a GPU's memory has uncorrected errors, by what nvidia-smi answers.",
    "As ok it has none. It is not known where nvidia-smi could not read one of the counts.",
    name="memory",
    causes=(_UNREAD,),
    remedies=(_ASK_AGAIN,),
    classes=(FindingClass.NOT_KNOWN,),
)
WARNINGS = _declared(
    "warnings by nvidia-smi",
    "nvidia-smi warns of a GPU that goes on working.",
    "It is a caution and changes no exit code. A corrupted infoROM, for example, loses counts of errors and settings.",
    causes=(_WARNS,),
    remedies=("look at the GPU (`nvidia-smi -q`), and ask the machine's vendor where a boot does not end it",),
    classes=(),
)


@dataclass(frozen=True)
class GpuHealth(Reading):
    """Hold what one GPU says of its memory; None where it does not tell (no ECC, no row remapper, MIG instances).

    `uncorrected_errors` counts since the driver was loaded, `uncorrected_errors_ever` over the GPU's life. `unread`
    are the answers to fields that apply to the GPU and could not be read, as `FIELD: ANSWER`.
    """

    pci_address: str
    uncorrected_errors: int | None = None
    uncorrected_errors_ever: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    requires_reset: bool = False
    unread: tuple[str, ...] = ()


@dataclass(frozen=True)
class Xid(Reading):
    """Hold one kind of Xid that a GPU reported since the boot, with the words of one such line.

    It is the first line, and of Xid 154, which takes back what an earlier one said, the last.
    """

    pci_address: str
    code: int
    message: str


@dataclass(frozen=True)
class Health(Reading):
    """Hold what nvidia-smi and the kernel log say of the GPUs' health.

    `exit_code` is that of nvidia-smi's queries: of the first one that failed, of that of remapped rows only where it
    failed otherwise than because the driver or the GPU has no row remapper; None where nvidia-smi was not asked. 14
    stands where it answered and has found an infoROM that is corrupted, and no query failed. `log_read` says whether
    the kernel log could be read: where not, that there is no Xid means nothing. `warnings` are lines of nvidia-smi's
    that begin with WARNING; it answered all the same.
    """

    exit_code: int | None = None
    gpus: tuple[GpuHealth, ...] = ()
    xids: tuple[Xid, ...] = ()
    log_read: bool = False
    warnings: tuple[str, ...] = ()


def _number(cell: str) -> int | None:
    return int(cell) if cell.isascii() and cell.isdecimal() else None


def _unread(row: Mapping[str, str], fields: Iterable[str]) -> tuple[str, ...]:
    """Return FIELD: ANSWER of the fields of which a GPU gives neither a value nor that they do not apply."""
    cells = ((name, row[name]) for name in fields)
    return tuple(
        f"{name}: {cell or 'nothing'}"
        for name, cell in cells
        if _number(cell) is None and cell.lower() not in _FLAGS and not _IS_READ.fullmatch(cell)
    )


def parse_health(lines: list[str]) -> Health:
    """Parse nvidia-smi's answer (gpunode.system.smi.parse_answer), that on remapped rows, and the kernel log's Xids.

    What follows a failed query is an error's words and no rows. A line of the log that is no Xid is left out: anything
    may stand in a kernel log.
    """
    actual = values(lines)
    desired = parse_answer(lines) if actual.keys() & {"absent", "unloaded", "gpu.rc"} else None
    exit_code = desired.exit_code if desired else None
    gpus: dict[str, GpuHealth] = {}
    for row in desired.rows if desired else ():
        recent, ever = (row[name] for name in _ECC)
        requires_reset = any("requires reset" in cell.lower() for cell in (recent, ever))
        gpu = GpuHealth(address(row["pci.bus_id"]), _number(recent), _number(ever), requires_reset=requires_reset)
        gpus[gpu.pci_address] = replace(gpu, unread=_unread(row, _ECC))
    if "remapped.rc" in actual:
        code = exit_code_of(actual, "remapped")
        printed = data(lines, "remapped")
        if code in ANSWERED:
            exit_code = code if exit_code == 0 else exit_code
            told = [line for line in printed if not line.startswith("No devices were found")]
            for row in rows(told, REMAPPED):
                gpu = gpus.get(address(row["gpu_bus_id"]), GpuHealth(address(row["gpu_bus_id"])))
                pending, failed = row["remapped_rows.pending"].lower(), row["remapped_rows.failure"].lower()
                gpu = replace(gpu, unread=(*gpu.unread, *_unread(row, REMAPPED[1:])))
                gpus[gpu.pci_address] = replace(gpu, remap_pending=_FLAGS.get(pending), remap_failed=_FLAGS.get(failed))
        elif exit_code in ANSWERED and not _NO_REMAPPER.search(" ".join(printed)):
            exit_code = code
    lines_of_xids = sorted(repeated(lines, "xid"), key=lambda line: line.partition(",")[0])
    found = filter(None, map(_XID.search, lines_of_xids))
    return Health(
        exit_code=exit_code,
        gpus=tuple(gpus.values()),
        xids=tuple(dict.fromkeys(Xid(address(each[1]), int(each[2]), (each[3] or "").strip()) for each in found)),
        log_read=actual.get("log") == "read",
        warnings=tuple(dict.fromkeys([*(desired.warnings if desired else ()), *warnings(lines, "remapped")])),
    )


def health(found: Health, gpus: Gpus, pci: PciGpus) -> Iterator[Finding]:
    """Judge whether the GPUs are well; what does not answer at all is told by nvidia-smi's own finding."""
    if gpus.status == "ok" and pci.gpus and found.exit_code not in ANSWERED:
        ended = "gave no answer" if found.exit_code is None else f"ended with exit code {found.exit_code}"
        yield MEMORY_ERRORS.not_known("an answer", _NO_COUNTS.format(ended=ended), MEMORY_ERRORS.remedies[0])
    # A warning need not be among what it prints as its answer.
    warned = found.exit_code in ANSWERED and found.exit_code != 0
    if found.warnings or warned:
        told = "; ".join(found.warnings) or f"exit code {found.exit_code}"
        cause = f"{_WARNS} (exit code {found.exit_code}: a corrupted infoROM)" if warned else _WARNS
        yield WARNINGS.finding(FindingClass.OK, told, "none", cause=cause, remedy=WARNINGS.remedies[0])
    for gpu in found.gpus:
        yield from _memory(gpu)
    table = tables.health()
    critical = table.critical_xids
    # A container sees the log of its host, and so the Xids of GPUs that are not its own.
    ours = [xid for xid in found.xids if any(gpu.address.startswith(xid.pci_address) for gpu in pci.gpus)]
    for xid in ours:
        if row := critical.get(xid.code):
            source = table.source if row.verified else f"{table.source} (not looked up there)"
            of, cause = f"{xid.code} of {xid.pci_address}", _IN_LOG.format(name=row.name)
            item = _sick(XID, xid.message or row.name, "none since the boot", row.remedy, xid.pci_address, cause, of)
            yield replace(item, source=source)
    asked_for = [finding for xid in ours if xid.code == table.recovery_xid.code for finding in _recovery(xid)]
    yield from asked_for
    if asked_for or any(xid.code in critical for xid in ours):
        return
    if found.log_read:
        yield NO_XIDS.finding(FindingClass.OK, "none that is critical", "none that is critical")
    elif pci.gpus and gpus.status not in ("absent", "no driver"):
        yield NO_XIDS.not_known(None, _NO_LOG, _READ_LOG)


def _recovery(xid: Xid) -> Iterator[Finding]:
    row = tables.health().recovery_xid
    action = _ACTION.search(xid.message)
    remedy = row.actions.get(action[1].lower(), "named") if action else "named"
    if remedy != "none":
        of, cause = f"{xid.code} of {xid.pci_address}", f"{row.name}, for another error of the GPU"
        item = _sick(XID, xid.message or row.name, "no recovery action", remedy, xid.pci_address, cause, of)
        yield replace(item, source=tables.health().source)


def _memory(gpu: GpuHealth) -> Iterator[Finding]:
    address, errors = gpu.pci_address, gpu.uncorrected_errors
    bad = []
    if gpu.requires_reset:
        bad.append(_sick(STATE, "GPU requires reset", "usable", "reset", address))
    if errors:
        bad.append(_sick(ECC_ERRORS, str(errors), "0", "reset", address, _LOST))
    if gpu.remap_failed:
        bad.append(_sick(ROW_REMAPPING, "failed", "none failed", None, address, _NO_SPARE))
    elif gpu.remap_pending:
        bad.append(_sick(ROW_REMAPPING, "pending", "none pending", "reset", address, _AT_RESET))
    yield from bad
    if gpu.unread:
        cause, remedy = _UNREAD.format(unread="; ".join(gpu.unread)), _ASK_AGAIN.format(address=address)
        yield GPU_MEMORY.not_known("no uncorrected error", cause, remedy, of=address)
    elif not bad and errors is not None:
        yield GPU_MEMORY.finding(FindingClass.OK, "no uncorrected error", "no uncorrected error", of=address)


def _sick(
    message: FindingMessage, actual: str, desired: str, remedy: str | None, address: str, cause: str | None = None,
    of: str | None = None,
) -> Finding:  # fmt: skip
    return message.finding(
        FindingClass.ERROR,
        actual,
        desired,
        of=of or f"of {address}",
        cause=cause,
        remedy=_REMEDIES[remedy].format(address=address) if remedy else _REPLACE,
        disruption=Disruption[remedy] if remedy in ("reset", "reboot") else None,
    )
