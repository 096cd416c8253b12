"""What is to be done about a release: install, upgrade, nothing, or first recover what another helm left behind.

A step's change holds all commands of helm, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from gpunode.base.comparison import RESTART, by_hand
from gpunode.base.decision import Decision, Step
from gpunode.base.disruption import Disruption
from gpunode.base.folding import in_one_line
from gpunode.base.messages import Scope
from gpunode.kubernetes.helm.manifest import Difference, Identity, Object, Place, differences, drifted, objects
from gpunode.kubernetes.helm.release import Release, Revision, Status
from gpunode.kubernetes.nodes.component import cluster_finding

_FEW = 5


class Act(StrEnum):
    """The commands of helm that change a release."""

    INSTALL = "install"
    UPGRADE = "upgrade"
    ROLLBACK = "rollback"
    UNINSTALL = "uninstall"


@dataclass(frozen=True)
class HelmAction:
    """One command of helm, and the reason for it; `revision`: the one to roll back to."""

    act: Act
    reason: str
    revision: int | None = None


@dataclass(frozen=True)
class DesiredRelease:
    """The desired release: chart's name and version, namespace, and the manifest that its values render to.

    `subcharts`: names and aliases of the charts that it brings along.
    `varies`: places whose content the chart makes anew with each rendering (a certificate, a hash with its salt): a
    difference there says nothing. `other_values`: the release has other ones than are desired, which may show there.
    `takes_over`: one that bears no mark of gpunode's is changed, too; `component` is whose setting says so.
    """

    chart: str
    version: str
    namespace: str
    manifest: str
    takes_over: bool = False
    component: str = "device_plugin"
    subcharts: tuple[str, ...] = ()
    varies: frozenset[Place] = frozenset()
    other_values: bool = False

    def lasting(self, found: tuple[Difference, ...]) -> tuple[Difference, ...]:
        """Return the differences that another rendering has, too."""
        return tuple(each for each in found if each.place not in self.varies)


@dataclass(frozen=True)
class ReleaseChange:
    """Hold what is to be done, in order (nothing: all is as desired), or why no more may be done (`refused`).

    `by_hand` says that the differences are of the cluster's objects from the release's own manifest, `stays` names the
    DaemonSets whose pods stay as they are until somebody ends them (OnDelete), and `stays_behind` those of the revision
    that is gone back to.
    """

    steps: tuple[HelmAction, ...] = ()
    differences: tuple[Difference, ...] = ()
    refused: str | None = None
    by_hand: bool = False
    stays: frozenset[Identity] = frozenset()
    stays_behind: frozenset[Identity] = frozenset()


@dataclass(frozen=True)
class ActualRelease:
    """The actual release; its manifests, as `helm get manifest` prints them, may hold secrets, and are in no text form.

    release: its revisions; None: there is none
    good: the manifest of `release.good`
    undone: the manifest of `release.undone`, which failed, and was rolled back
    live: the objects that the API server has of those that `good` names; None: nobody looked
    """

    release: Release | None
    good: str | None = field(default=None, repr=False)
    undone: str | None = field(default=None, repr=False)
    live: Mapping[Identity, Object] | None = None


def change(desired: DesiredRelease, reading: ActualRelease, now: datetime, timeout: int) -> ReleaseChange:
    """Return what brings a release to what is wanted; raise ParseError where a manifest cannot be read.

    `timeout` is how long, in seconds, helm may be at work: a pending release that is older was left behind.
    """
    release = reading.release
    if release is None:
        return ReleaseChange((HelmAction(Act.INSTALL, "there is no such release"),))
    latest = release.latest
    if refused := _refused(desired, latest, now, timeout):
        return ReleaseChange(refused=refused)
    recovery = _recovery(release)
    if recovery is not None and recovery.act is Act.UNINSTALL:
        return ReleaseChange((recovery, HelmAction(Act.INSTALL, "there is none after that")))
    good = release.good
    if good is None or reading.good is None:
        return ReleaseChange(refused="what the release consists of was not read: run it again")
    target = objects(desired.manifest, desired.namespace)
    actual = objects(reading.good, desired.namespace)
    found = desired.lasting(differences(target, actual))
    reason = _few(found)
    if not reason and desired.other_values:
        reason = "other values, of which the chart makes something else with each rendering"
    if not reason and good.chart_version != desired.version:
        reason = f"chart {good.chart_version}, desired {desired.version}"
    by_hand = False
    if not reason and reading.live is not None and (found := drifted(actual, reading.live)):
        reason, by_hand = f"changed by hand: {_few(found)}", True
    steps = () if recovery is None else (recovery,)
    behind = _on_delete(actual) if steps else frozenset()
    why = reason or (recovery.reason if recovery is not None else "")
    if why and not (desired.takes_over or release.is_gpunode_s):
        return ReleaseChange((), found, _somebody_s(desired, why))
    if not reason:
        return ReleaseChange(steps, stays_behind=behind)
    if given_up := _given_up(release, reading.undone, target, desired):
        return ReleaseChange(steps, found, given_up, stays_behind=behind)
    stays, every = _on_delete(target), (*steps, HelmAction(Act.UPGRADE, reason))
    return ReleaseChange(every, found, by_hand=by_hand, stays=stays, stays_behind=behind)


def _on_delete(target: Mapping[Identity, Object]) -> frozenset[Identity]:
    def stays(content: Any) -> bool:
        strategy = (content.get("spec") or {}).get("updateStrategy")
        return isinstance(strategy, Mapping) and strategy.get("type") == "OnDelete"

    return frozenset(each for each, found in target.items() if each.kind == "DaemonSet" and stays(found.content))


def removal(release: Release | None, chart: str, now: datetime, timeout: int) -> ReleaseChange:
    """Return what takes a release away, where it is of that chart."""
    if release is None:
        return ReleaseChange()
    if release.latest.chart_name != chart:
        return ReleaseChange(refused=_other_chart(release.latest, chart))
    if busy := _busy(release.latest, now, timeout):
        return ReleaseChange(refused=busy)
    return ReleaseChange((HelmAction(Act.UNINSTALL, "it is not asked for"),))


def _refused(desired: DesiredRelease, latest: Revision, now: datetime, timeout: int) -> str | None:
    if latest.chart_name != desired.chart:
        return _other_chart(latest, desired.chart)
    if latest.status is Status.UNKNOWN:
        return "helm tells of a status that gpunode does not know; look at `helm history`"
    return _busy(latest, now, timeout)


def _other_chart(latest: Revision, chart: str) -> str:
    return (
        f"the release is of chart {latest.chart_name}, not {chart}: it is somebody else's; give ours another name "
        "(the setting `release`), or uninstall it"
    )


def _somebody_s(desired: DesiredRelease, reason: str) -> str:
    return (
        "the release is somebody else's: no revision of it says that gpunode applied it, and no node of the cluster is "
        f"labelled by gpunode for it. It would be changed ({reason}): set {desired.component}.take_over = True to have "
        f"it changed, {desired.component}.release to another name, or kubernetes.context to the cluster that is meant"
    )


def _busy(latest: Revision, now: datetime, timeout: int) -> str | None:
    """Return who is at work; None where nobody is, or has been for too long."""
    if not latest.status.is_under_way:
        return None
    if latest.updated is None:
        return f"the release is {latest.status}, and helm does not say since when; recover it by hand"
    age = now - latest.updated
    # A clock that is behind makes a helm of the future, which is at work no less.
    if age <= timedelta(seconds=timeout):
        return (
            f"the release is {latest.status} since {latest.updated.isoformat(timespec='seconds')}: another helm may be "
            f"at work; it is recovered when that is {timeout} s ago (kubernetes.timeout)"
        )
    return None


def _recovery(release: Release) -> HelmAction | None:
    """Return what must come first; None where helm can upgrade at once."""
    latest, good = release.latest, release.good
    if latest.status in (Status.UNINSTALLED, Status.UNINSTALLING):
        return HelmAction(Act.UNINSTALL, f"the release is {latest.status}, and its history is in the way")
    if good is None:
        # A first installation that failed or was cut off: there is nothing to go back to.
        return HelmAction(Act.UNINSTALL, f"its first installation is {latest.status}{_words(latest)}")
    if latest.status.is_under_way:
        return HelmAction(Act.ROLLBACK, f"the release is {latest.status}, and nobody is at work", good.number)
    if good.status is Status.SUPERSEDED:
        return HelmAction(Act.ROLLBACK, f"the release is {latest.status}, and no revision is deployed", good.number)
    return None


def _given_up(
    release: Release, stored: str | None, target: Mapping[Identity, Object], desired: DesiredRelease
) -> str | None:
    """Return why an upgrade is not tried again: the same failed, and was rolled back."""
    undone = release.undone
    if undone is None or stored is None:
        return None
    if desired.lasting(differences(target, objects(stored, desired.namespace))):
        return None
    return (
        f"revision {undone.number} with the same content failed and was rolled back{_words(undone)}; it is tried again "
        "when the settings change"
    )


def _words(revision: Revision) -> str:
    text = in_one_line(revision.description)
    return f" ({text})" if text else ""


def _few(found: tuple[Difference, ...]) -> str:
    more = f"; and {len(found) - _FEW} more" if len(found) > _FEW else ""
    return "; ".join(map(str, found[:_FEW])) + more


RELEASE = cluster_finding(
    "helm release",
    "A helm release is not what the settings ask for.",
    "Its chart, values or objects differ from what a run would install, or it is missing.",
    scope=Scope.CLUSTER,
    classes=RESTART,
)


def decide(
    name: str, desired: DesiredRelease, actual: ActualRelease, now: datetime, timeout: int
) -> Decision[ReleaseChange]:
    """Return what is to be done about a release; raise ParseError where a manifest cannot be read.

    name: NAMESPACE/NAME; timeout: how long, in seconds, helm may be at work
    """
    return _decision(name, f"{desired.chart} {desired.version}", change(desired, actual, now, timeout))


def decide_absence(
    name: str, chart: str, actual: Release | None, now: datetime, timeout: int
) -> Decision[ReleaseChange]:
    """Return what is to be done about a release that no node needs any more; one of another chart is somebody else's.

    The other arguments are those of `decide`.
    """
    return _decision(name, "none", removal(actual, chart, now, timeout))


def _decision(name: str, desired: str, found: ReleaseChange) -> Decision[ReleaseChange]:
    reason = found.refused or "; ".join(f"{step.act}: {step.reason}" for step in found.steps)
    actual = "another" if reason else desired
    item = RELEASE.compared(actual, desired, not reason, of=name, cause=reason)
    if found.refused is not None:
        item = by_hand(item, found.refused)
    if not found.steps:
        return Decision((item,), (), found.refused)
    # A recovery is carried out also where no run does what would have to come behind it.
    settles = () if found.refused is not None else (item,)
    action = f"{', then '.join(step.act for step in found.steps)} the release {name}"
    return Decision((item,), (Step(action, settles, Disruption.nothing, change=found),), found.refused)
