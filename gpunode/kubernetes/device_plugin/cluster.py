"""The cluster as kubectl tells of it, asked by whatever runs kubectl's commands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpunode.base.decision import Decision
from gpunode.base.reading import ParseError, Unknown
from gpunode.kubernetes import dcgm_exporter
from gpunode.kubernetes.dcgm_exporter import Exporter, parse_exporters
from gpunode.kubernetes.device_plugin import others, own_config, pod_security
from gpunode.kubernetes.device_plugin.others import Plugin, parse_plugins
from gpunode.kubernetes.device_plugin.view import (
    View,
    asking,
    asking_gpushare,
    asking_of_node,
    asking_revisions,
    parse_objects,
    parse_revisions,
)
from gpunode.kubernetes.helm.commands import Command, explained
from gpunode.kubernetes.helm.session import Output, Run
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, kubectl, label_patch, listing, parse_nodes
from gpunode.kubernetes.nodes.extended_resources import ResourceChange, resource_patch
from gpunode.kubernetes.nodes.labels import LabelChange
from gpunode.kubernetes.objects import own_objects, runtime_class
from gpunode.kubernetes.objects.own_objects import Document, ObjectsChange
from gpunode.kubernetes.objects.own_objects import decide as decide_objects
from gpunode.kubernetes.objects.runtime_class import Verb
from gpunode.settings import Settings
from gpunode.settings.kubernetes import KubernetesSettings
from gpunode.settings.repositories import ProxySettings

_SECONDS = 120


class ClusterError(Exception):
    """Say what kubectl could not do, why, and what to do."""


@dataclass(frozen=True)
class Cluster:
    """Ask and tell one cluster; every method raises ClusterError or ParseError.

    known: its nodes, where they were read a moment ago and nothing was changed since
    """

    kubernetes: KubernetesSettings
    proxy: ProxySettings
    run: Run
    known: Mapping[str, ClusterNode] | None = None

    def nodes(self) -> dict[str, ClusterNode]:
        """Return every node by name, in one question; those that are known already, without any."""
        if self.known is not None:
            return dict(self.known)
        return parse_nodes(self.told("kubectl get nodes", listing(self.kubernetes)))

    def node(self, name: str) -> ClusterNode | None:
        """Return one node; None where the cluster has no such node."""
        return parse_nodes(self.told(f"kubectl get node {name}", listing(self.kubernetes, name))).get(name)

    def why_pods_stay(self, name: str, containers: Collection[str], drains: bool) -> str | None:
        """Return why pods that hold GPUs stay on a node while its MIG layout changes; None where none is known to.

        + containers: the short IDs of the pods' containers that hold a GPU; drains: whether the node is drained before
        """
        with suppress(ClusterError, ParseError):
            if (node := self.node(name)) is None:
                return None
            by = others.taking(node.labels, node.ours)
            kept = dict(node.labels.items() - by.items())
            sets = self.told("kubectl get daemonsets", others.asking(self.kubernetes))
            pods = self.told("kubectl get pods", others.pods_on(self.kubernetes, name))
            stay = [each for each in sorted(others.leaving(sets, kept, None)) if others.left(pods, {each}, containers)]
            if stay:
                return others.STAYS.format(sets=", ".join(stay), node=name)
            going = () if drains else others.left(pods, others.leaving(sets, {**node.labels, **by}, kept))
            alone = () if drains else sorted({*others.left(pods, None, containers)} - {*going})
            if alone:
                return others.NOT_DRAINED.format(pods=", ".join(alone), node=name)
        return None

    def view(self, namespace: str, with_gpushare: bool = False, exporter: str | None = None) -> View:
        """Return nodes, and the namespace's DaemonSets and pods, in two questions; gpushare's take a third one.

        So do those in the namespace of DCGM's exporter, where there is to be one, and pods that nobody ends and that
        may be of an earlier template.
        """
        nodes = self.nodes()
        found = [self.told("kubectl get pods", asking(self.kubernetes, namespace))]
        if with_gpushare:
            found.append(self.told("kubectl get pods", asking_gpushare(self.kubernetes)))
        beside = None
        if exporter is not None:
            answer = self.told("kubectl get pods", asking(self.kubernetes, exporter))
            beside = View(nodes, *parse_objects(answer))
        return self.with_revisions(View(nodes, *parse_objects(*found), exporter=beside), namespace)

    def view_of_node(self, name: str, namespace: str) -> View:
        """Return what a view has of one node, by three small questions: a cluster may have thousands of others.

        Pods that nobody ends are compared by their templates' numbers; `with_revisions` knows better.
        """
        node = self.node(name)
        asked = asking_of_node(self.kubernetes, namespace, name)
        found = [
            self.told(f"kubectl get {kind}", words) for kind, words in zip(("daemonsets", "pods"), asked, strict=True)
        ]
        return View({} if node is None else {name: node}, *parse_objects(*found))

    def with_revisions(self, view: View, namespace: str) -> View:
        """Return the view with the names of the newest templates, by one more question where a pod may be outdated."""
        if not view.has_outdated:
            return view
        # Who may not ask goes by the templates' numbers, which are others after a rollback, too.
        with suppress(ClusterError):
            answer = self.told("kubectl get controllerrevisions", asking_revisions(self.kubernetes, namespace))
            return view.with_revisions(parse_revisions(answer))
        return view

    def label(self, name: str, change: LabelChange) -> None:
        """Set and remove a node's labels."""
        self.told(f"kubectl patch node {name}", label_patch(self.kubernetes, name, change))

    def count_resources(self, name: str, change: ResourceChange) -> None:
        """Set and remove the extended resources of a node that are counted by hand."""
        self.told(f"kubectl patch node {name}", resource_patch(self.kubernetes, name, change))

    def decide_runtime_class(self, desired: Mapping[str, Any]) -> Decision[Verb]:
        """Return what is to be done about the RuntimeClass."""
        answer = self.told("kubectl get runtimeclasses", runtime_class.asking(self.kubernetes))
        return runtime_class.decide(desired, runtime_class.parse_runtime_class(answer))

    def decide_namespaces(self, desired: Mapping[str, str]) -> Decision[pod_security.Told]:
        """Return what is to be done about namespaces, by a question for each; `desired` as pod_security.decide's."""
        actual = {
            name: self.told(f"kubectl get namespace {name}", pod_security.asking(self.kubernetes, name))
            for name in desired
        }
        labels = {name: pod_security.parse_labels(text) for name, text in actual.items()}
        return pod_security.decide(self.kubernetes, desired, labels)

    def decide_objects(
        self,
        desired: Sequence[Document],
        nodes: Mapping[str, ClusterNode],
        relabelled: Collection[str],
        ours: str | None = None,
    ) -> Decision[ObjectsChange]:
        """Return what is to be done about gpunode's own objects, by two questions.

        + nodes: all of the cluster; relabelled: the names of those whose labels a run brings about
        + ours: what `own_objects` says, where somebody asked it before
        """
        words, stdin = own_objects.asking(self.kubernetes, desired)
        actual = self.told("kubectl get", words, stdin) if desired else ""
        ours = self.own_objects() if ours is None else ours
        staying = [node.labels for name, node in nodes.items() if name not in relabelled]
        not_ready = [node.labels for node in nodes.values() if not node.ready]
        return decide_objects(desired, actual, ours, staying, not_ready)

    def own_objects(self) -> str:
        """Return all objects that are gpunode's, as kubectl prints them."""
        return self.told("kubectl get", own_objects.owning(self.kubernetes))

    def plugins(self) -> tuple[Plugin, ...]:
        """Return the cluster's device plugins, whoever put them there."""
        return parse_plugins(self.told("kubectl get daemonsets", others.asking(self.kubernetes)))

    def exporters(self) -> tuple[Exporter, ...]:
        """Return DCGM's DaemonSets in the cluster, whoever put them there."""
        return parse_exporters(self.told("kubectl get daemonsets", others.asking(self.kubernetes)))

    def decide_monitor(self, hosts: Mapping[str, Settings]) -> Decision[None]:
        """Return whether the cluster can have the ServiceMonitor that is asked for; `hosts`: the whole inventory."""
        output = self._ran(dcgm_exporter.asking_monitors(self.kubernetes))
        if output.status != 0 and not dcgm_exporter.is_of_others(output.err):
            raise ClusterError(explained("kubectl api-resources", output.err))
        return dcgm_exporter.decide_monitor(hosts, output.out)

    def config_map(self, namespace: str, name: str) -> dict[str, str] | None:
        """Return a ConfigMap's entries, with their texts; None where there is no such ConfigMap."""
        answer = self.told(f"kubectl get configmap {name}", own_config.asking(self.kubernetes, namespace, name))
        return own_config.parse_config_map(answer)

    def change_runtime_class(self, verb: Verb, desired: Mapping[str, Any]) -> None:
        """Make the RuntimeClass, or make it anew, in the API version that the cluster has."""
        apis = self.told("kubectl api-versions", kubectl(self.kubernetes, "api-versions")).split()
        text = runtime_class.written(desired, apis)
        self.told(f"kubectl {verb} runtimeclass", runtime_class.changing(self.kubernetes, verb), text)

    def remove_pods(self, namespace: str, names: Iterable[str], *options: str) -> None:
        """Remove pods; those of a DaemonSet come again."""
        words = ("delete", "pods", *names, "--namespace", namespace, "--ignore-not-found", "--wait=false", *options)
        self.told("kubectl delete pods", kubectl(self.kubernetes, *words))

    def told(self, what: str, words: tuple[str, ...], stdin: str | None = None) -> str:
        """Run a command of kubectl's and return what it printed; `what` names it for people."""
        output = self._ran(words, stdin)
        if output.status != 0:
            raise ClusterError(explained(what, output.err))
        return output.out

    def _ran(self, words: tuple[str, ...], stdin: str | None = None) -> Output:
        limited = (*words, "--request-timeout", "30s")
        return self.run(Command(limited, self.proxy.environment, _SECONDS, stdin=stdin))


def nodes_or_unknown(cluster: Cluster) -> Mapping[str, ClusterNode] | Unknown:
    """Return name -> node of the whole cluster; Unknown says why it does not answer."""
    try:
        return cluster.nodes()
    except (ClusterError, ParseError) as error:
        return Unknown(str(error))
