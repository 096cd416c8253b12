"""What a driver's packages are to each package manager: how it is asked, and its words.

driver_life and driver_interruption have the texts that ask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gpunode.lab.nodes import Node
from tests.molecule.conftest import out

PINS = "/etc/apt/preferences.d/gpunode-driver"
BLACKLIST = "/etc/apt/apt.conf.d/52gpunode-driver"
VERSIONLOCKS = "/etc/dnf/plugins/versionlock.list"
VERSIONLOCK = "/etc/dnf/versionlock.toml"
STREAM = "cat /etc/dnf/modules.d/nvidia-driver.module"
ZYPPER_LOCKS = "/etc/zypp/locks"
IGNORED = "/etc/pacman.d/gpunode.conf"
_SAVED = "/var/lib/gpunode/transactions/driver"
_DEBS = (
    "dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\\n' '*nvidia*' 'cuda-drivers*' 'libcuda1' "
    "'libcudadebugger1' 'libnvcuvid1' 2>/dev/null | grep '^installed ' | cut -d' ' -f2-"
)
_RPMS = "rpm -qa --qf '%{NAME} %{VERSION}\\n' '*nvidia*' 'cuda-drivers*' | sort"
# A package that no repository has.
_EXTRA_RPM = (
    "printf 'Name: nvidia-extra\\nVersion: 580.95.05\\nRelease: 1\\nSummary: x\\nLicense: x\\nBuildArch: noarch\\n"
    "%%description\\nx\\n%%files\\n' > /root/x.spec && rpmbuild -bb --quiet --define '_rpmdir /root' /root/x.spec && "
    "rpm -i /root/noarch/nvidia-extra-*.rpm"
)


@dataclass(frozen=True)
class Packages:
    """Hold shell text that asks one package manager, and what is said by it and of it.

    + installed: prints `NAME VERSION` of each of the driver's packages; `release`, a regular expression, fits what
      follows upstream's version there
    + held: prints the names of what is held; `holds` prints how
    + traces: prints nothing where no driver has come; state: prints all that a rollback has to put back
    + sound: succeeds where the package manager finds nothing wrong with what is installed
    + saved: the folder with the packages for a rollback
    + fabric_manager: the name of its package before branch 580, and since
    + transitional, unknown: what is said of branch 575, and of a version that is not to be had
    + no_way_back: makes a driver that could not come back; what is said of it then; takes it away again
    + hold_another: holds a package of somebody's, and its name; only_another: what `holds` prints of that alone
    + flavours: flavour -> packages that it alone has
    """

    installed: str
    held: str
    holds: str
    traces: str
    state: str
    sound: str
    saved: str
    unknown: tuple[str, ...]
    flavours: Mapping[str, frozenset[str]]
    no_way_back: tuple[str, str, str] = ("true", "", "true")
    hold_another: tuple[str, str] = ("true", "")
    only_another: str | None = None
    release: str = ""
    fabric_manager: tuple[str, str] = ("nvidia-fabric-manager", "nvidia-fabricmanager")
    transitional: tuple[str, ...] = ()

    def names(self, node: Node) -> list[str]:
        """Return the names of the driver's packages."""
        return [line.split()[0] for line in out(node, self.installed).splitlines()]

    def versions(self, node: Node) -> set[str]:
        """Return the versions of the driver's packages, as upstream has them."""
        found = {line.split()[1] for line in out(node, self.installed).splitlines()}
        parts = [re.fullmatch(f"(.+?)(?:{self.release})", version) for version in found]
        assert all(parts), found
        return {part[1] for part in parts if part}

    def fabric_manager_of(self, version: str) -> str:
        """Return the name of fabric manager's package, which is another one since branch 580."""
        return self.fabric_manager[int(version.partition(".")[0]) >= 580]

    def names_held(self, node: Node) -> list[str]:
        """Return the names of what is held, sorted."""
        return sorted(out(node, self.held).split())


