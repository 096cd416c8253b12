"""The cluster as kubectl tells of it, asked by whatever runs kubectl's commands."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gpunode.base.decision import Decision
from gpunode.base.reading import ParseError, Unknown
from gpunode.kubernetes import dcgm_exporter
from gpunode.kubernetes.dcgm_exporter import Exporter, parse_exporters
from gpunode.kubernetes.device_plugin import others, own_config, pod_security
from gpunode.kubernetes.device_plugin.decide_restart import parse_clients
from gpunode.kubernetes.device_plugin.others import Plugin, parse_plugins
from gpunode.kubernetes.device_plugin.promise import RUNNING, Taken, parse_taken
from gpunode.kubernetes.device_plugin.view import View, parse_objects, parse_revisions
from gpunode.kubernetes.gpushare.decide import APP, NAMESPACE
from gpunode.kubernetes.helm.commands import Command, explained
from gpunode.kubernetes.helm.session import Output, Run
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode, kubectl, parse_nodes
from gpunode.kubernetes.nodes.extended_resources import ResourceChange, patch
from gpunode.kubernetes.nodes.labels import OURS, LabelChange
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
        return parse_nodes(self.get("nodes", "nodes"))

    def node(self, name: str) -> ClusterNode | None:
        """Return one node; None where the cluster has no such node."""
        return parse_nodes(self.get(f"node {name}", "nodes", "--field-selector", f"metadata.name={name}")).get(name)

    def why_pods_stay(self, name: str, containers: Collection[str], drains: bool) -> str | None:
        """Return why pods that hold GPUs stay on a node while its MIG layout changes; None where none is known to.

        + containers: the short IDs of the pods' containers that hold a GPU; drains: whether the node is drained before
        """
        with suppress(ClusterError, ParseError):
            if (node := self.node(name)) is None:
                return None
            by = others.taking(node.labels, node.ours)
            kept = dict(node.labels.items() - by.items())
            sets, pods = self.daemon_sets(), self.pods(f"spec.nodeName={name}")
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
        found = [self._workloads("daemonsets.apps,pods", namespace)]
        if with_gpushare:
            # They are among others' in their namespace.
            (of_app,) = (f"{label}={value}" for label, value in APP.items())
            found.append(self._workloads("daemonsets.apps,deployments.apps,pods", NAMESPACE, "--selector", of_app))
        beside = None
        if exporter is not None:
            beside = View(nodes, *parse_objects(self._workloads("daemonsets.apps,pods", exporter)))
        return self.with_revisions(View(nodes, *parse_objects(*found), exporter=beside), namespace)

    def view_of_node(self, name: str, namespace: str) -> View:
        """Return what a view has of one node, by three small questions: a cluster may have thousands of others.

        Pods that nobody ends are compared by their templates' numbers; `with_revisions` knows better.
        """
        node = self.node(name)
        sets = self.get("daemonsets", "daemonsets.apps", "--namespace", namespace)
        pods = self._workloads("pods", namespace, "--field-selector", f"spec.nodeName={name}")
        return View({} if node is None else {name: node}, *parse_objects(sets, pods))

    def _workloads(self, kinds: str, namespace: str, *which: str) -> str:
        return self.get("pods", kinds, "--namespace", namespace, *which)

    def with_revisions(self, view: View, namespace: str) -> View:
        """Return the view with the names of the newest templates, by one more question where a pod may be outdated."""
        if not view.has_outdated:
            return view
        # Who may not ask goes by the templates' numbers, which are others after a rollback, too.
        with suppress(ClusterError):
            answer = self.get("controllerrevisions", "controllerrevisions.apps", "--namespace", namespace)
            return view.with_revisions(parse_revisions(answer))
        return view

    def label(self, name: str, change: LabelChange) -> None:
        """Set and remove a node's labels, and note which are gpunode's: in one request.

        Two would leave labels that nobody knows for gpunode's where the second one fails.
        """
        labels: dict[str, str | None] = {**change.to_set, **dict.fromkeys(change.to_remove)}
        metadata: dict[str, Any] = {"labels": labels} if labels else {}
        if change.annotates:
            metadata["annotations"] = {OURS: change.ours}
        self._patch(name, {"metadata": metadata}, "--type", "merge")

    def count_resources(self, name: str, change: ResourceChange) -> None:
        """Set and remove the extended resources of a node that are counted by hand."""
        # kubectl 1.24 and newer knows the subresource.
        self._patch(name, patch(change), "--subresource=status", "--type", "json")

    def _patch(self, name: str, change: Any, *options: str) -> None:
        text = json.dumps(change, sort_keys=True)
        self.told(f"kubectl patch node {name}", ("patch", "node", name, *options, "--patch", text))

    def decide_runtime_class(self, desired: Mapping[str, Any]) -> Decision[Verb]:
        """Return what is to be done about the RuntimeClass."""
        answer = self.get("runtimeclasses", "runtimeclasses.node.k8s.io", runtime_class.NAME, "--ignore-not-found")
        return runtime_class.decide(desired, runtime_class.parse_runtime_class(answer))

    def decide_namespaces(self, desired: Mapping[str, str]) -> Decision[pod_security.Told]:
        """Return what is to be done about namespaces, by a question for each; `desired` as pod_security.decide's."""
        actual = {name: self.get(f"namespace {name}", "namespace", name, "--ignore-not-found") for name in desired}
        labels = {name: pod_security.parse_labels(text) for name, text in actual.items()}
        return pod_security.decide(desired, labels)

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
        words = ("get", "--filename", "-", "--ignore-not-found", "--output", "json")
        actual = self.told("kubectl get", words, own_objects.text(desired)) if desired else ""
        ours = self.own_objects() if ours is None else ours
        staying = [node.labels for name, node in nodes.items() if name not in relabelled]
        not_ready = [node.labels for node in nodes.values() if not node.ready]
        return decide_objects(desired, actual, ours, staying, not_ready)

    def own_objects(self) -> str:
        """Return all objects that are gpunode's, as kubectl prints them."""
        ours, kinds = f"{'='.join(runtime_class.MANAGED_BY)},{own_objects.METHOD}", ",".join(own_objects.KINDS)
        return self.told("kubectl get", ("get", kinds, "--all-namespaces", "--selector", ours, "--output", "json"))

    def plugins(self) -> tuple[Plugin, ...]:
        """Return the cluster's device plugins, whoever put them there."""
        return parse_plugins(self.daemon_sets())

    def exporters(self) -> tuple[Exporter, ...]:
        """Return DCGM's DaemonSets in the cluster, whoever put them there."""
        return parse_exporters(self.daemon_sets())

    def daemon_sets(self) -> str:
        """Return every DaemonSet of the cluster, as kubectl prints them."""
        return self.get("daemonsets", "daemonsets.apps", "--all-namespaces")

    def pods(self, fields: str | None = None) -> str:
        """Return the pods of the cluster that a field selector chooses, as kubectl prints them; None: all of them."""
        only = () if fields is None else ("--field-selector", fields)
        return self.get("pods", "pods", "--all-namespaces", *only)

    def clients(self, nodes: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
        """Return node -> its GPU pods, of all nodes, or of the only one of `nodes`."""
        (one,) = nodes if len(nodes) == 1 else (None,)
        return parse_clients(self.pods(None if one is None else f"spec.nodeName={one}"))

    def taken(self, node: str | None = None) -> dict[str, Taken]:
        """Return node -> what its pods that have not ended have of it, of one node or of all."""
        return parse_taken(self.pods(f"{RUNNING},spec.nodeName{'!=' if node is None else f'={node}'}"))

    def decide_monitor(self, hosts: Mapping[str, Settings]) -> Decision[None]:
        """Return whether the cluster can have the ServiceMonitor that is asked for; `hosts`: the whole inventory."""
        group = ("--api-group", dcgm_exporter.GROUP)
        output = self._ran(("api-resources", *group, "--no-headers", "--output", "name"))
        if output.status != 0 and not dcgm_exporter.is_of_others(output.err):
            raise ClusterError(explained("kubectl api-resources", output.err))
        return dcgm_exporter.decide_monitor(hosts, output.out)

    def config_map(self, namespace: str, name: str) -> dict[str, str] | None:
        """Return a ConfigMap's entries, with their texts; None where there is no such ConfigMap."""
        where = ("--namespace", namespace, "--ignore-not-found")
        return own_config.parse_config_map(self.get(f"configmap {name}", "configmaps", name, *where))

    def change_runtime_class(self, verb: Verb, desired: Mapping[str, Any]) -> None:
        """Make the RuntimeClass, or make it anew, in the API version that the cluster has."""
        apis = self.told("kubectl api-versions", ("api-versions",)).split()
        # A handler can only be changed by a new object.
        words = ("create",) if verb is Verb.CREATE else ("replace", "--force")
        text = runtime_class.written(desired, apis)
        self.told(f"kubectl {verb} runtimeclass", (*words, "--filename", "-"), text)

    def remove_pods(self, namespace: str, names: Iterable[str], *options: str) -> None:
        """Remove pods; those of a DaemonSet come again."""
        words = ("delete", "pods", *names, "--namespace", namespace, "--ignore-not-found", "--wait=false", *options)
        self.told("kubectl delete pods", words)

    def get(self, what: str, *words: str) -> str:
        """Return what `kubectl get` prints as JSON; `what` names it for people, `words` say what is asked for."""
        return self.told(f"kubectl get {what}", ("get", *words, "--output", "json"))

    def told(self, what: str, words: tuple[str, ...], stdin: str | None = None) -> str:
        """Run a command of kubectl's and return what it printed; `what` names it for people."""
        output = self._ran(words, stdin)
        if output.status != 0:
            raise ClusterError(explained(what, output.err))
        return output.out

    def _ran(self, words: tuple[str, ...], stdin: str | None = None) -> Output:
        limited = kubectl(self.kubernetes, *words, "--request-timeout", "30s")
        return self.run(Command(limited, self.proxy.environment, _SECONDS, stdin=stdin))


def nodes_or_unknown(cluster: Cluster) -> Mapping[str, ClusterNode] | Unknown:
    """Return name -> node of the whole cluster; Unknown says why it does not answer."""
    try:
        return cluster.nodes()
    except (ClusterError, ParseError) as error:
        return Unknown(str(error))
