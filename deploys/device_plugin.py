"""The device plugin in a cluster, and what is beside it; alone: pyinfra inventories/prod.py deploys/device_plugin.py"""

from pyinfra import host

from gpunode.deploys.component import cluster, component, everyone, needed, node, run_alone, settings
from gpunode.fleet import run_end
from gpunode.kubernetes.components import unreached
from gpunode.kubernetes.dcgm_exporter import asks_for_monitor, nodes_with_exporter
from gpunode.kubernetes.device_plugin.desired_cluster import is_node_by_node
from gpunode.kubernetes.device_plugin.methods import class_alone, extender, schedulers, wanted_objects
from gpunode.kubernetes.device_plugin.pod_security import namespaces
from gpunode.kubernetes.gpu_operator import operator
from gpunode.kubernetes.other_plugins.desired import releases
from gpunode.operations import device_plugin as plugin
from gpunode.operations import gpushare, helm, methods, other_plugins
from gpunode.operations.cluster_labels import takes_part
from gpunode.operations.control_plane import unanswered
from gpunode.operations.failure import reports_cluster
from gpunode.operations.phase import is_image
from gpunode.settings.cluster import BY_CHART


@component("Device plugin")
def device_plugin() -> None:
    """Bring RuntimeClass, release and labels to what the settings of all hosts of the inventory ask.

    Every node of the cluster that is in the run takes part: so the cluster is changed after the last of them is done,
    and by whichever did not fail. A host that is none has nothing to do with it, and asks nothing.
    """
    cluster_of, desired = cluster()
    hosts = everyone()
    if is_image() or cluster_of is None or not (settings().kubernetes.enabled or host.name in schedulers(hosts)):
        return
    # Nothing else is to be done, or shown by a dry run, in a cluster that does not answer.
    if (reason := unanswered(cluster_of)) is not None:
        # Also where a node fails before it comes to this.
        run_end.cluster_judged(host.state, cluster_of.kubernetes.cluster_name, [unreached(reason)])
        reports_cluster.set(host, True)
        methods.answering(name="Ask the cluster for its nodes", cluster_of=cluster_of)
        return
    takes_part(settings(), cluster_of)
    methods.right_cluster(name="Refuse a cluster that is another one", everyone=hosts, cluster_of=cluster_of)
    methods.alone(name="Refuse a second device plugin", settings=settings(), everyone=hosts, cluster_of=cluster_of)
    if asks_for_monitor(hosts):
        other_plugins.monitored(
            name="Refuse a ServiceMonitor that the cluster cannot have", everyone=hosts, cluster_of=cluster_of
        )
    if nodes_with_exporter(hosts):
        other_plugins.alone(name="Refuse a second exporter of the GPUs", settings=settings(), cluster_of=cluster_of)
    if settings().device_plugin.config_name is not None and settings().device_plugin.method in BY_CHART:
        plugin.own_config(name="Refuse an entry that the ConfigMap lacks", settings=settings())
    if spaces := namespaces(hosts):
        methods.admitted(name="Have the namespaces admit the plugin's pods", namespaces=spaces, cluster_of=cluster_of)
    # Before the RuntimeClass, which goes with an operator that had it.
    if (beside := operator(hosts)) is not None:
        helm.operator(name="Keep the release of the GPU Operator", desired=beside, proxy=cluster_of.proxy)
    else:
        helm.operator_absent(name="Take the release of the GPU Operator away", cluster_of=cluster_of, everyone=hosts)
    if (chosen := desired or class_alone(hosts)) is not None:
        plugin.runtime_class(name="Keep the RuntimeClass nvidia", desired_cluster=chosen, proxy=cluster_of.proxy)
    if desired is not None:
        helm.release(
            name="Keep the release of the device plugin",
            desired=desired.release,
            proxy=cluster_of.proxy,
            everyone=hosts,
        )
    else:
        helm.absent(name="Take the release of the device plugin away", cluster_of=cluster_of, everyone=hosts)
        # It stays where a node that has failed by now needs it, and may take others by labels that are not gpunode's.
        methods.alone(
            name="Refuse a second device plugin that stays", settings=settings(), everyone=hosts, cluster_of=cluster_of
        )
    by_chart = releases(hosts)
    # Before the objects, among which is the record of each.
    other_plugins.releases_absent(
        name="Take releases away that are no longer asked for", desired=by_chart, cluster_of=cluster_of, everyone=hosts
    )
    methods.objects(
        name="Keep gpunode's own objects", desired=wanted_objects(hosts), cluster_of=cluster_of, everyone=hosts
    )
    other_plugins.releases(
        name="Keep the releases of other device plugins and of DCGM's exporter", desired=by_chart, cluster_of=cluster_of
    )
    gpushare.inspect_plugin(
        name="Install kubectl-inspect-gpushare here", desired=cluster_of.gpushare, proxy=cluster_of.proxy
    )
    if host.name in schedulers(hosts):
        gpushare.extended(
            name="Have the scheduler ask the extender" if extender(hosts) else "Have the scheduler ask no extender",
            extender=extender(hosts),
            manifest=cluster_of.gpushare.manifest,
            version=cluster_of.kubernetes.version,
            timeout=cluster_of.kubernetes.timeout,
            # A scheduler that does not come back is one of several.
            _serial=True,
        )
    by_turns = desired is not None and is_node_by_node(desired.values)
    if desired is not None:
        # Before another node has its turn: the one that is empty counts. Also where the last MPS node goes, of which
        # the settings say nothing any more.
        needed(
            by_turns,
            plugin.labels,
            name="Go on with the node where an earlier run was cut off",
            settings=settings(),
            gpus=node().pci.gpus,
            cluster_of=cluster_of,
            by_turns=by_turns,
            cut_off=True,
        )
    plugin.labels(
        name="Label the node in the cluster",
        settings=settings(),
        gpus=node().pci.gpus,
        cluster_of=cluster_of,
        by_turns=by_turns,
    )
    plugin.resources(
        name="Count the node's extended resources in the cluster", settings=settings(), cluster_of=cluster_of
    )
    if desired is not None:
        helm.leftovers(
            name="Take configurations away that no node is labelled for",
            desired=desired.release,
            proxy=cluster_of.proxy,
            everyone=hosts,
        )
    if settings().mig.config is not None and settings().device_plugin.method in (*BY_CHART, "manifest"):
        plugin.current(name="Have the plugin know the node's MIG devices", settings=settings())
    if node().pci.gpus and settings().device_plugin.method in (*BY_CHART, "manifest"):
        plugin.registered(name="Have the kubelet count what the plugin offers", settings=settings())


run_alone(__name__, device_plugin)
