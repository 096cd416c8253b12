"""NVIDIA's device plugin in the cluster: RuntimeClass and the nodes' labels; the release is operations/helm.py's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from time import monotonic, sleep
from typing import Any

from pyinfra import host
from pyinfra.api import State

from gpunode.base.decision import Decision, bad
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.reading import Unknown
from gpunode.base.run_context import Slot
from gpunode.components.mig.state import Mig as MigState
from gpunode.facts.gpu import Mig
from gpunode.facts.gpu import MigBoot as MigBootFact
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.config_file import ignored_fields
from gpunode.kubernetes.device_plugin.decide_labels import decide_labels, desired_labels
from gpunode.kubernetes.device_plugin.decide_pods import decide_current, decide_registered
from gpunode.kubernetes.device_plugin.decide_restart import decide_label, label_restarts, with_daemon
from gpunode.kubernetes.device_plugin.desired_cluster import DesiredCluster
from gpunode.kubernetes.device_plugin.own_config import chosen_entry, decide_own_config
from gpunode.kubernetes.device_plugin.promise import mig_state
from gpunode.kubernetes.device_plugin.verdict import daemon_sets_of, resources_of
from gpunode.kubernetes.device_plugin.view import View
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.extended_resources import UNBACKED
from gpunode.kubernetes.nodes.labels import LabelChange
from gpunode.kubernetes.objects.runtime_class import NAME
from gpunode.operations.cluster_labels import are_labels_changed, labelled, labels_changed
from gpunode.operations.control_plane import answered, asked, cluster_for, decided, runner, told
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.mps_clients import drained, may_restart, release_waits, restart_of
from gpunode.operations.node_by_node import Change, begun_anew, was_cut_off
from gpunode.operations.phase import is_executing
from gpunode.operations.shared_once import once_per_run
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART, node_name
from gpunode.settings.repositories import ProxySettings
from gpunode.system.pci import PciGpu

# Seconds: between two looks at the cluster, and how long a plugin that began has to register with the kubelet.
_PAUSE, _REGISTERS = 2.0, 30.0
# Hosts whose plugin began anew in a run: once is enough to know whether it helps.
_began_anew: Slot[set[str]] = Slot(set)


def nodes(cluster: Cluster, name: str = "the cluster's nodes") -> dict[str, ClusterNode]:
    """Return the cluster's nodes, asked for once in a phase of the run."""
    return asked(name, cluster.nodes)


def ours(cluster: Cluster) -> str:
    """Return gpunode's own objects in the cluster as kubectl prints them, asked for once in a phase of the run."""
    return asked("gpunode's own objects", cluster.own_objects)


@node_operation
@once_per_run("the RuntimeClass")
def runtime_class(desired_cluster: DesiredCluster, proxy: ProxySettings) -> Iterator[Any]:
    """Keep the RuntimeClass by which the plugin's pods choose the nvidia runtime, where one is needed.

    One of somebody else's is left alone. None is removed: pods of others may have chosen it by then.
    """
    desired = desired_cluster.runtime_class
    if desired is None:
        host.noop("no RuntimeClass is needed")
        return
    cluster = Cluster(desired_cluster.kubernetes, proxy, runner(desired_cluster.kubernetes))
    decision = decided(partial(cluster.decide_runtime_class, desired))
    for step in decision.steps:
        if step.change is not None:
            host.log(f"{step.settles[0].cause}: {step.change}")
            yield told(partial(cluster.change_runtime_class, step.change, desired))
    if not decision.steps:
        host.noop(f"RuntimeClass {NAME} {decision.findings[0].actual}")


