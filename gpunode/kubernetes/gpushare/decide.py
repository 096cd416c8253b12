"""gpushare's objects in a cluster, and what has a control-plane host's kube-scheduler ask its extender."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import Decision, Step
from gpunode.base.disruption import Disruption
from gpunode.base.probe_output import decoded, repeated, values
from gpunode.base.reading import Reading
from gpunode.kubernetes.gpushare.configuration import Configuration, Extender, SchedulerError, configuration
from gpunode.kubernetes.gpushare.manifest import is_untouched, parse_manifest, patched, unpatched
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.kubernetes.nodes.labels import GPUSHARE
from gpunode.kubernetes.objects.own_objects import from_template, marked
from gpunode.settings.device_plugin import GpushareSettings

NAMESPACE = "kube-system"
EXTENDER, PLUGIN = "gpushare-schd-extender", "gpushare-device-plugin"
# All workloads and pods of gpushare have it, so that one question finds them among the rest of the namespace.
APP = {"app": GPUSHARE}


def gpushare_objects(desired: GpushareSettings, runtime_class: str | None = None) -> list[dict[str, Any]]:
    """Return the objects, in the order in which they are made; `runtime_class` is for the plugin's pods."""
    names = {"namespace": NAMESPACE, "extender": EXTENDER, "plugin": PLUGIN, "app": GPUSHARE}
    settings = desired.model_dump(include={"extender_image", "plugin_image", "memory_unit", "node_port"})
    found = from_template("gpushare.yaml", **names, **settings, runtime_class=runtime_class)
    return [marked(each, "gpushare") for each in found]


@dataclass(frozen=True)
class SchedulerState(Reading):
    """Hold the manifest's text (None: there is none), path -> sha256 of configurations, and the words of processes."""

    manifest: str | None
    configurations: Mapping[str, str]
    processes: tuple[tuple[str, ...], ...]

    def runs_by(self, path: str) -> bool:
        """Say whether a scheduler runs by a configuration file."""
        return any(f"--config={path}" in words for words in self.processes)


@dataclass(frozen=True)
class SchedulerChange:
    """Hold what a control-plane host is to have: the manifest, the configuration it names (None: none), its health."""

    manifest: str
    configuration: Configuration | None
    health: str


def wanted(manifest: str, extender: Extender | None, version: str | None) -> SchedulerChange:
    """Return what a manifest becomes with an extender, or with none of gpunode's; raise SchedulerError.

    + version: of the cluster, for a manifest whose image says none
    """
    clean = unpatched(manifest)
    found = parse_manifest(clean)
    if extender is None:
        return SchedulerChange(clean, None, found.health)
    made = configuration(found.version or version or "", found.options, extender)
    return SchedulerChange(patched(clean, made.path), made, found.health)


def parse_scheduler(lines: list[str]) -> SchedulerState:
    """Parse the lines of facts/cluster.py."""
    files = (line.split(" ", 1) for line in repeated(lines, "configuration"))
    texts = (decoded({"process": each}, "process") or "" for each in repeated(lines, "process"))
    processes = tuple(tuple(text.split("\n")[:-1]) for text in texts)
    return SchedulerState(decoded(values(lines), "manifest"), {path: digest for digest, path in files}, processes)


SCHEDULER = cluster_finding(
    "kube-scheduler",
    "The kube-scheduler of a control-plane host does not use gpushare's extender as desired.",
    "gpushare's pods are placed by memory only where it is used. The manifest or configuration differs.",
)


@dataclass(frozen=True)
class DesiredScheduler:
    """Hold what a scheduler is to ask (None: no extender of gpunode's), where its manifest is, the cluster's version.

    `version` is for a manifest whose image says none.
    """

    extender: Extender | None
    manifest: str
    version: str | None


def decide(desired: DesiredScheduler, actual: SchedulerState) -> Decision[SchedulerChange]:
    """Return what is to be done about the scheduler; a cluster that never had gpushare may have one of any kind."""
    to_be = "asks no extender of gpunode's" if desired.extender is None else "asks the extender"
    good = SCHEDULER.compared(to_be, to_be, True)
    if desired.extender is None and (actual.manifest is None or is_untouched(actual.manifest)):
        return Decision((good,))
    try:
        change = _change(desired, actual.manifest)
    except SchedulerError as error:
        refusal = f"gpushare: {desired.manifest}: {error}"
        item = SCHEDULER.compared("not to be changed by a run", to_be, False, cause=refusal, remedy=BY_HAND)
        return Decision((item,), (), refusal)
    cause = _differs(change, actual)
    if cause is None:
        return Decision((good,))
    item = SCHEDULER.compared("another", to_be, False, cause=cause)
    return Decision((item,), (Step("write its manifest", (item,), Disruption.nothing, change=change),))


def _change(desired: DesiredScheduler, manifest: str | None) -> SchedulerChange:
    if manifest is None:
        raise SchedulerError(
            "it is not there: this is no control-plane host whose scheduler is a static pod; set gpushare.schedulers "
            "or gpushare.manifest, or gpushare.scheduler to 'theirs'"
        )
    return wanted(manifest, desired.extender, desired.version)


def _differs(change: SchedulerChange, actual: SchedulerState) -> str | None:
    """Return in what the host is another; the old one runs on for a moment after the manifest has changed."""
    made = change.configuration
    if change.manifest != actual.manifest:
        return "the manifest says otherwise"
    if made is not None and actual.configurations.get(made.path) != hashlib.sha256(made.text.encode()).hexdigest():
        return f"{made.path} says otherwise"
    # A plain one is told by its manifest alone.
    return f"no scheduler runs by {made.path}" if made is not None and not actual.runs_by(made.path) else None
