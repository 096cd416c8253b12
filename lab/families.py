"""Nodes of other distributions: Debian's base with another family's real package manager, and that family's os-release.

The package manager, its database, its repositories and signatures are real; the distribution is SIMULATED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpunode.lab.errors import LabError

APT = "apt"


@dataclass(frozen=True)
class Family:
    """Hold what makes a node of the family.

    `packages` are Debian's, they bring the package manager; `files` are path -> text. `removed` are left out of the
    image: of the package manager's own plugins those that a distribution has in a package of its own. `setup` is shell
    text that runs in the image at the end, with /work holding the packages that belong to the system. `newer` are
    packages of Debian sid, whose programs run in the image with libraries of their own (lab.newer).
    """

    name: str
    distribution: str
    packages: tuple[str, ...]
    files: Mapping[str, str]
    removed: tuple[str, ...] = ()
    setup: str = ""
    newer: tuple[str, ...] = ()


_RPM_MACROS = "%_dbpath /var/lib/rpm\n%__gpg /usr/bin/gpg\n"
_ROCKY = """NAME="Rocky Linux"
VERSION="9.6 (Blue Onyx)"
ID="rocky"
ID_LIKE="rhel centos fedora"
VERSION_ID="9.6"
PLATFORM_ID="platform:el9"
PRETTY_NAME="Rocky Linux 9.6 (SIMULATED on Debian by gpunode's lab)"
"""
# As RHEL has it: Debian's takes an older version where the asked one fails, and passes over a repository that is down.
_DNF_CONF = """[main]
gpgcheck=1
installonly_limit=3
clean_requirements_on_remove=True
best=True
skip_if_unavailable=False
"""
_BASE_REPO = """[baseos]
name=SIMULATED BaseOS of gpunode's lab
baseurl=http://127.0.0.1:8900/dnf/baseos/{folder}/x86_64
enabled=1
gpgcheck=1
repo_gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/gpunode-lab.asc
"""
_DNF_PLUGINS = "usr/lib/python3/dist-packages/dnf-plugins"

DNF = Family(
    name="dnf",
    distribution="rhel9",
    packages=("dnf", "dnf-plugins-core", "rpm", "createrepo-c", "gnupg", "file"),
    files=MappingProxyType(
        {
            "etc/rpm/macros.lab": _RPM_MACROS,
            "etc/dnf/dnf.conf": _DNF_CONF,
            "etc/dnf/plugins/local.conf": "[main]\nenabled=false\n",
            "etc/yum.repos.d/lab-baseos.repo": _BASE_REPO.format(folder="rhel9"),
            "etc/os-release": _ROCKY,
        }
    ),
    # There they are the package python3-dnf-plugin-versionlock, which the lab's BaseOS has.
    removed=(
        f"{_DNF_PLUGINS}/versionlock.py",
        "etc/dnf/plugins/versionlock.conf",
        "etc/dnf/plugins/versionlock.list",
    ),
    setup="""
