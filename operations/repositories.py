"""Trust, read and remove gpunode's package repositories, and disable what apt trusts beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base import tables
from gpunode.base.shell_file import script_file
from gpunode.facts.base import NodeFact
from gpunode.facts.families.dnf import DnfRepository
from gpunode.facts.families.zypper import ZypperRepository
from gpunode.facts.file import File
from gpunode.facts.packages import AptRepository as AptRepositoryFact
from gpunode.operations.apt import APT_GET, NOT_OLDER, READ_LISTS
from gpunode.operations.failure import OperationRefused, node_operation, require
from gpunode.operations.families.zypper import READ, ZYPP
from gpunode.operations.own_files import keeps
from gpunode.operations.script import TEXT, command_with_input, script_command
from gpunode.packages import apt_trust
from gpunode.packages.apt_trust import DISABLED, Disable, Rewrite, Step
from gpunode.packages.deb import AptRepository
from gpunode.packages.families.rpm import second_entries
from gpunode.packages.repositories import PackageRepository, key_path, source_path
from gpunode.packages.trust import PERMISSIONS, PRIMARY_KEYS

PINNED_KEY = PRIMARY_KEYS + script_file("fetching", "pinned_key")
# apt reads neither this suffix nor mv's numbered copies of it.
_DISABLE = 'mv -T --backup=numbered -- "$path" "$path$suffix"; echo "gpunode: $path is disabled: it $reason"'

# By standard input: an entry that is none of ours may hold a user and a password.
_REWRITE = script_file("keep_beside") + TEXT + ' > "$new"' + script_file("swap")
_UNTRUST = script_file("keep_beside", "apt_untrust", "swap")


def commands(steps: Iterable[Step]) -> Iterator[StringCommand]:
    """Return one command per step."""
    for step in steps:
        if isinstance(step, Disable):
            yield script_command(_DISABLE, path=step.path, suffix=DISABLED, reason=step.reason)
        elif isinstance(step, Rewrite):
            rewrite = script_command(_REWRITE, path=step.path, suffix=DISABLED, reason=step.reason)
            yield command_with_input(rewrite, step.text)
        else:
            yield script_command(_UNTRUST, *step.fingerprints, path=step.path, suffix=DISABLED, reason=step.reason)


class Repositories:
    """Say how a package manager has its repositories: one subclass each.

    ALSO are the endings of further files beside the stamp, KEY is the name of the key's path in the scripts. FORGET is
    shell text that takes away what the manager keeps of the repository $name beside its files, TRUSTING that trusts the
    key by its fingerprint, READ that makes the manager read the repository $name by the key $key again, and fails where
    it cannot, NOTING that notes by which key and source it did.
    """

    family = ""
    fact: type[NodeFact[AptRepository]]
    KEY = "key"
    ALSO: tuple[str, ...] = ()
    FORGET = ":"
    TRUSTING = READ = NOTING = ""

    def __init__(self) -> None:
        """Make the operations that trust a repository and that remove it."""
        self.trusted = node_operation(self.repository)
        self.distrusted = node_operation(self.no_repository)

    def paths(self, label: str) -> tuple[str, str, str]:
        """Return key, source and stamp of a repository."""
        stamp = f"/var/lib/gpunode/{self.family}/{label}.refreshed"
        return key_path(self.family, label), source_path(self.family, label), stamp

    def question(self, desired: PackageRepository) -> dict[str, Any]:
        """Return what else the fact is asked."""
        return {}

    def strays(self, desired: PackageRepository, present: AptRepository) -> Sequence[Step]:
        """Return what is to be disabled of the node's other sources and keys; raise ValueError where one is unclear."""
        raise NotImplementedError

    def repository(
        self,
        label: str,
        uri: str,
        key_url: str,
        key_fingerprint: str,
        suite: str = "/",
        components: str = "",
        packages_signed: bool = True,
        proxies: Mapping[str, str] | None = None,
    ) -> Iterator[Any]:
        """Trust and read a package repository.

        The key is fetched on the node and refused unless its fingerprint is the pinned one; only root may write its
        file. Metadata must be signed by it. The lists are fetched again when source or key is not the one that they
        were fetched for. Other enabled entries for the same repository are disabled, once ours is trusted. apt refuses
        an index older than the last that was read of the same address, and disables (.gpunode-disabled) retired keys
        that are trusted for every repository.

        + label: names the files, such as `gpunode-LABEL.sources` and `gpunode-LABEL.gpg`
        + key_fingerprint: 40 hex digits
        + suite, components: with apt as in sources.list, suite `/` for a flat repository; else, where there are
          components, the repository is below the address, at SUITE/ARCHITECTURE/COMPONENT
        + packages_signed: whether each package must be signed, too; apt takes their digests from the signed list
        + proxies: http_proxy, https_proxy and no_proxy for the download of the key, and for a repository of rpm's
        """
        key, source, stamp = self.paths(label)
        desired = PackageRepository(
            self.family, label, uri, key_url, key_fingerprint, suite, components, packages_signed, proxies or {}
        )
        text = desired.text
        keeps(source, text)
        fact = host.get_fact(
            self.fact, keyring=key, source=source, stamp=stamp, uri=desired.address, **self.question(desired)
        )
        present: AptRepository = require(fact, f"the package repository {label}")
        try:
            strays = self.strays(desired, present)
        except ValueError as error:
            raise OperationRefused(f"the package repository {label}: {error}") from error
        for step in strays:
            host.log(f"{step.path}: {step.reason}; to be disabled")
        # One key, and read since source and key are as they are.
        good = (
            present.fingerprints == (key_fingerprint,)
            and present.permissions == PERMISSIONS
            and present.source == text
            and present.digest is not None
            and present.digest == present.refreshed
        )
        if good and not strays:
            host.noop(f"the repository {label} is trusted and read")
            return
        if not good:
            yield script_command(
                f"{self.TRUSTING}{self.READ}{self.NOTING}",
                name=label,
                **{self.KEY: key},
                source=source,
                stamp=stamp,
                text=text,
                key_url=key_url,
                fingerprint=key_fingerprint,
                **(proxies or {}),
            )
        yield from commands(strays)

    def no_repository(self, label: str) -> Iterator[Any]:
        """Remove a repository of ours, with its key; what apt has of its lists goes with the next refresh."""
        key, source, stamp = self.paths(label)
        paths = (key, source, stamp, *(stamp.replace("refreshed", ending) for ending in self.ALSO))
        actual = [path for path in paths if require(host.get_fact(File, path=path), path).sha256 is not None]
        if not actual:
            host.noop(f"the repository {label} is not trusted by gpunode")
            return
        yield script_command(f'{self.FORGET}\nrm -f "$@"', *paths, name=label, key=key)