@node_operation
def labels(
    settings: Settings, gpus: Sequence[PciGpu], cluster_of: Settings, by_turns: bool = False, cut_off: bool = False
) -> Iterator[Any]:
    """Keep the node's labels in the cluster: those that gpunode set, and no others.

    A host that is to be no node of the plugin's loses them. Another configuration restarts the plugin's MPS
    daemon: a node with clients of it is drained before. Where the release leaves its pods as they are, those of the
    node that are not as desired begin anew, one node after the other (node_by_node.py).

    + cluster_of: settings of a node of the cluster, which say where it is
    + by_turns: whether the release leaves its pods as they are
    + cut_off: go on with a node that an earlier run left empty in its turn, and do nothing else
    """
    state: str | Unknown | None = None
    if settings.mig.config is not None:
        state = mig_state(settings.mig, gpus, read_fact(Mig, "MIG"))
    cluster = cluster_for(cluster_of)
    name = node_name(host.name, settings)
    node = _node(cluster, name)
    if cut_off and (node is None or not was_cut_off(node)):
        host.noop("no earlier run was cut off in the node's turn")
        return
    decision = decide_labels(desired_labels(name, settings, state), node)
    if decision.refusal is not None:
        raise OperationRefused(decision.refusal)
    if node is None:
        host.noop("no node of the cluster")
        return
    settled = [item for step in decision.steps for item in step.settles]
    theirs = [item for item in bad(*decision.findings) if item not in settled]
    for item in theirs:
        host.log(f"conflict: {item.what} is {item.actual!r}, and somebody else's; {item.desired!r} is wanted")
    unknown = [item for item in decision.findings if item.finding_class is FindingClass.NOT_KNOWN]
    for item in unknown:
        host.log(f"{item.what} of {name}: {item.cause}; {item.remedy}")
    change = next((step.change for step in decision.steps), None)
    anew = Change(settings, cluster, name, change, partial(_label, cluster, name, change, cut_off))
    # The release leaves its pods on the node as they are.
    if settings.device_plugin.method in BY_CHART and (by_turns or bool(with_daemon(nodes(cluster)))):
        # What an earlier run left is brought to its end between the two.
        what = "the pods that an earlier run left" if cut_off else "the pods of the release"
        view = asked(what, partial(cluster.view, settings.device_plugin.namespace))
        if anew.is_to_begin_anew(view):
            if change is None:
                labelled()
            yield from begun_anew(anew, view)
            return
    if change is not None:
        restarting, what = (name,) if label_restarts(change, node) else (), f"labels of {name}"
        own = restart_of(cluster, restarting, nodes(cluster), {host.name: settings}, what)
        restart = decide_label(own, release_waits(), change)
        if not may_restart(restart, what, name):
            return
        yield from drained(own, {host.name: settings}, what)
        yield told(partial(_label, cluster, name, change))
    if not decision.steps:
        labelled()
        host.noop(f"labels of {name} {_unchanged(theirs, unknown)}")


def _unchanged(theirs: Sequence[Finding], unknown: Sequence[Finding]) -> str:
    """Return how the labels of a node are that has none to change."""
    if unknown:
        return f"unchanged; not known: {', '.join(item.what for item in unknown)}"
    return "left to another program" if theirs else "as desired"


@node_operation
def resources(settings: Settings, cluster_of: Settings) -> Iterator[Any]:
    """Keep the extended resources of the node that are counted by hand: those that gpunode set, and no others.

    + cluster_of: settings of a node of the cluster, which say where it is
    """
    cluster = cluster_for(cluster_of)
    name = node_name(host.name, settings)
    node = _node(cluster, name)
    decision = resources_of(settings, node)
    for item in bad(*decision.findings):
        if all(item not in step.settles for step in decision.steps):
            host.log(f"conflict: {item.what} is {item.actual}, and somebody else's; {item.desired} is wanted")
    for step in decision.steps:
        if step.change is not None:
            for each in step.change.to_set:
                host.log(f"{each}: {UNBACKED}")
            yield told(partial(cluster.count_resources, name, step.change))
    if not decision.steps:
        count = len(settings.kubernetes.extended_resources)
        host.noop(f"extended resources of {name} as asked: {count}" if count else "none is counted by hand")


def _node(cluster: Cluster, name: str) -> ClusterNode | None:
    """Return a node as it is now: with `--serial` another host may have asked for all before this one's MIG changed."""
    if not are_labels_changed():
        return nodes(cluster).get(name)
    return answered(f"node {name}", partial(cluster.node, name))


def _label(cluster: Cluster, name: str, change: LabelChange | None, again: bool = False) -> None:
    """Change the labels of a node; `again`: they are looked at once more in this run, which is to see them as now."""
    if change is not None:
        cluster.label(name, change)
        if again:
            labels_changed()
    labelled()


