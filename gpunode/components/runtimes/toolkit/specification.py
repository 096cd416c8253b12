"""What is to be done about CDI specifications: which there are, of which driver, and the change that makes one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from gpunode.base import tables, versions
from gpunode.base.comparison import REBOOT, REBOOT_NODE, RUN, by_hand, finding_message
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.messages import REMEDY
from gpunode.components.driver.state import DriverState
from gpunode.components.mig.state import Mig
from gpunode.components.runtimes.runtime import OWN_SPECIFICATION
from gpunode.components.runtimes.toolkit.cdi import CdiSpecification
from gpunode.components.runtimes.toolkit.devices import expected, lacking, resolved, shadowing, uuids
from gpunode.components.runtimes.toolkit.state import ContainerToolkit
from gpunode.system.service import is_masked, unmask

# Where the toolkit's own service writes, which is empty again after a boot.
REFRESHED_SPECIFICATION = "/var/run/cdi/nvidia.yaml"
_UNIT = "nvidia-cdi-refresh.path"

_DRAFT = "a run was cut off; runtimes that read a draft find each device twice, and hand in none"
_NOT_DESIRED = "gpunode made it, and toolkit.cdi is off"
_CHANGED = "the driver was changed after it was made"
_NO_LIBRARY = "it mounts no libcuda, and CUDA programs find no driver"
_OTHER_ROOT = "it has the driver's libraries from another root"
_NEWER_TOOLKIT = "a newer toolkit made it: {version} lacks these hooks, and containers may not start"
_OTHER_FILE, _NOT_CURRENT = "what keeps it current writes another file", "nothing keeps it current"
_WAITS = "another driver is on disk than loaded"
_UNREADABLE = "no runtime can read it, and containers find no device of it"
_LOST = "it names files or device nodes that the node no longer has"
_INCOMPLETE = "a GPU or a MIG device came after it was made, or was left out"
_REMOVED = "it names a GPU or a MIG device that the node does not have"
_TWICE = f"runtimes find none of the devices that two files of one folder have{REMEDY}move one of them away: {{files}}"
_OTHER_KIND = f"a file of another kind than nvidia.com/gpu is in its place{REMEDY}move it away: {{file}}"
_TOO_NEW = (
    f"{{program}} cannot read it{REMEDY}move {{file}} away where nvidia-ctk did not make it, for nvidia-ctk writes the "
    "oldest version that will do; else install a newer {program}"
)
_MISNUMBERED = (
    f"a device node has the number of another driver{REMEDY}remove the device node, and run `nvidia-modprobe -u -c=0`"
)
CDI_SPECIFICATION = finding_message(
    "toolkit",
    "CDI specification",
    "The CDI specification of the node's GPUs is not right.",
    "Runtimes read from this file which devices and libraries a GPU consists of. It is missing, cannot be read, lacks "
    "a GPU, names what the node does not have, is older than the driver, left over, a draft, or nothing keeps it "
    "current: containers do not start, or get a GPU that is not there.",
    causes=(
        _DRAFT,
        _NOT_DESIRED,
        _CHANGED,
        _NO_LIBRARY,
        _OTHER_ROOT,
        _NEWER_TOOLKIT,
        _OTHER_FILE,
        _NOT_CURRENT,
        _WAITS,
        _UNREADABLE,
        _LOST,
        _INCOMPLETE,
        _REMOVED,
        _TWICE,
        _MISNUMBERED,
        _OTHER_KIND,
        _TOO_NEW,
    ),
    classes=REBOOT,
)


@dataclass(frozen=True)
class Specification:
    """One change of CDI specifications.

    going: paths to remove; target: the one to make, None for none; version: of the driver that it is of
    root: where that driver's files are
    own: whether gpunode makes it, and not the toolkit's own unit; aside: paths of those that may not stay next to it
    """

    going: tuple[str, ...]
    target: str | None = None
    version: str = ""
    own: bool = True
    aside: tuple[str, ...] = ()
    root: str = "/"


def decide_specification(
    generate: bool, actual: ContainerToolkit, driver: DriverState, mig: Mig | None = None, *, boots: bool = False
) -> Decision[Any]:
    """Return what is to be done about CDI specifications.

    mig: the node's GPUs and MIG devices; None: not known
    boots: whether the node boots into the driver on its disk first
    """
    unasked = () if generate else tuple(item.path for item in actual.cdi if item.ours)
    going, loaded = (*actual.cdi_drafts, *unasked), driver.loaded_version
    change = Specification(going)
    made = None
    by_unit = actual.cdi_refresh is not None and not driver.is_elsewhere
    if generate and loaded is not None:
        made, change = _made(actual, driver, mig, change)
    if actual.cdi_drafts:
        found = ", ".join(actual.cdi_drafts)
        item: Finding | None = CDI_SPECIFICATION.compared(found, "no draft", False, cause=_DRAFT)
    elif unasked:
        item = CDI_SPECIFICATION.compared(", ".join(unasked), "none", False, cause=_NOT_DESIRED)
    else:
        item = made
    if item is None:
        return Decision(())
    if generate and loaded is not None and by_unit and is_masked(actual.cdi_refresh):
        refusal = (
            f"{_UNIT}, by which the toolkit keeps its CDI specification, is masked; nothing was changed"
            f". Remedy: undo that by {unmask(_UNIT)}, or set toolkit.cdi = 'off', and {RUN}"
        )
        return Decision((by_hand(item, refusal),), (), refusal)
    waits = None
    if driver.reboot_pending and change.target is not None:
        # Drafts go all the same.
        change = replace(change, target=None)
        if item is made:
            remedy = RUN if boots else f"{REBOOT_NODE}, and {RUN}"
            item = replace(item, finding_class=FindingClass.REBOOT_PENDING, cause=_WAITS, remedy=remedy)
            waits = None if boots else f"{driver.runs} is loaded, {driver.to_come} is to come"
    if not bad(item) or item.by_person:
        return Decision((item,))
    action = f"remove {', '.join(unasked)}" if unasked else "make the CDI specification"
    return Decision((item,), (Step(action, (item,), Disruption.nothing, waits, change),))


def _made(
    actual: ContainerToolkit, driver: DriverState, mig: Mig | None, change: Specification
) -> tuple[Finding, Specification]:
    """Judge the specification of the loaded driver; return with it the change that makes it.

    The toolkit's own unit starts only where nvidia-smi is in the node's /usr/bin or /usr/sbin, as
    deployments/systemd/nvidia-cdi-refresh.service of NVIDIA/nvidia-container-toolkit says: else gpunode makes it.
    """
    by_unit, root = actual.cdi_refresh is not None and not driver.is_elsewhere, driver.root
    loaded = driver.loaded_version or ""
    desired = f"of driver {loaded}" + (f" below {root}" if driver.is_elsewhere else "")
    target = actual.cdi_output or REFRESHED_SPECIFICATION if by_unit else OWN_SPECIFICATION
    compared = partial(CDI_SPECIFICATION.compared, desired=desired)
    if target in actual.of_other_kind:
        return by_hand(compared(f"another kind in {target}", good=False), _OTHER_KIND.format(file=target)), change
    if not actual.cdi and mig is not None and mig.gpus and all(gpu.enabled and gpu.instances == () for gpu in mig.gpus):
        # nvidia-ctk 1.19.1 and 1.20.2 make none of GPUs in MIG mode without instances, and fail.
        return compared("none, for no GPU has a MIG device", good=True), change
    if actual.misnumbered:
        return by_hand(compared("; ".join(actual.misnumbered), good=False), _MISNUMBERED), change
    wrong = {item.path: fault for item in actual.cdi if (fault := _fault(actual, item, loaded, root, mig))}
    # Ours next to the toolkit's would only grow old.
    doubled = tuple(item for item in actual.cdi if item.ours and by_unit)
    devices, twice = resolved(actual.cdi)
    if not wrong and not doubled and twice:
        files = ", ".join(sorted({path for paths in twice.values() for path in paths} - {target}))
        found = f"{_few(sorted(twice))} also in {files}"
        return by_hand(compared(found, good=False), _TWICE.format(files=files)), change
    near = [item.path for item in actual.cdi if item.folder == target.rpartition("/")[0]]
    if not wrong and devices is not None and (left_out := lacking(devices, expected(actual, mig))):
        shadows = shadowing((item for item in actual.cdi if item.path not in near), expected(actual, mig))
        wrong = {path: (_INCOMPLETE, f"{path} without {_few(left_out)}") for path in shadows or near}
    # What another file of the same folder has may not be made a second time.
    elsewhere = target not in near and (by_unit or not near)
    if wrong:
        item = compared(
            "; ".join(shown for _, shown in wrong.values()), good=False, cause=next(iter(wrong.values()))[0]
        )
    elif actual.cdi and (doubled or elsewhere):
        where = f"next to {target}" if doubled else "alone"
        files = "; ".join(f"{each.path} {where}" for each in doubled or actual.cdi)
        item = compared(files, good=False, cause=_OTHER_FILE)
    elif actual.cdi and by_unit and actual.cdi_refresh != "enabled":
        item = compared(f"{_UNIT} {actual.cdi_refresh}", good=False, cause=_NOT_CURRENT)
    else:
        item = compared(desired if actual.cdi else "none", good=bool(actual.cdi))
    aside = tuple(dict.fromkeys((*wrong, *(each.path for each in doubled))))
    made = target if bad(item) else None
    return item, replace(change, target=made, version=loaded, own=not by_unit, aside=aside, root=root)


def _fault(
    actual: ContainerToolkit, item: CdiSpecification, loaded: str, root: str, mig: Mig | None
) -> tuple[str, str] | None:
    """Return why a specification is made again, as a cause and as what there is; None where it is right."""
    if item.unreadable:
        return _UNREADABLE, f"{item.path}: {item.unreadable}"
    if not item.is_below(root):
        return _OTHER_ROOT, f"{item.path} with {item.library}"
    if item.driver_version != loaded:
        cause = _CHANGED if item.driver_version else _NO_LIBRARY
        return cause, f"{item.path} of driver {item.driver_version or 'unknown'}"
    if hooks := actual.hooks_lacking(item):
        return _NEWER_TOOLKIT.format(version=actual.version), f"{item.path} with {', '.join(hooks)}"
    if item.lost:
        return _LOST, f"{item.path} with {_few(item.lost)}"
    if strange := item.strange(uuids(mig)):
        return _REMOVED, f"{item.path} with {_few(strange)}"
    return None


def _few(names: Sequence[str]) -> str:
    rest = len(names) - 4
    return "; ".join([*names[:4], *([f"{rest} more"] if rest > 0 else [])])


def judge_readers(actual: ContainerToolkit, readers: Mapping[str, str | None]) -> Iterator[Finding]:
    """Yield the specifications that are too new for a program of the node.

    readers: program -> its version
    """
    for item in actual.cdi:
        for program, version in readers.items():
            newest = _newest_read(program, version) if version is not None else None
            if (
                newest is not None
                and item.version
                and not item.unreadable
                and not versions.at_least(newest, item.version)
            ):
                sides = f"CDI {item.version}", f"CDI {newest}, which {program} {version} reads, or older"
                found = CDI_SPECIFICATION.compared(*sides, False, of=item.path)
                yield by_hand(found, _TOO_NEW.format(program=program, file=item.path))


def _newest_read(program: str, version: str) -> str | None:
    """Return the newest CDI that a program reads; None where that is not known."""
    rows = tables.toolkit().cdi_readers.get(program, {})
    known = [each for each in rows if versions.in_branch(each, versions.major_minor(version))]
    reached = (each for each in sorted(known, key=versions.parsed) if versions.at_least(each, version))
    return rows.get(next(reached, ""))
