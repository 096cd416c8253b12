"""How each family's package manager is asked."""

from __future__ import annotations


def by_manager(apt: str, dnf: str, zypper: str) -> str:
    """Return a probe that asks the manager that keeps the node's own packages.

    Going by which command exists would err: rpm is installed on Debian, dpkg on RHEL, and zypper on Fedora, to look
    into packages.
    """
    dpkg, rpm = "[ -s /var/lib/dpkg/status ]", "command -v rpm >/dev/null"
    suse = f"{rpm} && grep -qiE '^ID(_LIKE)?=.*suse' /etc/os-release"
    return f"if {dpkg}; then\n{apt.strip()}\nelif {suse}; then\n{zypper.strip()}\nelif {rpm}; then\n{dnf.strip()}\nfi\n"
