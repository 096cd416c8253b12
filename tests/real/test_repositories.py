"""Live repositories still have what gpunode asks them for: a real package manager resolves it, and installs nothing.

    GPUNODE_REAL_REPOSITORIES=1 make test-real

Each check says what moved since the tables were written. A repository that cannot be reached is told and skipped;
where none at all was reached, the run fails under CI=true, which would be green without a look.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpunode.base import tables
from gpunode.base.tables.sources import Distribution
from tests.real.checked import REPOSITORIES, Checked
from tests.real.families import CHECKS

if os.environ.get("GPUNODE_REAL_REPOSITORIES") != "1":
    pytest.skip(
        "live repositories are read where GPUNODE_REAL_REPOSITORIES=1 is set and the internet is",
        allow_module_level=True,
    )

pytestmark = pytest.mark.real


def _named(row: Distribution) -> str:
    return row.name.replace(" ", "-").lower()


@pytest.mark.parametrize("repository", REPOSITORIES)
@pytest.mark.parametrize("row", tables.distributions(), ids=_named)
def test_everything_that_gpunode_asks_for_resolves(
    row: Distribution, repository: str, tmp_path: Path, tell: Callable[[str, Checked], None]
) -> None:
    checked = CHECKS[row.family](row, repository, tmp_path)
    tell(f"{row.name}, {repository}", checked)
    if checked.unreached:
        pytest.skip(f"{row.name}: {repository} was not reached: {checked.unreached[0]}")
    if checked.beyond:
        pytest.skip(f"{row.name}: {checked.beyond[0]}")
    assert checked.problems == []
    assert checked.resolved
