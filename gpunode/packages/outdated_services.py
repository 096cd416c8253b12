"""Services that still use files which a package replaced: the node's own tool names them, and no run restarts them."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.comparison import finding_message
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import Reading, Unknown

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
