"""What earlier runs began and did not end."""

from deploys.component import component
from operations import interrupted as changes


@component("Interrupted changes")
def interrupted() -> None:
    """Undo what an earlier run began of a component that is switched off since, and clear what was left of others."""
    changes.ended(name="End what earlier runs began and did not end")


# pyinfra runs the file by itself, where gpu_node.py and `deploys.interrupted.interrupted` import it.
if __name__ != "deploys.interrupted":
    interrupted()
