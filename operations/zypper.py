"""zypper: repositories trusted by fingerprint."""

from __future__ import annotations

from gpunode.base.shell_file import script_file
from gpunode.facts.families.zypper import ZypperRepository
from gpunode.operations.failure import node_operation
from gpunode.operations.families.zypper import READ, ZYPP
from gpunode.operations.repositories import RpmRepositories
from gpunode.packages.keyring import PRIMARY_KEYS


class _Repositories(RpmRepositories):
    family = "zypper"
    # zypper asks about a key that rpm does not have, and so refuses it. It is never told to import whatever key stands
    # beside the metadata (--gpg-auto-import-keys).
    # rpm's database, and so every repository of the node's, trusts the key as well: zypper knows no narrower place.
    READ = ZYPP + READ + script_file("zypper_trust")
    FORGET = PRIMARY_KEYS + script_file("zypper_forget")
    fact = ZypperRepository


REPOSITORIES = _Repositories()
repository = node_operation(REPOSITORIES.repository)
no_repository = node_operation(REPOSITORIES.no_repository)
