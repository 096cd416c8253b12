"""The tutorial and the how-to pages do what they say, step by step, on the lab's two nodes. SIMULATED: GPUs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.molecule.checkout import copied, with_origin
from tests.molecule.conftest import LAB, converge, thinned
from tests.molecule.pages.page import Command, followed, steps

# In this order: a page goes on where the one before it ended. The last one leaves another driver.
PAGES = (
    "tutorial.md", "how-to/change-a-mig-layout.md", "how-to/upgrade-gpunode.md", "how-to/airgapped-mirror.md",
    "how-to/upgrade-the-driver.md",
)  # fmt: skip


@pytest.mark.node
@pytest.mark.simulated
@pytest.mark.parametrize("page", thinned(PAGES, "how-to/change-a-mig-layout.md"))
def test_every_command_of_the_page_ends_and_prints_as_it_says(page: str, tmp_path: Path) -> None:
    if page != PAGES[0]:
        # Each page has a checkout of its own, without what the one before it entered there.
        assert converge().code == 0
    copy = copied(tmp_path / "gpunode", ".venv", ".lab")
    with_origin(copy, tmp_path / "origin.git")
    environment = {**os.environ, "GPUNODE_LAB": LAB, "NO_COLOR": "1"}
    found = steps(page)
    assert sum(isinstance(step, Command) for step in found) > 3
    for step in found:
        wrong = followed(step, copy, environment)
        assert wrong is None, wrong
