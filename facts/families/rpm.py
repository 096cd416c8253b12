"""How rpm is asked, beneath dnf and zypper alike: what is installed, and how a repository of ours is trusted."""

from __future__ import annotations

import shlex

from gpunode.base.probe import Probe, Text, shell_text
from gpunode.components.dcgm.state import NAMES as DCGM
from gpunode.components.runtimes.packages import RUNTIMES
from gpunode.components.runtimes.toolkit.state import NAMES as TOOLKIT
from gpunode.facts.base import NodeFact, probe_command
from gpunode.packages.deb import AptRepository, parse_apt_repository
from gpunode.packages.driver_packages.names import COMPANIONS, FOREIGN, OWN
from gpunode.packages.families.rpm import parse_installed
from gpunode.packages.installed_packages import InstalledPackages
from gpunode.packages.trust import PRIMARY_KEYS

# rpm prints (none) for the epoch of a package that has none.
VERSION = "%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}"
# The packages of container runtimes, by their whole names.
RUNTIME_PACKAGES = f"^({'|'.join(RUNTIMES).replace('.', '[.]')})$"
# A foreign repository that dnf cannot read is passed over; ours is read by itself before, and must answer.
SKIPPING = "'--setopt=*.skip_if_unavailable=1'"


def driver_packages(manager: str, *also: str, **lock: str) -> Text:
    """Return the functions of a manager's file, `of_driver` above all.

    also: patterns of further packages; lock: the file with the manager's locks, by the name that the functions know
    """
    others = "|".join((TOOLKIT, DCGM, *also))
    patterns = {"OWN": OWN, "FOREIGN": FOREIGN, "COMPANIONS": " ".join(COMPANIONS), "BESIDE": others}
    return shell_text(f"packages/families/{manager}", (), EVR=VERSION, **lock, **patterns)


def versions(manager: str) -> str:
    """Return the function `other_versions`, with what it asks, for dnf or dnf5."""
    others = shell_text("packages/families/other_versions", OWN=OWN, FOREIGN=FOREIGN)
    return f"{shell_text(f'packages/families/{manager}_versions')}\n{others}"


class RpmPackages(NodeFact[InstalledPackages]):
    """Read the installed versions of the packages that are asked about."""

    parse = staticmethod(parse_installed)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`; rpm's own list must end well, so that silence means absent."""
        desired = shlex.join(names)
        return probe_command(
            f'for name in {desired}; do rpm -q --qf "package=%{{NAME}} {VERSION}\\n" "$name" | grep ^package=; done\n'
            'rpm -qa >/dev/null; echo "rpm=$?"'
        )


class RpmRepository(NodeFact[AptRepository]):
    """Read key, .repo file and refresh stamp of a repository, and other .repo files that mention its address.

    `FOLDER` is that of the .repo files; `TRUSTED` is shell text that fails where the manager does not trust the key in
    the file $KEY, so that nothing would be read: the repository then counts as not refreshed.
    """

    FOLDER = ""
    TRUSTED = ":"
    parse = staticmethod(parse_apt_repository)

    def command(self, keyring: str, source: str, stamp: str, uri: str) -> Probe:  # type: ignore[override]
        """Return the probe for a repository's three files; the paths are those of the family's operations."""
        # By the server alone: the other entry may write the path with the manager's variables.
        needle = uri.partition("://")[2].partition("/")[0]
        text = shell_text(
            "packages/families/rpm_repository", KEY=keyring, REPO=source, STAMP=stamp, NEEDLE=needle, FOLDER=self.FOLDER
        )
        return probe_command(f"{PRIMARY_KEYS}\ntrusted() {{ {self.TRUSTED}; }}\n{text}")
