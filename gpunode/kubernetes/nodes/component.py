"""How findings about the cluster name their component, and the run that mends them."""

from functools import partial

from gpunode.base.comparison import finding_message

COMPONENT = "device_plugin"
RUN_CLUSTER = "run deploys/device_plugin.py"
cluster_finding = partial(finding_message, COMPONENT, remedies=(RUN_CLUSTER,))
ANNOTATION = cluster_finding(
    "annotation",
    "An annotation that lists what gpunode owns on a node of the cluster is wrong.",
    "It lists labels or extended resources. With a wrong list a run would leave some of them, or not update them.",
    cause="it names what is gpunode's, and gpunode owns other ones",
)
