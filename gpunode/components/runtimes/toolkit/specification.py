"""What is to be done about CDI specifications: which there are, of which driver, and the change that makes one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from gpunode.base import tables, versions
from gpunode.base.comparison import REBOOT, REBOOT_NODE, RUN, by_hand, finding_message
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.messages import REMEDY
from gpunode.components.driver.state import DriverState
from gpunode.components.mig.state import ENABLED, Mig
from gpunode.components.runtimes.runtime import OWN_SPECIFICATION
from gpunode.components.runtimes.toolkit.cdi import CdiSpecification, Devices, resolved
from gpunode.components.runtimes.toolkit.state import ContainerToolkit
from gpunode.system.service import is_masked, unmask

# Where the toolkit's own service writes, which is empty again after a boot.
_REFRESHED = "/var/run/cdi/nvidia.yaml"
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
        _DRAFT, _NOT_DESIRED, _CHANGED, _NO_LIBRARY, _OTHER_ROOT, _NEWER_TOOLKIT, _OTHER_FILE, _NOT_CURRENT, _WAITS,
        _UNREADABLE, _LOST, _INCOMPLETE, _REMOVED, _TWICE, _MISNUMBERED, _OTHER_KIND, _TOO_NEW,
    ),
    classes=REBOOT,
)  # fmt: skip


@dataclass(frozen=True)
class Specification:
    """One change of CDI specifications.

    going: paths to remove; target: the path to make; version, root: of the driver that it is of
    own: whether gpunode makes it, and not the toolkit's own unit; aside: paths that may not stay next to it
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

    mig: None: not known; boots: whether the node boots into the driver on its disk first
    """
    unasked = () if generate else tuple(item.path for item in actual.cdi if item.ours)
    change, made = Specification((*actual.cdi_drafts, *unasked)), None
    # The unit starts only where nvidia-smi is in the node's /usr/bin or /usr/sbin: nvidia-cdi-refresh.service of
    # NVIDIA/nvidia-container-toolkit.
    by_unit = actual.cdi_refresh is not None and not driver.is_elsewhere
    if generate and driver.loaded_version is not None:
        made, change = _made(actual, driver, mig, by_unit, change)
    if actual.cdi_drafts:
        item = CDI_SPECIFICATION.compared(", ".join(actual.cdi_drafts), "no draft", False, cause=_DRAFT)
    elif unasked:
        item = CDI_SPECIFICATION.compared(", ".join(unasked), "none", False, cause=_NOT_DESIRED)
    elif made is not None:
        item = made
    else:
        return Decision(())
    if made is not None and by_unit and is_masked(actual.cdi_refresh):
        refusal = (
            f"{_UNIT}, by which the toolkit keeps its CDI specification, is masked; nothing was changed{REMEDY}"
            f"undo that by {unmask(_UNIT)}, or set toolkit.cdi = 'off', and {RUN}"
        )
        return Decision((by_hand(item, refusal),), (), refusal)
    waits = None
    if driver.reboot_pending and change.target is not None:
        change = replace(change, target=None)  # drafts are removed all the same
        if item is made:
            remedy = RUN if boots else f"{REBOOT_NODE}, and {RUN}"
            item = replace(item, finding_class=FindingClass.REBOOT_PENDING, cause=_WAITS, remedy=remedy)
            waits = None if boots else f"{driver.runs} is loaded, {driver.to_come} is to come"
    if not bad(item) or item.by_person:
        return Decision((item,))
    action = f"remove {', '.join(unasked)}" if unasked else "make the CDI specification"
    return Decision((item,), (Step(action, (item,), Disruption.nothing, waits, change),))


def _made(
    actual: ContainerToolkit, driver: DriverState, mig: Mig | None, by_unit: bool, change: Specification
) -> tuple[Finding, Specification]:
    """Judge the specification of the loaded driver; return with it the change that makes it."""
    loaded, root = driver.loaded_version or "", driver.root
    desired = f"of driver {loaded}" + (f" below {root}" if driver.is_elsewhere else "")
    target = actual.cdi_output or _REFRESHED if by_unit else OWN_SPECIFICATION
    differs = partial(CDI_SPECIFICATION.compared, desired=desired, good=False)
    if target in actual.of_other_kind:
        return by_hand(differs(f"another kind in {target}"), _OTHER_KIND.format(file=target)), change
    if not actual.cdi and mig is not None and mig.gpus and all(gpu.enabled and gpu.instances == () for gpu in mig.gpus):
        # nvidia-ctk 1.19.1 and 1.20.2 make none of GPUs in MIG mode without instances, and fail.
        return CDI_SPECIFICATION.compared("none, for no GPU has a MIG device", desired, True), change
    if actual.misnumbered:
        return by_hand(differs("; ".join(actual.misnumbered)), _MISNUMBERED), change
    wrong = {item.path: fault for item in actual.cdi if (fault := _fault(actual, item, driver, mig))}
    # Ours next to the toolkit's would only grow old.
    doubled = tuple(item for item in actual.cdi if item.ours and by_unit)
    devices, twice = resolved(actual.cdi)
    if not wrong and not doubled and twice:
        files = ", ".join(sorted({path for paths in twice.values() for path in paths} - {target}))
        return by_hand(differs(f"{_few(sorted(twice))} also in {files}"), _TWICE.format(files=files)), change
    near = [item.path for item in actual.cdi if item.folder == target.rpartition("/")[0]]
    if not wrong and devices is not None and (left_out := _lacking(devices, _expected(actual, mig))):
        shadows = _shadowing((item for item in actual.cdi if item.path not in near), _expected(actual, mig))
        wrong = {path: (_INCOMPLETE, f"{path} without {_few(left_out)}") for path in shadows or near}
    # What another file of the same folder has may not be made a second time.
    elsewhere = target not in near and (by_unit or not near)
    if wrong:
        item = differs("; ".join(shown for _, shown in wrong.values()), cause=next(iter(wrong.values()))[0])
    elif actual.cdi and (doubled or elsewhere):
        where = f"next to {target}" if doubled else "alone"
        files = "; ".join(f"{each.path} {where}" for each in doubled or actual.cdi)
        item = differs(files, cause=_OTHER_FILE)
    elif actual.cdi and by_unit and actual.cdi_refresh != "enabled":
        item = differs(f"{_UNIT} {actual.cdi_refresh}", cause=_NOT_CURRENT)
    else:
        item = CDI_SPECIFICATION.compared(desired if actual.cdi else "none", desired, bool(actual.cdi))
    aside = tuple(dict.fromkeys((*wrong, *(each.path for each in doubled))))
    made = target if bad(item) else None
    return item, replace(change, target=made, version=loaded, own=not by_unit, aside=aside, root=root)


def _fault(
    actual: ContainerToolkit, item: CdiSpecification, driver: DriverState, mig: Mig | None
) -> tuple[str, str] | None:
    """Return why a specification is made again, as a cause and as what there is; None where it is right."""
    if item.unreadable:
        return _UNREADABLE, f"{item.path}: {item.unreadable}"
    if not item.is_below(driver.root):
        return _OTHER_ROOT, f"{item.path} with {item.library}"
    if item.driver_version != driver.loaded_version:
        cause = _CHANGED if item.driver_version else _NO_LIBRARY
        return cause, f"{item.path} of driver {item.driver_version or 'unknown'}"
    if hooks := actual.hooks_lacking(item):
        return _NEWER_TOOLKIT.format(version=actual.version), f"{item.path} with {', '.join(hooks)}"
    # The driver's part of a run brings back nvidia_uvm and its device nodes.
    has_uvm = driver.uvm_loaded and not driver.uvm_without_device
    if lost := [each for each in item.lost if has_uvm or not each.startswith("/dev/nvidia-uvm")]:
        return _LOST, f"{item.path} with {_few(lost)}"
    if strange := item.strange(_uuids(mig)):
        return _REMOVED, f"{item.path} with {_few(strange)}"
    return None


def _few(names: Sequence[str]) -> str:
    return "; ".join([*names[:4], *([f"{len(names) - 4} more"] if len(names) > 4 else [])])


def judge_readers(actual: ContainerToolkit, readers: Mapping[str, str | None]) -> Iterator[Finding]:
    """Yield the specifications that are too new for a program of the node (`readers`: program -> its version)."""
    for item, (program, version) in product(actual.cdi, readers.items()):
        newest = _newest_read(program, version) if version is not None else None
        if newest is not None and item.version and not versions.at_least(newest, item.version):
            sides = f"CDI {item.version}", f"CDI {newest}, which {program} {version} reads, or older"
            found = CDI_SPECIFICATION.compared(*sides, False, of=item.path)
            yield by_hand(found, _TOO_NEW.format(program=program, file=item.path))


def _newest_read(program: str, version: str) -> str | None:
    """Return the newest CDI that a program reads; None where that is not known."""
    rows = tables.toolkit().cdi_readers.get(program, {})
    known = [each for each in rows if versions.in_branch(each, versions.major_minor(version))]
    reached = (each for each in sorted(known, key=versions.parsed) if versions.at_least(each, version))
    return rows.get(next(reached, ""))


def _lacking(devices: Devices, expected: Devices) -> list[str]:
    """Return the GPUs and MIG devices that no device consists of, or that `all` lacks."""
    every = devices.get("all")
    return [
        name
        for name, nodes in expected.items()
        if not any(nodes <= each for each in devices.values()) or (every is not None and not nodes <= every)
    ]


def _shadowing(specifications: Iterable[CdiSpecification], expected: Devices) -> list[str]:
    """Return the files whose device `all` lacks a GPU or MIG device, and replaces the one of an earlier folder."""
    every = ((item.path, dict(item.devices or ()).get("all")) for item in specifications if not item.unreadable)
    return [path for path, nodes in every if nodes is not None and _lacking({"all": frozenset(nodes)}, expected)]


def _expected(actual: ContainerToolkit, mig: Mig | None) -> Devices:
    """Return the GPUs and MIG devices of the node with their device nodes, as far as they are known.

    A GPU in MIG mode is no device of its own: nvidia-ctk leaves it out from 1.18 on.
    """
    minors, capabilities = dict(actual.minors), dict(actual.capabilities)
    found: dict[str, frozenset[str]] = {}
    for gpu in mig.gpus if mig is not None and mig.status == "ok" else ():
        minor = minors.get(gpu.uuid)
        if minor is None:
            continue
        if gpu.current != ENABLED:
            found[f"GPU {gpu.index}"] = frozenset({f"/dev/nvidia{minor}"})
            continue
        for instance in gpu.instances or ():
            place = f"gpu{minor}/mig/gi{instance.id}"
            for compute in instance.compute:
                numbers = capabilities.get(place), capabilities.get(f"{place}/ci{compute.id}")
                if None not in numbers:
                    caps = (f"/dev/nvidia-caps/nvidia-cap{each}" for each in numbers)
                    name = f"the MIG device {gpu.index}/{instance.id}/{compute.id}"
                    found[name] = frozenset({f"/dev/nvidia{minor}", *caps})
    return found


def _uuids(mig: Mig | None) -> Iterator[str]:
    """Yield the UUIDs of GPUs and MIG devices; of one of the two kinds none where one of them is not known."""
    if mig is None or mig.status != "ok":
        return
    yield from (gpu.uuid for gpu in mig.gpus)
    enabled = [gpu for gpu in mig.gpus if gpu.current == ENABLED]
    devices = [each.uuid for gpu in enabled for instance in gpu.instances or () for each in instance.compute]
    if all(gpu.instances is not None for gpu in enabled) and None not in devices:
        yield from filter(None, devices)