_TRUST = script_file("apt_trust")


class _Apt(Repositories):
    family = "apt"
    fact = AptRepositoryFact
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


_KEY = script_file("rpm_trust")
_STAMP = """
cat "$source" "$key" | sha256sum | cut -d' ' -f1 > "$stamp"
"""


class _Rpm(Repositories):
    """Say how a manager of rpm packages has its repositories."""

    TRUSTING = PINNED_KEY + _KEY
    NOTING = _STAMP

    def strays(self, desired: PackageRepository, present: AptRepository) -> Sequence[Step]:
        return second_entries(desired.address, present.others)


class _Dnf(_Rpm):
    family = "dnf"
    # dnf keeps the keys of a repository with its metadata, also those that the file has no more.
    READ = """
rm -rf /var/cache/dnf/gpunode-"$name"-* /var/cache/dnf/gpunode-"$name".solv*
dnf -q -y --disablerepo='*' --enablerepo="gpunode-$name" makecache --refresh || {
  echo "gpunode: the repository $name could not be read or verified; see dnf's message above" >&2; exit 1; }
"""
    fact = DnfRepository


class _Dnf5(_Dnf):
    family = "dnf5"
    # dnf 5 keeps the keys of a repository with its metadata (pubring), also those that the file has no more.
    READ = """
rm -rf /var/cache/libdnf5/gpunode-"$name"-*
dnf5 -q -y --disablerepo='*' --enablerepo="gpunode-$name" makecache --refresh || {
  echo "gpunode: the repository $name could not be read or verified; see dnf's message above" >&2; exit 1; }
"""


class _Zypper(_Rpm):
    family = "zypper"
    # zypper asks about a key that rpm does not have, and so refuses it. It is never told to import whatever key stands
    # beside the metadata (--gpg-auto-import-keys).
    # rpm's database, and so every repository of the node's, trusts the key as well: zypper knows no narrower place.
    READ = ZYPP + READ + script_file("zypper_trust")
    FORGET = PRIMARY_KEYS + script_file("zypper_forget")
    fact = ZypperRepository


APT, DNF, DNF5, ZYPPER = _Apt(), _Dnf(), _Dnf5(), _Zypper()
# Where the distribution has everything itself (Arch), there is none of ours to be trusted.
MANAGERS: dict[str, Repositories] = {each.family: each for each in (APT, DNF, DNF5, ZYPPER)}
