"""Arch's live repositories: NVIDIA, the container toolkit and Docker have none of their own for it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gpunode.base.tables.sources import Distribution
from gpunode.lab.families import PACMAN
from gpunode.lab.image import tools
from tests.real.asking import ManagerFailed
from tests.real.checked import Checked, failed
from tests.real.own_repositories import addresses
from tests.real.repositories import resolved
from tests.real.resolve_pacman import PacmanRepositories


def check(row: Distribution, repository: str, folder: Path) -> Checked:
    """Resolve what gpunode would ask the live repositories for; REPOSITORIES names them, and Arch has its own alone."""
    if repository != "own":
        return Checked(beyond=[f"{row.name} has all in its own repositories"])
    if os.geteuid() != 0 or shutil.which("podman") is None:
        return Checked(unreached=["pacman runs in a container: root and podman are needed (make lab-tools)"])
    (server, _), *_ = addresses(row)
    try:
        return resolved(row, repository, PacmanRepositories(row, tools(print, PACMAN), folder, server, network=True))
    except ManagerFailed as error:
        return failed(error)
