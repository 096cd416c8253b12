"""The verdict."""

from deploys.component import component, settings
from operations import applied
from operations import verify as verdict


@component("Verify")
def verify() -> None:
    """Read the node again, fail on any difference from what was asked, and record what was applied."""
    verdict.verified(name="Verify the node", settings=settings())
    applied.recorded(name="Record what was applied", settings=settings())
