"""Debian packages and apt repositories."""

from __future__ import annotations

from gpunode.base.probe import Probe, Shared, Text, shell_text
from gpunode.facts.base import NodeFact, probe_command
from gpunode.packages.deb import AptArchive as Reading
from gpunode.packages.deb import AptRepository as AptRepositoryReading
from gpunode.packages.deb import parse_apt_archive, parse_apt_repository, parse_deb_packages
from gpunode.packages.installed_packages import InstalledPackages
from gpunode.packages.trust import PRIMARY_KEYS

# gpunode's own entry of the distribution's archive: the components that the node's entries lack.
SOURCE = "/etc/apt/sources.list.d/gpunode-distribution.sources"


class AptArchive(NodeFact[Reading]):
    """Read what apt reads, by apt's own account, and the text of each file that names it."""

    probe = shell_text("packages/apt_archive", SOURCE=SOURCE)
    parse = staticmethod(parse_apt_archive)


# Succeeds where dpkg was not interrupted.
_WHOLE = '[ -z "$(dpkg --audit 2>&1; ls /var/lib/dpkg/updates)" ]'
# dpkg tells of itself, so that its silence on others means that they are absent; and whether it was interrupted.
DPKG_ITSELF = (
    r"""dpkg-query -W -f 'dpkg=${db:Status-Status}\n' dpkg
"""
    + f"{_WHOLE} || echo interrupted=yes"
)


# What several ask of dpkg, asked once. $DEBS: STATUS NAME VERSION of each package that a part wants to know of, and of
# dpkg itself; $INTERRUPTED, where it was.
_DPKG = Shared(
    Text(
        r"""
set -f
DEBS=$(dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' dpkg $NAMES_OF_DEBS)
set +f
"""
        + f"INTERRUPTED=; {_WHOLE} || INTERRUPTED=yes"
    ),
    variable="NAMES_OF_DEBS",
)


class DebPackages(NodeFact[InstalledPackages]):
    """Read the installed versions of the packages that are asked about, and whether dpkg left something half-done."""

    parse = staticmethod(parse_deb_packages)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`, and for dpkg itself: silence on the others must mean that they are absent.

        + names: without an architecture behind them, and no patterns
        """
        question = _DPKG.of(*names)
        return Probe([(None, shell_text("packages/families/deb_packages", (question,), NAMES=f" {' '.join(names)} "))])


class AptRepository(NodeFact[AptRepositoryReading]):
    """Read keyring, source and refresh stamp of a repository, and what else the node trusts in its place.

    Paths are those of operations.apt.
    """

    parse = staticmethod(parse_apt_repository)

    def command(  # type: ignore[override]
        self, keyring: str, source: str, stamp: str, uri: str, distrusted: list[str]
    ) -> Probe:
        """Return the probe for a repository's three files, for other lists with `uri`, and for keys in `distrusted`."""
        # Up to apt's own $(ARCH), and without the scheme: the other entry may write both differently.
        needle = uri.partition("://")[2].partition("$(")[0].rstrip("/")
        keys = "|".join(f"{identity}$" for identity in distrusted)
        text = shell_text(
            "packages/families/apt_repository", KEY=keyring, LIST=source, STAMP=stamp, NEEDLE=needle, KEYS=keys
        )
        return probe_command(f"{PRIMARY_KEYS}\n{text}")
