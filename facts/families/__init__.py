"""How each family's package manager is asked."""

from __future__ import annotations


def by_manager(apt: str, dnf: str, dnf5: str, zypper: str, pacman: str) -> str:
    """Return a probe that asks the manager that keeps the node's own packages.

    Going by which command exists would err: rpm is installed on Debian and Arch, dpkg on RHEL, and zypper on Fedora, to
    look into packages.
    """
    probes = (
        ("[ -s /var/lib/dpkg/status ]", apt),
        ("[ -s /var/lib/pacman/local/ALPM_DB_VERSION ]", pacman),
        ("command -v rpm >/dev/null && grep -qiE '^ID(_LIKE)?=.*suse' /etc/os-release", zypper),
        # Elsewhere dnf 5 may stand beside the dnf that the distribution works with.
        ("command -v dnf5 >/dev/null && grep -qE '^ID=\"?fedora\"?$' /etc/os-release", dnf5),
        ("command -v rpm >/dev/null", dnf),
    )
    return "el".join(f"if {found}; then\n{probe.strip()}\n" for found, probe in probes) + "fi\n"
