"""How findings about the cluster name their component, and the run that mends them."""

COMPONENT = "device_plugin"
RUN_CLUSTER = "run deploys/device_plugin.py"
