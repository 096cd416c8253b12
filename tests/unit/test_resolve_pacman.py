"""What gpunode asks Arch's repositories for, resolved by the real pacman against the lab's.

SIMULATED: what the packages hold; pacman, its index and the relations of Arch's own packages (lab/world/arch.yaml) are
real.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gpunode.base import tables
from gpunode.lab.cache import cache_dir
from gpunode.lab.families import PACMAN
from gpunode.lab.image import tools
from gpunode.lab.pacman_repository import build_pacman_mirror
from tests.real.package_sets import Asked, driver_set
from tests.real.repositories import resolved
from tests.real.resolve_pacman import REPOSITORIES, PacmanRepositories
from tests.support.messages import unnamed

CANNOT = os.geteuid() != 0 or shutil.which("podman") is None
pytestmark = [
    pytest.mark.node,
    pytest.mark.real,
    pytest.mark.skipif(CANNOT, reason="needs root and podman"),
]
ARCH = next(row for row in tables.distributions() if row.family == "pacman")


def repositories(day: str, folder: Path, *names: str) -> PacmanRepositories:
    mirror = cache_dir() / "mirror"
    mirror.mkdir(exist_ok=True)
    root = tools(print, PACMAN)
    build_pacman_mirror(cache_dir(), mirror, root, print)
    shutil.copytree(mirror / "pacman" / day, folder / day)
    server = f"file:///work/{day}/$repo/os/x86_64"
    return PacmanRepositories(ARCH, root, folder, server, repositories=names or REPOSITORIES)


@pytest.mark.parametrize(("day", "flavours"), [("2025-10", ["open", "proprietary"]), ("2025-12", ["open"])])
def test_all_that_is_asked_of_arch_s_own_repositories_comes(day: str, flavours: list[str], tmp_path: Path) -> None:
    found = resolved(ARCH, "own", repositories(day, tmp_path))
    branch = {"2025-10": "580", "2025-12": "590"}[day]
    assert found.problems == []
    drivers = [f"driver {branch} {flavour}" for flavour in flavours]
    assert found.resolved == ["containerd", "container toolkit", "CUDA", *drivers]


def test_what_is_not_there_is_a_problem_of_its_set_alone(tmp_path: Path) -> None:
    asked = repositories("2025-12", tmp_path)
    sets = [
        Asked("gone", {"nvidia": None}),
        driver_set(ARCH, "distribution", "580", "open"),
        Asked("cuda", {"cuda": None}),
    ]
    gone, older, good = asked.problems(sets)
    assert unnamed(gone, "nvidia", "none") == []
    assert unnamed(older, "nvidia-utils", "580", "590.48.01-1") == []
    assert good is None


def test_what_needs_something_that_no_repository_has_is_a_problem(tmp_path: Path) -> None:
    # The C library, which CUDA and the driver's libraries need, is in core.
    (cuda,) = repositories("2025-12", tmp_path, "extra").problems([Asked("CUDA", {"cuda": None})])
    assert cuda is not None
    assert cuda.startswith("pacman refuses: ") and "glibc" in cuda
