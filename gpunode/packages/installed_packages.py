"""Installed packages and the version rules that they have to fit, and services that still use replaced files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpunode.base import versions
from gpunode.base.comparison import finding_message
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import Reading, Unknown


@dataclass(frozen=True)
class InstalledPackages(Reading):
    """Hold installed packages as (name, version), versions as their package manager writes them.

    `interrupted`: something is half installed, as after a reboot during the package manager's work.
    """

    installed: tuple[tuple[str, str], ...]
    interrupted: bool = False

    def missing(self, desired: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return the entries of name -> version rule that are not satisfied."""
        installed = dict(self.installed)
        return {
            name: rule
            for name, rule in desired.items()
            if name not in installed or not satisfies(installed[name], rule)
        }

    def together(self, desired: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """Return name -> version rule for packages that belong together.

        It is `desired`, but where some of it is installed and not all of that at one version, all are asked for at the
        newest version that is there and fits: nothing moves further than it must. Raise VersionError.
        """
        found = [version for name, version in self.installed if name in desired and satisfies(version, desired[name])]
        present = {versions.upstream(version) for version in found}
        if not present or (len(present) == 1 and not self.missing(desired)):
            return desired
        return dict.fromkeys(desired, max(present, key=versions.parsed))


def satisfies(version: str, rule: str | None) -> bool:
    """Say whether a package version fits a rule: None (any), a branch (`580`) or an upstream version (`580.95.05`).

    `1:1.6.20~ds1-1+deb12u1` fits `1.6.20` and `1.6`: epoch and what follows the upstream version do not count. A
    release candidate fits only where it is asked for as one: `1.18.0~rc.1-1` fits `1.18.0-rc.1` and not `1.18.0`.
    """
    if rule is None:
        return True
    try:
        if versions.parsed(version).is_prerelease or versions.parsed(rule).is_prerelease:
            return versions.same(version, rule)
        return versions.in_branch(version, rule)
    except versions.VersionError:
        return False


_CAUSE = "they use files that a package replaced since they started; a run restarts no service of others"
OUTDATED = finding_message(
    "node",
    "outdated services",
    "Services still use files that a package replaced.",
    "needrestart, `zypper ps` or `dnf needs-restarting` names them, where the node has it, at the end of a run that "
    "changed packages. An earlier upgrade may have replaced the files. While gpunode changes packages, needrestart is "
    "suspended: it would restart services that the plan does not name.",
    cause=_CAUSE,
    remedies=(
        "restart each when its users can do without it (`systemctl restart NAME`; `systemctl daemon-reexec` for "
        "systemd-manager), or drain and reboot the node",
        "run the command that the cause names on the node",
    ),
    classes=(),
)


@dataclass(frozen=True)
class OutdatedServices(Reading):
    """The services that use replaced files; `unread`: why they are not known, None where they are."""

    names: tuple[str, ...] = ()
    unread: str | None = None


def parse_outdated_services(lines: list[str]) -> OutdatedServices:
    """Parse the lines of outdated_services.sh."""
    return OutdatedServices(tuple(repeated(lines, "service")), values(lines).get("unread"))


def judge(reading: OutdatedServices | Unknown) -> tuple[Finding, ...]:
    """Return a caution with the names of the services; nothing where there are none."""
    restart, look = OUTDATED.remedies
    unread = reading.reason if isinstance(reading, Unknown) else reading.unread
    if isinstance(reading, Unknown) or unread:
        return (OUTDATED.not_known(None, str(unread), look),)
    names = ", ".join(reading.names)
    return (OUTDATED.finding(FindingClass.OK, names, cause=_CAUSE, remedy=restart),) if names else ()
