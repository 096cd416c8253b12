"""How each family's package manager is asked."""

from __future__ import annotations


def by_manager(apt: str, dnf: str) -> str:
    """Return a probe that asks the manager that keeps the node's own packages.

    Going by which command exists would err: rpm is installed on Debian, and dpkg on RHEL, to look into packages.
    """
    dpkg, rpm = "[ -s /var/lib/dpkg/status ]", "command -v rpm >/dev/null"
    return f"if {dpkg}; then\n{apt.strip()}\nelif {rpm}; then\n{dnf.strip()}\nfi\n"
