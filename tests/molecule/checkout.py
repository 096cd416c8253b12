"""A copy of the checkout that a test may edit as a reader or a CI job would."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.molecule.conftest import CHECKOUT

# What a checkout has that its copy needs no copy of.
_LEFT_OUT = (".venv", ".lab", ".git", ".reports", ".site", ".mypy_cache", ".ruff_cache", ".hypothesis", ".pytest_cache")


def copied(folder: Path, *shared: str) -> Path:
    """Return `folder` as a copy of the checkout, with the `shared` folders of the checkout itself in it."""
    shutil.copytree(CHECKOUT, folder, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for name in shared:
        (folder / name).symlink_to(CHECKOUT / name)
    return folder


def with_origin(checkout: Path, origin: Path) -> None:
    """Make a copy a clone of `origin`, a repository that holds the same and is made of it."""
    for command in (
        ("init", "-q", "-b", "main"),
        ("add", "-A"),
        ("-c", "user.name=reader", "-c", "user.email=reader@example.org", "commit", "-q", "-m", "as cloned"),
        ("clone", "-q", "--bare", ".", str(origin)),
        ("remote", "add", "origin", str(origin)),
        ("fetch", "-q", "origin"),
        ("branch", "-q", "--set-upstream-to=origin/main"),
    ):
        subprocess.run(["git", *command], cwd=checkout, check=True)