rpm --import /work/key.asc
mkdir -p /etc/pki/rpm-gpg; cp /work/key.asc /etc/pki/rpm-gpg/gpunode-lab.asc
rpm -i --nodeps /work/system/*.rpm
""",
)

_FEDORA = """NAME="Fedora Linux"
VERSION="42 (Server Edition)"
ID=fedora
VERSION_ID=42
PLATFORM_ID="platform:f42"
PRETTY_NAME="Fedora Linux 42 (SIMULATED on Debian by gpunode's lab)"
"""
_FEDORA_REPO = """[fedora]
name=SIMULATED Fedora of gpunode's lab
baseurl=http://127.0.0.1:8900/dnf5/fedora/42/x86_64
enabled=1
gpgcheck=1
repo_gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/gpunode-lab.asc
"""
DNF5 = Family(
    name="dnf5",
    distribution="fedora42",
    # rpm of Debian's release builds the fixtures; the nodes' own is that of `newer`.
    packages=("rpm", "createrepo-c", "gnupg", "file"),
    files=MappingProxyType(
        {
            "etc/rpm/macros.lab": _RPM_MACROS,
            # As Fedora has it; Debian's takes an older version where the asked one fails.
            "etc/dnf/dnf.conf": "[main]\n",
            "etc/dnf/libdnf5-plugins/local.conf": "[main]\nname = local\nenabled = 0\n",
            "etc/yum.repos.d/lab-fedora.repo": _FEDORA_REPO,
            "etc/os-release": _FEDORA,
        }
    ),
    setup=DNF.setup,
    newer=("dnf5", "rpm"),
)

_LEAP = """NAME="openSUSE Leap"
VERSION="15.6"
ID="opensuse-leap"
ID_LIKE="suse opensuse"
VERSION_ID="15.6"
PRETTY_NAME="openSUSE Leap 15.6 (SIMULATED on Debian by gpunode's lab)"
"""
_OSS_REPO = """[oss]
name=SIMULATED Main Repository of gpunode's lab
baseurl=http://127.0.0.1:8900/zypper/oss/leap/15.6
enabled=1
autorefresh=1
gpgcheck=1
repo_gpgcheck=1
pkg_gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/gpunode-lab.asc
"""
ZYPPER = Family(
    name="zypper",
    distribution="opensuse15",
    packages=("zypper", "rpm", "createrepo-c", "gnupg", "file"),
    files=MappingProxyType(
        {"etc/rpm/macros.lab": _RPM_MACROS, "etc/zypp/repos.d/lab-oss.repo": _OSS_REPO, "etc/os-release": _LEAP}
    ),
    setup=DNF.setup,
)
_ARCH = """NAME="Arch Linux"
ID=arch
BUILD_ID=rolling
PRETTY_NAME="Arch Linux (SIMULATED on Debian by gpunode's lab)"
"""
_PACMAN_CONF = """[options]
HoldPkg = pacman
Architecture = x86_64
CheckSpace
SigLevel = Required
LocalFileSigLevel = Optional

[core]
Include = /etc/pacman.d/mirrorlist

[extra]
Include = /etc/pacman.d/mirrorlist
"""
# The rolling release as it was on a day, which lab.pacman_repository.DAYS names.
_MIRRORLIST = "Server = http://127.0.0.1:8900/pacman/2025-10/$repo/os/$arch\n"
PACMAN = Family(
    name="pacman",
    distribution="arch",
    # repo-add and pacman-key load functions of makepkg.
    packages=("pacman-package-manager", "makepkg", "libarchive-tools", "zstd", "gnupg", "file"),
    files=MappingProxyType(
        {"etc/pacman.conf": _PACMAN_CONF, "etc/pacman.d/mirrorlist": _MIRRORLIST, "etc/os-release": _ARCH}
    ),
    setup="""
pacman-key --init > /dev/null 2>&1
pacman-key --add /work/key.asc > /dev/null 2>&1
fingerprint=$(gpg --batch --show-keys --with-colons /work/key.asc | awk -F: '$1 == "fpr" {print $10; exit}')
pacman-key --lsign-key "$fingerprint" > /dev/null 2>&1
gpgconf --homedir /etc/pacman.d/gnupg --kill all
pacman -U --noconfirm --nodeps --nodeps --dbonly /work/system/*.pkg.tar.zst
# The running kernel says that it is the package linux's.
mkdir -p "/usr/lib/modules/$(uname -r)"; echo linux > "/usr/lib/modules/$(uname -r)/pkgbase"
""",
)

FAMILIES: Mapping[str, Family] = MappingProxyType({family.name: family for family in (DNF, DNF5, ZYPPER, PACMAN)})


def family_named(name: str) -> Family | None:
    """Return the family of that name, None for apt's own; raise LabError for any other."""
    if name == APT:
        return None
    if name not in FAMILIES:
        raise LabError(f"--family {name}: not allowed; allowed are {', '.join((APT, *FAMILIES))}")
    return FAMILIES[name]
