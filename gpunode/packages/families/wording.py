"""What a person is told to do by hand, in the words of the node's own package manager."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from gpunode.base import tables
from gpunode.system.boot import Kernel
from gpunode.system.operating_system import OperatingSystem


@dataclass(frozen=True)
class Wording:
    """Hold what people of one family type.

    It is what lists installed packages, names the package of a file that is gone, installs, installs again, removes,
    shows the versions that the repositories have, tells of and ends what was interrupted, and makes initial file
    systems; `elsewhere` says where packages are that the distribution itself lacks.
    """

    installed: str
    owner: str
    install: str
    again: str
    remove: str
    offered: str
    unfinished: str
    initramfs: str
    elsewhere: Mapping[str, str] = field(default_factory=dict)

    def to_install(self, names: Collection[str]) -> str:
        """Return how packages are installed, and where those are that the distribution itself has not."""
        notes = "; ".join(f"{name} is in {place}" for name, place in self.elsewhere.items() if name in names)
        return f"{self.install} {' '.join(names)}" + (f" ({notes})" if notes else "")


_DNF = Wording(
    installed="rpm -qa",
    owner="rpm -qa --filesbypkg | grep",
    install="dnf install",
    again="dnf reinstall",
    remove="dnf remove",
    offered="dnf list --showduplicates",
    unfinished="`dnf check`",
    initramfs="dracut --force",
)
_WORDS: Mapping[str, Wording] = MappingProxyType(
    {
        "apt": Wording(
            installed="dpkg-query -W",
            owner="dpkg -S",
            install="apt-get install",
            again="apt-get install --reinstall",
            remove="apt-get remove",
            offered="apt-cache policy",
            unfinished="`dpkg --audit` and `dpkg --configure -a`",
            initramfs="update-initramfs -u",
        ),
        "dnf": replace(_DNF, elsewhere=MappingProxyType({"dkms": "EPEL, whose repository has to be enabled first"})),
        "dnf5": _DNF,
        "zypper": replace(
            _DNF,
            install="zypper install",
            again="zypper install --force",
            remove="zypper remove",
            offered="zypper search -s",
            unfinished="`zypper verify`",
        ),
        "pacman": Wording(
            installed="pacman -Q",
            owner="pacman -Ql | grep",
            install="pacman -S",
            again="pacman -S",
            remove="pacman -R",
            offered="pacman -Si",
            unfinished="`pacman -Dk`",
            initramfs="mkinitcpio -P",
        ),
    }
)
# Of a system that is in no table, and is refused as such.
_ANY = Wording(
    installed="the list of installed packages",
    owner="the list of installed files",
    install="install",
    again="install again",
    remove="remove",
    offered="the repositories have",
    unfinished="the package manager's log",
    initramfs="its maker",
)


def wording(system: OperatingSystem) -> Wording:
    """Return the words for a node's operating system."""
    distribution = tables.distribution(system.id, system.version_id)
    if distribution is None:
        return _ANY
    found = _WORDS[distribution.family]
    return found if distribution.epel else replace(found, elsewhere=MappingProxyType({}))


def headers_package(system: OperatingSystem, kernel: Kernel) -> str:
    """Return the package of a kernel's headers."""
    row = next((row for row in tables.driver_sources() if system.id in row.systems), None)
    named = row.for_kernels((kernel.base,) if kernel.base else ()).headers if row else "the headers of <kernel>"
    return named.replace("<kernel>", kernel.release)
