"""A command that gpunode does not have, named on its command line."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gpunode import cli

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("typed", "near"),
    [("aply", " Did you mean 'apply'?"), ("rolout", " Did you mean 'rollout'?"), ("xyzzy", "")],
)
def test_a_misspelt_command_is_refused_and_corrected(typed: str, near: str) -> None:
    done = CliRunner().invoke(cli.gpunode, [typed, "inventories/prod.py"])
    assert done.exit_code == 2 and f"Error: No such command {typed!r}.{near}\n" in done.output


def test_an_option_that_is_not_there_is_no_command() -> None:
    done = CliRunner().invoke(cli.gpunode, ["--verson"])
    assert done.exit_code == 2 and "No such option" in done.output
