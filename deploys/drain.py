"""The way back into the cluster."""

from gpunode.deploys.component import component, drain_settings, is_whole_run, settings
from gpunode.operations import drain as node
from gpunode.operations.control_plane import unanswered


@component("Return")
def uncordon() -> None:
    """Give a node that was drained back to its cluster; a node that failed does not come as far as this."""
    how = drain_settings()
    # A whole run has reported a cluster that does not answer.
    if how is not None and not (is_whole_run() and unanswered(settings()) is not None):
        node.uncordon(name="Give the node back to its cluster", drain=how)
