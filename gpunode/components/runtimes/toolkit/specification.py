"""What is to be done about CDI specifications: which there are, of which driver, and the change that makes one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gpunode.base.comparison import REBOOT, REBOOT_NODE, RUN, by_hand, finding_message
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.driver.state import DriverState
from gpunode.components.runtimes.toolkit.state import CdiSpecification, ContainerToolkit
from gpunode.system.service import is_masked, unmask

OWN_SPECIFICATION = "/etc/cdi/nvidia.yaml"
CDI_MARK = "# Written by gpunode with nvidia-ctk; changes are overwritten. toolkit.cdi = 'off' removes this file."


# Where the toolkit's own service writes, which is empty again after a boot.
REFRESHED_SPECIFICATION = "/var/run/cdi/nvidia.yaml"
_UNIT = "nvidia-cdi-refresh.path"

_DRAFT = "a run was cut off; runtimes that read a draft find each device twice, and hand in none"
_NOT_DESIRED = "gpunode made it, and toolkit.cdi is off"
_CHANGED = "the driver was changed after it was made"
_OTHER_ROOT = "it has the driver's libraries from another root"
_NEWER_TOOLKIT = "a newer toolkit made it: {version} lacks these hooks, and containers may not start"
_OTHER_FILE, _NOT_CURRENT = "what keeps it current writes another file", "nothing keeps it current"
_WAITS = "another driver is on disk than loaded"
CDI_SPECIFICATION = finding_message(
    "toolkit",
    "CDI specification",
    "The CDI specification of the node's GPUs is not right.",
    "Runtimes read from this file which devices and libraries a GPU consists of. It is missing, older than the "
    "driver, left over, a draft, or nothing keeps it current: containers do not start, or get a GPU that is not "
    "there.",
    causes=(_DRAFT, _NOT_DESIRED, _CHANGED, _OTHER_ROOT, _NEWER_TOOLKIT, _OTHER_FILE, _NOT_CURRENT, _WAITS),
    classes=REBOOT,
)


@dataclass(frozen=True)
class Specification:
    """Hold what becomes of CDI specifications.

    going: paths that are removed; target: which one is made, None for none; version: of the driver that it is of
    root: where that driver's files stand
    own: whether gpunode makes it, and not the toolkit's own unit; aside: paths of those that may not stay beside it
    """

    going: tuple[str, ...]
    target: str | None = None
    version: str = ""
    own: bool = True
    aside: tuple[str, ...] = ()
    root: str = "/"


def decide_specification(
    generate: bool, actual: ContainerToolkit, driver: DriverState, boots: bool = False
) -> Decision[Any]:
    """Return what is to be done about CDI specifications, by which their operation goes.

    boots: whether the node boots into the driver on its disk first
    """
    unasked = () if generate else tuple(item.path for item in actual.cdi if item.ours)
    going, loaded = (*actual.cdi_drafts, *unasked), driver.loaded_version
    change = Specification(going)
    made = None
    by_unit = actual.cdi_refresh is not None and not driver.is_elsewhere
    if generate and loaded is not None:
        made, change = _made(actual, driver, loaded, going)
    if actual.cdi_drafts:
        found = f"{', '.join(actual.cdi_drafts)} beside it"
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
    if driver.reboot_pending and made is not None and bad(made):
        # Drafts go all the same.
        change = replace(change, target=None)
        if item is made:
            remedy = RUN if boots else f"{REBOOT_NODE}, and {RUN}"
            item = replace(item, finding_class=FindingClass.REBOOT_PENDING, cause=_WAITS, remedy=remedy)
            waits = None if boots else f"{driver.runs} is loaded, {driver.to_come} is to come"
    if not bad(item):
        return Decision((item,))
    action = f"remove {', '.join(unasked)}" if unasked else "make the CDI specification anew"
    return Decision((item,), (Step(action, (item,), Disruption.nothing, waits, change),))


def _made(
    actual: ContainerToolkit, driver: DriverState, loaded: str, going: tuple[str, ...]
) -> tuple[Finding, Specification]:
    """Judge the specification of the loaded driver; return with it the change that makes it.

    The toolkit's own unit starts only where nvidia-smi is in the node's /usr/bin or /usr/sbin, as
    deployments/systemd/nvidia-cdi-refresh.service of NVIDIA/nvidia-container-toolkit says: else gpunode makes it.
    """
    stale, by_unit = actual.stale_cdi(loaded, driver.root), actual.cdi_refresh is not None and not driver.is_elsewhere
    desired = f"of driver {loaded}" + (f" below {driver.root}" if driver.is_elsewhere else "")
    target = actual.cdi_output or REFRESHED_SPECIFICATION if by_unit else OWN_SPECIFICATION
    # Ours beside the toolkit's would only grow old.
    doubled = tuple(item for item in actual.cdi if item.ours and by_unit)
    elsewhere = all(item.path != target for item in actual.cdi)
    off = by_unit and actual.cdi_refresh != "enabled"
    if stale:
        found = "; ".join(_stale(actual, item, loaded, driver.root) for item in stale)
        cause = _CHANGED
        if not all(item.is_below(driver.root) for item in stale):
            cause = _OTHER_ROOT
        elif all(item.driver_version == loaded for item in stale):
            cause = _NEWER_TOOLKIT.format(version=actual.version)
        item = CDI_SPECIFICATION.compared(found, desired, False, cause=cause)
    elif actual.cdi and (doubled or elsewhere or off):
        where = f"beside {target}" if doubled else "alone"
        shown = "; ".join(f"{item.path} {where}" for item in doubled or actual.cdi)
        found = shown if doubled or elsewhere else f"{_UNIT} {actual.cdi_refresh}"
        why = _OTHER_FILE if doubled or elsewhere else _NOT_CURRENT
        item = CDI_SPECIFICATION.compared(found, desired, False, cause=why)
    else:
        item = CDI_SPECIFICATION.compared(desired if actual.cdi else "none", desired, bool(actual.cdi))
    aside = tuple(dict.fromkeys(each.path for each in (*stale, *doubled)))
    return item, Specification(going, target if bad(item) else None, loaded, not by_unit, aside, driver.root)


def _stale(actual: ContainerToolkit, item: CdiSpecification, loaded: str, root: str) -> str:
    if not item.is_below(root):
        return f"{item.path} with {item.library}"
    if item.driver_version == loaded:
        return f"{item.path} with {', '.join(actual.hooks_lacking(item))}"
    return f"{item.path} of driver {item.driver_version or 'unknown'}"
