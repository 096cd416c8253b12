"""The verdict on the nodes' cluster; alone: pyinfra inventories/prod.py deploys/verify_cluster.py"""

from gpunode.deploys.component import component, everyone, is_whole_run, node, run_alone, settings
from gpunode.kubernetes.dcgm_exporter import exporter_namespace
from gpunode.kubernetes.device_plugin.methods import nodes_by
from gpunode.operations import verify_cluster as verdict
from gpunode.operations.control_plane import unanswered
from gpunode.operations.phase import is_image
from gpunode.settings.cluster import expected_resources


@component("Verify the cluster")
def verify_cluster() -> None:
    """Wait until the cluster offers what the node's settings promise, and fail where it does not in time."""
    if is_image():
        return
    counted = settings().kubernetes.extended_resources, expected_resources(settings())
    promises = settings().device_plugin.method != "none" or any(counted) or settings().dcgm_exporter_chart.enabled
    # A whole run has reported a cluster that does not answer.
    if is_whole_run() and unanswered(settings()) is not None:
        return
    if settings().kubernetes.enabled and promises:
        verdict.verified(
            name="Verify the node in the cluster",
            settings=settings(),
            gpus=node().pci.gpus,
            # The cluster is looked at once for nodes of all methods.
            with_gpushare=bool(nodes_by("gpushare", everyone())),
            exporter=exporter_namespace(everyone()),
            everyone=everyone(),
        )


run_alone(__name__, verify_cluster)
