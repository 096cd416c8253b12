"""NVIDIA's device plugin in the nodes' cluster; alone: pyinfra inventories/prod.py deploys/device_plugin.py"""

from deploys.component import cluster, component, everyone, node, settings
from operations import device_plugin as plugin
from operations import helm


@component("Device plugin")
def device_plugin() -> None:
    """Bring RuntimeClass, release and labels to what the settings of all hosts of the inventory ask.

    Every host of the run takes part, whether it is a node of the cluster or not: so the cluster is changed after the
    last of them is done, and by whichever did not fail.
    """
    cluster_of, asked = cluster()
    if cluster_of is None:
        return
    plugin.takes_part()
    if asked is not None:
        plugin.runtime_class(name="Keep the RuntimeClass nvidia", rollout=asked, proxy=cluster_of.proxy)
        helm.release(name="Keep the release of the device plugin", rollout=asked, proxy=cluster_of.proxy)
    plugin.labels(
        name="Label the node in the cluster", settings=settings(), gpus=node().pci.gpus, cluster_of=cluster_of
    )
    plugin.failed_nodes(name="Label the nodes that failed in the cluster", everyone=everyone(), cluster_of=cluster_of)


# pyinfra runs the file by itself, where gpu_node.py and `deploys.device_plugin.device_plugin` import it.
if __name__ != "deploys.device_plugin":
    device_plugin()
