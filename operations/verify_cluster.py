"""The verdict on the cluster at the end of a run: does it offer what the nodes' settings promise?

Every node waits for itself; the cluster is read for all of them at once, every few seconds at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic, sleep
from typing import Any

from gevent.lock import BoundedSemaphore  # type: ignore[import-untyped]
from pyinfra import host
from pyinfra.context import ctx_host

from gpunode.base.comparison import by_scope
from gpunode.base.findings import Finding, FindingClass, totals
from gpunode.base.folding import in_one_line
from gpunode.base.messages import Scope
from gpunode.base.reading import ParseError, Unknown
from gpunode.base.run_context import Slot
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.state import Mig
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.gpu import MigBoot as MigBootFact
from gpunode.facts.gpu import PluginMps as PluginMpsFact
from gpunode.fleet import run_end
from gpunode.kubernetes.components import unreached
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.promise import TAKEN, judge_taken, mig_state
from gpunode.kubernetes.device_plugin.verdict import (
    comes_by_itself,
    daemon_sets_of,
    judge_extender,
    judge_node,
    own_daemon_set,
    resource_to_ask_for,
    resources_to_ask_for,
)
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.gpu_operator import MIG_MANAGER, SELECTOR, parse_pods
from gpunode.operations.control_plane import cluster_for
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.mps_clients import what_waits
from gpunode.operations.phase import is_executing
from gpunode.operations.vectors import Vectors
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART, node_name
from gpunode.system.gpu import Gpus
from gpunode.system.pci import PciGpu

# Seconds: between two readings of the cluster, and between two lines about what is waited for.
_PAUSE, _PROGRESS = 2.0, 30.0


@dataclass
class _Watched:
    """Hold the newest view of the cluster, for all nodes that wait, and why the last question had no answer.

    A cluster that has never answered ends all of it; one that did is asked again, for an API server may start anew.
    """

    lock: Any = field(default_factory=lambda: BoundedSemaphore(1))
    view: View | None = None
    read_at: float = 0.0
    unanswered: str | None = None

    def now(self, cluster: Cluster, namespace: str, with_gpushare: bool, exporter: str | None, since: float) -> View:
        """Return a view that was asked for after `since`, by this host or another; an older one where none was had."""
        with self.lock:
            if self.view is None and self.unanswered is not None:
                raise OperationRefused(self.unanswered)
            if self.view is None or self.read_at < since:
                began = monotonic()
                try:
                    self.view, self.unanswered = cluster.view(namespace, with_gpushare, exporter), None
                except (ClusterError, ParseError) as error:
                    self.unanswered = str(error)
                    if self.view is None:
                        name = cluster.kubernetes.cluster_name
                        run_end.cluster_judged(host.state, name, [unreached(self.unanswered)])
                        raise OperationRefused(self.unanswered) from None
                self.read_at = began
            return self.view


_watched = Slot(_Watched)


@node_operation
def verified(
    settings: Settings,
    gpus: Sequence[PciGpu],
    with_gpushare: bool = False,
    exporter: str | None = None,
    everyone: Mapping[str, Settings] | None = None,
) -> Iterator[Any]:
    """Wait until the cluster offers what the node's settings promise; fail where it does not within kubernetes.timeout.

    A dry run waits for nothing.

    + with_gpushare: whether any host of the inventory has the method `gpushare`
    + exporter: namespace of DCGM's exporter, where any host of the inventory has it by its chart
    + everyone: host -> settings of the whole inventory, by which it is told what waits where no change came before
    """
    if not is_executing():
        host.noop("the cluster is looked at when the run is executed")
        return
    mig = read_fact(MigFact, "MIG")
    named = settings.device_plugin.method == "gpushare" or settings.device_plugin.gfd
    by_smi: Gpus | None = read_fact(GpusFact, "GPUs") if named else None
    boot: MigBoot = MigBoot() if settings.mig.config is None else read_fact(MigBootFact, "MIG at a boot")
    name = node_name(host.name, settings)
    node = _Node(settings, gpus, mig, boot, by_smi, with_gpushare, exporter, name, everyone or {})
    findings, of_cluster = node.waited_for()
    for item in [each for each in findings if each.finding_class is FindingClass.RESTART_PENDING]:
        host.log(str(item))
    run_end.judged(ctx_host.get(), findings)
    if of_cluster:
        run_end.cluster_judged(host.state, settings.kubernetes.cluster_name, of_cluster)
    findings = (*findings, *of_cluster)
    if bad := _wrong(findings):
        by_manager = [item for item in bad if item.code == MIG_MANAGER.code]
        log = node.plugin_log() if any(comes_by_itself(item) and item not in by_manager for item in bad) else []
        log += node.mig_manager_log() if by_manager else []
        raise OperationRefused("\n".join([*map(str, bad), *log]))
    # Whose plugin is none of gpunode's has no GPU by it.
    image = settings.verify.vector_add if settings.device_plugin.method != "none" else None
    # Before pods of its own take some of it.
    taken = node.taken() if settings.device_plugin.method != "none" else ""
    tested = node.vectors_added(image) if image is not None else ""
    if image is not None and settings.verify.vector_add_pods > 1:
        # Who asks for several wants to read of them.
        host.log(f"{node.name}{tested}")
    host.noop(f"{totals(findings)} in the cluster{taken}{tested}")
    yield from ()


@dataclass(frozen=True)
class _Node:
    """Look at one node of the cluster, for as long as the settings allow."""

    settings: Settings
    gpus: Sequence[PciGpu]
    mig: Mig
    boot: MigBoot
    by_smi: Gpus | None
    with_gpushare: bool
    exporter: str | None
    name: str
    everyone: Mapping[str, Settings]
    began: float = field(default_factory=lambda: monotonic())

    @property
    def cluster(self) -> Cluster:
        """Return the node's cluster."""
        return cluster_for(self.settings)

    @property
    def plugin_namespace(self) -> str:
        """Return the namespace of NVIDIA's plugin."""
        return self.settings.device_plugin.namespace

    @property
    def namespace(self) -> str:
        """Return the namespace of the plugin that the node has."""
        by_chart = self.settings.device_plugin.method in BY_CHART
        return self.plugin_namespace if by_chart else own_daemon_set(self.settings)[0]

    @property
    def vectors(self) -> Vectors:
        """Return what adds vectors on the node."""
        return Vectors(self.settings, self.cluster, self.name, self.namespace, self.view, self.plugin_log)

    def view(self) -> View:
        """Return a view that is a few seconds old at most."""
        return _watched.of(host.state).now(
            self.cluster,
            self.plugin_namespace,
            self.with_gpushare,
            self.exporter,
            max(self.began, monotonic() - _PAUSE),
        )

    def waited_for(self) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
        """Return the findings of node and cluster when all is as desired, or nothing more is to be waited for."""
        state = mig_state(self.settings.mig, self.gpus, self.mig)
        said = self.began
        while True:
            view = self.view()
            extender = (judge_extender(view),) if self.settings.device_plugin.method == "gpushare" else ()
            findings = (*self.judged(state, view), *extender)
            bad = _wrong(findings)
            # What it said before does not count for good.
            silent = _watched.of(host.state).unanswered
            if silent is not None and self.is_late():
                raise OperationRefused(silent)
            if silent is None and (not any(map(comes_by_itself, bad)) or self.is_late()):
                parts = by_scope(findings)
                return parts[Scope.NODE], parts[Scope.CLUSTER]
            if monotonic() - said >= _PROGRESS:
                said = monotonic()
                what = silent or f"{bad[0].what} is {bad[0].actual}, {bad[0].desired} is to come"
                host.log(f"waiting for the cluster: {what}")
            sleep(_PAUSE)

    def judged(self, state: str | Unknown | None, view: View) -> tuple[Finding, ...]:
        """Return the findings by a view; the plugin's MPS daemons on the node are asked where all else is well."""
        judged = partial(judge_node, self.settings, self.name, state, self.mig, view, boot=self.boot)
        findings = judged(gpus=self.by_smi)
        if _wrong(findings):
            restart, release = what_waits(self.settings, state, self.cluster, view, self.everyone)
            judged = partial(judged, restart=restart, release=release)
            findings = judged(gpus=self.by_smi)
        if self.settings.sharing.strategy != "mps" or _wrong(findings):
            return findings
        mps = read_fact(PluginMpsFact, "the MPS daemons of the device plugin")
        return judged(gpus=read_fact(GpusFact, "GPUs"), mps=mps)

    def is_late(self) -> bool:
        """Say whether the time is over."""
        return monotonic() - self.began >= self.settings.kubernetes.timeout

    def plugin_log(self) -> list[str]:
        """Return the last lines of the plugin's pods on the node, for people; nothing where there are none."""
        view = self.view()
        sets = daemon_sets_of(self.settings, view)
        pods = [pod.name for each in sets if (pod := view.pod(each, self.name)) is not None]
        return [f"{name} said: {line}" for name in pods for line in self.vectors.log(name).splitlines()]

    def mig_manager_log(self) -> list[str]:
        """Return the last lines of the operator's MIG manager on the node, for people, or why there are none."""
        namespace = self.settings.gpu_operator.namespace
        try:
            where = ("--namespace", namespace, "--selector", SELECTOR, "--field-selector", f"spec.nodeName={self.name}")
            pods = parse_pods(self.cluster.get("pods", "pods", *where))
        except (ClusterError, ParseError) as error:
            return [f"what the MIG manager said is not known: {error}"]
        vectors = replace(self.vectors, namespace=namespace)
        return [f"{name} said: {line}" for name in pods for line in vectors.log(name).splitlines()] or [
            f"no pod of the MIG manager is on {self.name}"
        ]

    def vectors_added(self, image: str) -> str:
        """Add vectors by pods, as many at once as are asked for, and return what is to be said; OperationRefused."""
        node, count = self.view().nodes.get(self.name), self.settings.verify.vector_add_pods
        resources = resources_to_ask_for(self.settings, self.mig, self.by_smi, node)
        resource = resource_to_ask_for(self.settings, self.mig, self.by_smi, node, count)
        return self.vectors.add(image, resources, resource)

    def taken(self) -> str:
        """Return how much of what the node offers is taken, for people; why that is not known."""
        # By the view that the node was judged by: it is for people, and no reason to ask again.
        node = (_watched.of(host.state).view or self.view()).nodes.get(self.name)
        try:
            taken = self.cluster.taken(self.name)
            found = [] if node is None else list(judge_taken(node, taken))
        except (ClusterError, ParseError) as error:
            return f"; what is taken is not known: {in_one_line(error)}"
        said = ", ".join(f"{TAKEN.named(item)} {item.actual}" for item in found)
        return f"; taken: {said}" if said else ""


def _wrong(findings: Sequence[Finding]) -> list[Finding]:
    """Return what is neither as desired nor waits for clients of an MPS daemon, as the settings have it."""
    return [each for each in findings if each.is_negative and each.finding_class is not FindingClass.RESTART_PENDING]
