"""What earlier runs began and did not end."""

from gpunode.deploys.component import component, needed, run_alone
from gpunode.operations import interrupted as changes
from gpunode.system.exposed import TAKE


@component("Interrupted changes")
def interrupted() -> None:
    """Clear what earlier runs left, and tell of what they began of a component that is switched off since."""
    changes.ended(name="Clear what earlier runs left")
    needed(False, changes.own_files_protected, name=TAKE[0].upper() + TAKE[1:])


run_alone(__name__, interrupted)
