"""Are package repositories trusted by their pinned keys, and by these alone?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode import tables
from gpunode.base.comparison import compared
from gpunode.base.subject import Subject
from gpunode.findings import Finding
from gpunode.keyring import PERMISSIONS
from gpunode.node import Node
from gpunode.preflight.trust import uses_repository
from gpunode.settings import Settings


def repositories(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge the keys that package repositories are trusted by: each its pinned one and no other, for root to change."""
    system = node.operating_system
    distribution = tables.distribution(system.id, system.version_id)
    family = distribution.family if distribution else "apt"
    if distribution is not None and distribution.repository is None:
        return  # None of ours is needed: all comes from the distribution's own, whose keys are the package manager's.
    key, folder = (distribution.unverified_key, distribution.repository) if distribution else (None, None)
    for name in (name for name in ("cuda", "toolkit", "docker") if uses_repository(settings, name)):
        wanted = settings.repositories.on(name, family, key, folder).key_fingerprint
        found = node.keyrings.of(name)
        yield compared(
            "repositories", Subject.KEY.of(name), ", ".join(found) or None, wanted, found == (wanted,),
            cause="the keyring was replaced or holds another key" if found else "its key is not on the node",
        )  # fmt: skip
        permissions = node.keyrings.permissions_of(name)
        if permissions is not None:
            yield compared(
                "repositories", Subject.KEYRING.of(name), permissions, PERMISSIONS, permissions == PERMISSIONS,
                cause="others than root may change the keyring, or it cannot be read",
            )  # fmt: skip