APT = Packages(
    installed=_DEBS,
    release="-1",
    held="apt-mark showhold",
    holds=f"apt-mark showhold; cat {PINS} {BLACKLIST} 2>/dev/null || true",
    traces=f"{_DEBS}; apt-mark showhold",
    state=f"{_DEBS}; apt-mark showhold; apt-mark showauto | grep nvidia; cat {PINS} {BLACKLIST}",
    sound='said=$(dpkg --audit) && test -z "$said"',
    saved=f"{_SAVED}/debs",
    fabric_manager=("nvidia-fabricmanager-570", "nvidia-fabricmanager"),
    transitional=("is not of branch 575: a package that is asked for is a transitional one",),
    unknown=("nvidia-open is not to be had at 570.999.01",),
    hold_another=("apt-mark hold tar", "tar"),
    only_another="tar",
    flavours={},
)
DNF = Packages(
    installed=_RPMS,
    held=f"sed '/^#/d; s/-[0-9]*:.*//' {VERSIONLOCKS}",
    holds=f"cat {VERSIONLOCKS}",
    # What dnf was asked, it was asked of a stream that the node itself has not been given.
    traces=f"{_RPMS}; {STREAM}",
    state=f"{_RPMS}; {STREAM}; cat {VERSIONLOCKS}",
    sound='said=$(dnf -q check) && test -z "$said"',
    saved=f"{_SAVED}/rpms",
    transitional=(
        "dnf would refuse",
        # Which of the two that it needs dnf names first is its own affair.
        "package nvidia-open-3:575.64.05-1.el9.noarch requires",
        ">= 3:580",
        "is filtered out by modular filtering",
    ),
    unknown=("nvidia-open is not to be had at 570.999.01", "3:570.172.08-1.el9"),
    no_way_back=(_EXTRA_RPM, "nvidia-extra=580.95.05-1", "rpm -e nvidia-extra"),
    hold_another=(f"echo 'curl-0:1.1-1.el9.*' >> {VERSIONLOCKS}", "curl"),
    only_another="curl-0:1.1-1.el9.*",
    flavours={
        "open": frozenset({"nvidia-open", "kmod-nvidia-open-dkms"}),
        "proprietary": frozenset({"cuda-drivers", "kmod-nvidia-latest-dkms"}),
    },
)
DNF5 = Packages(
    installed=_RPMS,
    held="dnf5 versionlock list | sed -n 's/^Package name: //p'",
    holds=f"cat {VERSIONLOCK}",
    traces=f"{_RPMS}; cat {VERSIONLOCK}",
    state=f"{_RPMS}; cat {VERSIONLOCK}",
    sound='said=$(dnf5 -q check) && test -z "$said"',
    saved=f"{_SAVED}/rpms",
    unknown=("nvidia-open is not to be had at 580.999.01", "3:580.95.05-1.fc42"),
    no_way_back=(_EXTRA_RPM, "nvidia-extra=580.95.05-1", "rpm -e nvidia-extra"),
    hold_another=("dnf5 -q versionlock add curl", "curl"),
    flavours=DNF.flavours,
)
# A module that comes built has its kernel in its version.
_SUSE_RPMS = f"{_RPMS} | sed 's/_k[^ ]*//'"
ZYPPER = Packages(
    installed=_SUSE_RPMS,
    held=f"sed -n 's/^solvable_name: //p' {ZYPPER_LOCKS}",
    holds=f"cat {ZYPPER_LOCKS}",
    traces=_SUSE_RPMS,
    state=f"{_RPMS}; cat {ZYPPER_LOCKS}",
    sound="zypper -n --no-refresh verify | grep 'Dependencies of all installed packages are satisfied'",
    saved=f"{_SAVED}/rpms",
    transitional=("which is not of branch 575: a package that is asked for is a transitional one",),
    unknown=("nvidia-compute-utils-G06 is not to be had at 570.999.01", "570.172.08-1"),
    no_way_back=(_EXTRA_RPM, "nvidia-extra=580.95.05-1", "rpm -e nvidia-extra"),
    hold_another=("zypper -n addlock curl", "curl"),
    flavours={
        "open": frozenset({"nvidia-open-driver-G06"}),
        "proprietary": frozenset({"nvidia-driver-G06"}),
    },
)
PACMAN = Packages(
    installed="pacman -Q | grep nvidia",
    # A module that comes built has a number of its own.
    release=r"-\d+",
    held="pacman-conf IgnorePkg",
    holds=f"cat {IGNORED} 2>/dev/null || true",
    traces="pacman -Q | grep nvidia",
    state=f"pacman -Q | grep nvidia; cat {IGNORED}; pacman -Qeq",
    sound="pacman -Dk | grep '^No database errors' && pacman -Qkq nvidia-open nvidia-utils",
    saved=f"{_SAVED}/packages.d",
    unknown=(
        "is not to be had at 580.95.05; the repositories have 580.82.07-1",
        "https://archive.archlinux.org/repos/YYYY/MM/DD",
        "driver.source = 'runfile'",
    ),
    no_way_back=(f"rm -rf /var/cache/pacman/pkg {_SAVED}", "nvidia-utils=590.48.01-1", "true"),
    # The node has had it since before gpunode came.
    hold_another=("true", "bash"),
    only_another="",
    flavours={"open": frozenset({"nvidia-open"}), "proprietary": frozenset({"nvidia"})},
)
