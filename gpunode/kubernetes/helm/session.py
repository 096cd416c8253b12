"""A release read, and changed, by whatever runs helm's commands: this machine or a control-plane host."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

from gpunode.base.decision import Decision
from gpunode.base.reading import ParseError
from gpunode.base.structured_text import TextError, load_json, load_yaml
from gpunode.kubernetes.helm.change import (
    Act,
    ActualRelease,
    DesiredRelease,
    HelmAction,
    ReleaseChange,
    decide,
    decide_absence,
)
from gpunode.kubernetes.helm.commands import Command, Commands, HelmError, explained, helm_of, version_command
from gpunode.kubernetes.helm.manifest import Place, differences, live_objects, objects
from gpunode.kubernetes.helm.release import Revision, parse_history, parse_list
from gpunode.kubernetes.nodes.component import newer
from gpunode.kubernetes.nodes.labels import with_entries_in_use
from gpunode.settings.chart import ReleaseSettings, known
from gpunode.settings.kubernetes import KubernetesSettings
from gpunode.settings.problems import nearest
from gpunode.settings.repositories import ProxySettings

# What Kubernetes gives a shape, or people names of their own: a chart's default is an example of it.
_FREE = frozenset(
    (
        "affinity",
        "annotations",
        "config",
        "labels",
        "limits",
        "matchLabels",
        "nodeAffinity",
        "nodeSelector",
        "podAnnotations",
        "podLabels",
        "podSecurityContext",
        "requests",
        "resources",
        "rollingUpdate",
        "securityContext",
        "updateStrategy",
    )
)
# Every chart and subchart gets it.
_GLOBAL = "global"


def unknown_values(
    values: Mapping[str, Any], chart: str, subcharts: Collection[str], unlisted: Collection[str] = ()
) -> tuple[str, ...]:
    """Return a sentence for each of the values that the chart's own have not; raise ParseError.

    Templates may read others: that is no error, and people are told.

    + values: a person's own
    + chart: the text of the chart's values, in which a commented name counts as one that it has
    + subcharts: names and aliases of the charts that it brings, whose values are their own
    + unlisted: patterns of dotted values that its templates read all the same
    """
    try:
        own = load_yaml(chart)
    except TextError:
        raise ParseError("helm tells no values of the chart") from None
    if not isinstance(own, dict):
        return ()
    commented = frozenset(re.findall(r"^\s*#\s*([A-Za-z][A-Za-z0-9_]*):", chart, re.MULTILINE))
    told = {name: value for name, value in values.items() if name not in {_GLOBAL, *subcharts}}
    found = _unknown(told, own, ())
    return tuple(
        sentence
        for name, sentence in found
        if name[-1] not in commented and not any(fnmatchcase(".".join(name), each) for each in unlisted)
    )


_Path = tuple[str, ...]


def _unknown(values: Mapping[str, Any], own: Mapping[str, Any], path: _Path) -> Iterator[tuple[_Path, str]]:
    for name, value in values.items():
        below, here = own.get(name), (*path, name)
        if name not in own:
            near = nearest(name, map(str, own))
            hint = f"; did you mean {'.'.join((*path, near))!r}?" if near else ""
            yield here, f"{'.'.join(here)[:200]!r} is none of the chart's own values{hint}"
        elif name not in _FREE and isinstance(value, Mapping) and isinstance(below, Mapping) and below:
            yield from _unknown(value, below, here)


# What a vendor appends (v1.31.4-gke.100, v1.30.2+k3s1) is none of a chart's concern.
_VERSION = re.compile(r"v(\d{1,2}\.\d{1,3}\.\d{1,3})", re.ASCII)


@dataclass(frozen=True)
class Output:
    """Hold what a command left: exit status, standard output (which may hold secrets), standard error."""

    status: int
    out: str
    err: str


Run = Callable[[Command], Output]


@dataclass(frozen=True)
class Session:
    """Read and change one release."""

    commands: Commands
    run: Run

    @classmethod
    def begun(cls, kubernetes: KubernetesSettings, desired: ReleaseSettings, proxy: ProxySettings, run: Run) -> Session:
        """Return a session with the helm that there is; raise HelmError or ParseError where it is of no use."""
        printed = run(Command(version_command(kubernetes.helm), proxy.environment, 60))
        if printed.status != 0:
            raise HelmError(
                f"{kubernetes.helm} does not run on {kubernetes.run_on}: install helm there, or name its path by "
                "kubernetes.helm"
            )
        return cls(Commands(helm_of(kubernetes.helm, printed.out), kubernetes, desired, proxy), run)

    @property
    def name(self) -> str:
        """Return the release's namespace and name."""
        return f"{self.commands.asked.namespace}/{self.commands.asked.release}"

    def decide(
        self, values: Mapping[str, Any], in_use: Collection[str], now: datetime, is_known: bool = False
    ) -> tuple[DesiredRelease, Mapping[str, Any], Decision[ReleaseChange]]:
        """Return what the release is to be, by which values, and what is to be done; raise HelmError or ParseError.

        `in_use`: configurations that nodes are labelled for; those that the release has stay beside the values' own.
        `is_known`: nodes say that the release is gpunode's, whatever its revisions say.
        """
        reading = self.reading()
        if in_use:
            values = with_entries_in_use(values, reading.good or "", in_use)
        cluster, timeout = self.cluster(), self.commands.kubernetes.timeout
        desired = self.desired(values, *cluster)
        if is_known:
            desired = replace(desired, takes_over=True)
        decision = decide(self.name, desired, reading, now, timeout)
        if _differs(decision) and (varies := self._varies(desired, values, cluster)):
            desired = replace(desired, varies=varies, other_values=self._has_other_values(reading, values))
            decision = decide(self.name, desired, reading, now, timeout)
        notes = newer(helm=self.commands.helm.version, kubernetes=cluster[0])
        return desired, values, replace(decision, findings=(*decision.findings, *notes))

    def _varies(
        self, desired: DesiredRelease, values: Mapping[str, Any], cluster: tuple[str, tuple[str, ...]]
    ) -> frozenset[Place]:
        """Return where the chart makes something else of the same values each time, as genCA and htpasswd do."""
        again = self._told("helm template", self.commands.template(values, *cluster))
        first = objects(desired.manifest, desired.namespace)
        return frozenset(each.place for each in differences(first, objects(again, desired.namespace)))

    def _has_other_values(self, reading: ActualRelease, values: Mapping[str, Any]) -> bool:
        if reading.release is None or (good := reading.release.good) is None:
            return False
        answer = self._told("helm get values", self.commands.values(good.number))
        try:
            # As helm was given them.
            return bool((load_json(answer) or {}) != json.loads(json.dumps(values)))
        except TextError as error:
            raise ParseError(f"helm's answer cannot be read as JSON{error.unquoted}") from None

    def decide_absence(self, chart: str, now: datetime) -> Decision[ReleaseChange]:
        """Return what takes the release away where it is of that chart; raise HelmError or ParseError."""
        return decide_absence(self.name, chart, self.reading().release, now, self.commands.kubernetes.timeout)

    def decide_absence_of_ours(self, now: datetime) -> Decision[ReleaseChange]:
        """Return what takes the release away where gpunode applied it, of whatever chart; raise as `decide_absence`."""
        found, timeout = self.reading().release, self.commands.kubernetes.timeout
        if found is None or not found.is_gpunode_s:
            return Decision(())
        return decide_absence(self.name, found.latest.chart_name, found, now, timeout)

    def reading(self) -> ActualRelease:
        """Return what the release is; raise HelmError or ParseError. Nothing is changed."""
        desired = self.commands.asked
        listed = self._told("helm list", self.commands.listing())
        if parse_list(listed, desired.release, desired.namespace) is None:
            return ActualRelease(None)
        release = parse_history(self._told("helm history", self.commands.history()))
        good = self._stored(release.good)
        live = None
        if good is not None and objects(good, desired.namespace):
            live = live_objects(self._told("kubectl get", self.commands.live(good)), desired.namespace)
        return ActualRelease(release, good, self._stored(release.undone), live)

    def cluster(self) -> tuple[str, tuple[str, ...]]:
        """Return the cluster's version, such as 1.31.4, and its APIs; raise HelmError or ParseError.

        Raise HelmError, too, where it is not the version that the settings were judged by.
        """
        answer = self._told("kubectl version", self.commands.cluster_version())
        try:
            printed = str(load_json(answer)["serverVersion"]["gitVersion"])
        except (ValueError, KeyError, TypeError):
            raise ParseError("kubectl tells no version of the cluster") from None
        match = _VERSION.match(printed)
        if match is None:
            raise ParseError(f"no version of Kubernetes: {printed[:40]!r}")
        desired = self.commands.kubernetes.version
        if desired is not None and not f"{match[1]}.".startswith(f"{desired}."):
            raise HelmError(
                f"the cluster's Kubernetes is {match[1]}, and the settings were judged by kubernetes.version {desired}"
                ": set the version that it is, or leave it out"
            )
        apis = self._told("kubectl api-versions", self.commands.api_versions()).split()
        return match[1], tuple(apis)

    def desired(self, values: Mapping[str, Any], kubernetes: str, apis: Sequence[str]) -> DesiredRelease:
        """Return what the values make of the chart, for a cluster of that version and with these APIs.

        Raise HelmError where the chart is of another version than the settings have, which were judged by theirs.
        """
        desired = self.commands.asked
        answer = self._told("helm show chart", self.commands.chart())
        try:
            chart = load_yaml(answer)
            name, version = str(chart["name"]), str(chart["version"])
            subcharts = tuple(
                str(each[key]) for each in chart.get("dependencies") or [] for key in ("name", "alias") if each.get(key)
            )
        except (TextError, KeyError, TypeError, AttributeError):
            raise ParseError("helm tells no name and version of the chart") from None
        if version != desired.version:
            raise HelmError(
                f"{desired.chart} is version {version}, and {desired.component}.version is "
                f"{desired.version}: set that, or put the other chart there"
            )
        manifest = self._told("helm template", self.commands.template(values, kubernetes, apis))
        return DesiredRelease(
            name, version, desired.namespace, manifest, desired.take_over, desired.component, subcharts
        )

    def unknown_values(self, desired: DesiredRelease) -> tuple[str, ...]:
        """Return a sentence for each value of a person's that the chart has not; raise HelmError or ParseError."""
        values = self.commands.asked.values
        if not values:
            return ()
        text = self._told("helm show values", self.commands.own_values())
        return unknown_values(values, text, desired.subcharts, known().unlisted_values.get(desired.chart, ()))

    def carry_out(self, found: ReleaseChange, values: Mapping[str, Any]) -> None:
        """Do what is to be done, in order, up to the first that fails; raise HelmError with its cause and remedy.

        Raise it, too, for what may not be done; a recovery that comes before that is done all the same.
        """
        for step in found.steps:
            self._told(f"helm {step.act}", self._command(step, values, found.by_hand))
        if found.refused is not None:
            raise HelmError(found.refused)

    def _command(self, step: HelmAction, values: Mapping[str, Any], by_hand: bool) -> Command:
        if step.act is Act.ROLLBACK:
            if step.revision is None:
                raise HelmError("a rollback to no revision")
            return self.commands.rollback(step.revision, values)
        if step.act is Act.UNINSTALL:
            return self.commands.uninstall()
        return self.commands.upgrade(values, by_hand)

    def _stored(self, revision: Revision | None) -> str | None:
        # Never by `helm status`: helm 4 looks up every object then, and fails where the cluster no longer knows an API.
        if revision is None:
            return None
        return self._told("helm get manifest", self.commands.manifest(revision.number))

    def _told(self, what: str, command: Command) -> str:
        output = self.run(command)
        if output.status != 0:
            raise HelmError(explained(what, output.err, self.commands.asked.component))
        return output.out


def _differs(decision: Decision[ReleaseChange]) -> bool:
    changes = (step.change for step in decision.steps)
    return any(each is not None and each.differences and not each.by_hand for each in changes)
