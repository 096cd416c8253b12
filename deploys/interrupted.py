"""What earlier runs began and did not end."""

from gpunode.deploys.component import component, run_alone
from gpunode.operations import interrupted as changes


@component("Interrupted changes")
def interrupted() -> None:
    """Clear what earlier runs left, and tell of what they began of a component that is switched off since."""
    changes.ended(name="Clear what earlier runs left")


run_alone(__name__, interrupted)
