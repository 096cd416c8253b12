"""dnf 5: repositories trusted by fingerprint."""

from __future__ import annotations

from gpunode.facts.families.dnf import DnfRepository
from gpunode.operations.failure import node_operation
from gpunode.operations.repositories import RpmRepositories


class _Repositories(RpmRepositories):
    family = "dnf5"
    # dnf 5 keeps the keys of a repository with its metadata (pubring), also those that the file has no more.
    READ = """
rm -rf /var/cache/libdnf5/gpunode-"$name"-*
dnf5 -q -y --disablerepo='*' --enablerepo="gpunode-$name" makecache --refresh || {
  echo "gpunode: the repository $name could not be read or verified; see dnf's message above" >&2; exit 1; }
"""
    fact = DnfRepository


REPOSITORIES = _Repositories()
repository = node_operation(REPOSITORIES.repository)
no_repository = node_operation(REPOSITORIES.no_repository)
