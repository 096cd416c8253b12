"""Which families of package managers have a check of their live repositories, and which are open."""

from __future__ import annotations

from collections.abc import Mapping

from tests.real import apt_repositories
from tests.real.checked import Check

# Family -> the check of its repositories.
CHECKS: Mapping[str, Check] = {"apt": apt_repositories.check}
# Nothing resolves the live repositories of these yet; whoever enters a check above takes its family away here.
OPEN = ("dnf", "pacman", "zypper")
