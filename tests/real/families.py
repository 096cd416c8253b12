"""Which check reads the live repositories of a family of package managers."""

from __future__ import annotations

from collections.abc import Mapping

from tests.real import apt_repositories, pacman_repositories, rpm_repositories
from tests.real.checked import Check

# Family -> the check of its repositories.
CHECKS: Mapping[str, Check] = {
    "apt": apt_repositories.check,
    "dnf": rpm_repositories.check,
    "dnf5": rpm_repositories.check,
    "pacman": pacman_repositories.check,
    "zypper": rpm_repositories.check,
}