@node_operation
def current(settings: Settings) -> Iterator[Any]:
    """Have the plugin's pods on a node begin anew where its MIG layout changed after they did: they look only then.

    + settings: the host's settings, with a MIG configuration
    """
    boot = read_fact(MigBootFact, "what brings MIG back at a boot")
    cluster = cluster_for(settings)
    plugin, name = settings.device_plugin, node_name(host.name, settings)
    view = asked("the plugin's pods", partial(cluster.view, plugin.namespace))
    decision = decide_current(settings, name, daemon_sets_of(settings, view), view, boot)
    for step in decision.steps:
        host.log(f"{step.settles[0].actual} began before the MIG layout changed: to begin anew")
        yield told(partial(_begin_anew, host.state, host.name, cluster, plugin.namespace, step.change or ()))
    if not decision.steps:
        host.noop(f"the plugin's pods on {name} know its MIG devices")


@node_operation
def registered(settings: Settings) -> Iterator[Any]:
    """Have the plugin's pod on a node begin anew where it is well and the kubelet does not count the node's GPUs.

    A plugin that began a moment ago has some time to register. It begins anew once in a run, and is to be counted then.
    """
    mig = read_fact(Mig, "MIG")
    cluster = cluster_for(settings)
    namespace, name = settings.device_plugin.namespace, node_name(host.name, settings)
    what = "what the nodes offer"
    view = asked(what, partial(cluster.view, namespace))
    decision = _registration(settings, name, view, mig)
    began = monotonic()
    while decision.steps and is_executing() and monotonic() - began < _REGISTERS:
        sleep(_PAUSE)
        decision = _registration(settings, name, answered(what, partial(cluster.view, namespace)), mig)
    if decision.steps and host.name in _began_anew.of(host.state):
        host.noop(f"the plugin's pods on {name} began anew in this run, and are not counted yet")
        return
    for step in decision.steps:
        for item in step.settles:
            host.log(f"{item.what} is {item.actual}, {item.desired} desired: {item.cause}")
        yield told(partial(_begin_anew, host.state, host.name, cluster, namespace, step.change or ()))
        yield told(partial(_counted, settings, name, cluster, mig))
    if not decision.steps:
        host.noop(f"the kubelet of {name} knows what the plugin's pods offer")


def _registration(settings: Settings, name: str, view: View, mig: MigState) -> Decision[tuple[str, ...]]:
    node = view.nodes.get(name)
    return (
        Decision(()) if node is None else decide_registered(settings, node, daemon_sets_of(settings, view), view, mig)
    )


def _begin_anew(state: State, name: str, cluster: Cluster, namespace: str, pods: Sequence[str]) -> None:
    _began_anew.of(state).add(name)
    cluster.remove_pods(namespace, pods)


def _counted(settings: Settings, name: str, cluster: Cluster, mig: MigState) -> None:
    """Wait until a node offers what it promises; raise ClusterError where it does not in time."""
    namespace, began = settings.device_plugin.namespace, monotonic()
    while left := [
        item for item in _registration(settings, name, cluster.view(namespace), mig).findings if item.is_negative
    ]:
        if monotonic() - began >= settings.kubernetes.timeout:
            item, seconds = left[0], settings.kubernetes.timeout
            raise ClusterError(
                f"the plugin's pod began anew, and after {seconds} s (kubernetes.timeout) {item.what} of {name} is "
                f"{item.actual}, {item.desired} desired\nsee the pod's log (`kubectl --namespace {namespace} get pods "
                "--output wide`), and the kubelet's on the node (`journalctl --unit kubelet`)"
            )
        sleep(_PAUSE)


@node_operation
def own_config(settings: Settings) -> Iterator[Any]:
    """Refuse a node whose entry of a ConfigMap of the user's own is not there, or none that the plugin takes.

    + settings: the host's settings, with device_plugin.config_name
    """
    plugin = settings.device_plugin
    cluster = cluster_for(settings)
    what = f"ConfigMap {plugin.namespace}/{plugin.config_name}"
    entries = asked(what, partial(cluster.config_map, plugin.namespace, plugin.config_name or ""))
    decided(partial(decide_own_config, settings, entries))
    entry = chosen_entry(settings, entries)
    for field in ignored_fields((entries or {}).get(entry or "", "")):
        host.log(f"{what}, entry {entry}: the plugin ignores {field}, as it says in its log")
    host.noop(f"{what} has the entry {entry}")
    yield from ()
