"""apt: repositories trusted by fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyinfra import host

from gpunode.base import tables
from gpunode.base.shell_file import script_file
from gpunode.facts.packages import AptRepository as Fact
from gpunode.operations.apt_shell import APT_GET, NOT_OLDER, READ_LISTS
from gpunode.operations.failure import node_operation
from gpunode.operations.repositories import PINNED_KEY, Repositories
from gpunode.packages import apt_trust
from gpunode.packages.apt_trust import Step
from gpunode.packages.deb import AptRepository
from gpunode.packages.repositories import PackageRepository

_TRUST = script_file("apt_trust")


class _Repositories(Repositories):
    family = "apt"
    fact = Fact
    KEY = "keyring"
    ALSO = ("index",)
    TRUSTING = PINNED_KEY + APT_GET + READ_LISTS + NOT_OLDER + _TRUST

    def question(self, desired: PackageRepository) -> dict[str, Any]:
        return {"distrusted": [*tables.drivers().retired_key_ids, desired.key_fingerprint]}

    def strays(self, desired: PackageRepository, present: AptRepository) -> Sequence[Step]:
        retired = tables.drivers().retired_key_ids
        strays = apt_trust.plan(
            desired.uri, desired.suite, present.architecture, present.others, present.trusted, retired
        )
        for path in apt_trust.world_trusted(desired.key_fingerprint, present.trusted):
            said = f"{path} lets the key of {desired.label} sign every repository; gpunode needs it there no more"
            host.log(f"caution: {said}")
        return strays


REPOSITORIES = _Repositories()
repository = node_operation(REPOSITORIES.repository)
no_repository = node_operation(REPOSITORIES.no_repository)
