"""Repositories in .repo files, dnf's and zypper's: trusted by fingerprint, and read."""

from __future__ import annotations

from collections.abc import Sequence

from gpunode.base.shell_file import script_file
from gpunode.operations.repositories import PINNED_KEY, Repositories
from gpunode.packages.apt_trust import Step
from gpunode.packages.deb import AptRepository
from gpunode.packages.families.rpm import second_entries
from gpunode.packages.repositories import PackageRepository

_KEY = script_file("rpm_trust")
_STAMP = """
cat "$source" "$key" | sha256sum | cut -d' ' -f1 > "$stamp"
"""


class RpmRepositories(Repositories):
    """Say how a manager of rpm packages has its repositories."""

    TRUSTING = PINNED_KEY + _KEY
    NOTING = _STAMP

    def strays(self, desired: PackageRepository, present: AptRepository) -> Sequence[Step]:
        return second_entries(desired.address, present.others)
