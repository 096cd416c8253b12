"""Shell text that installs the headers of kernel $release, by the version of the kernel's own package."""

from __future__ import annotations

from gpunode.base.shell_file import script_file
from gpunode.operations.families.dnf import DNF_RUN
from gpunode.operations.families.dnf import REFRESH as DNF_REFRESH
from gpunode.operations.families.dnf5 import DNF5_RUN
from gpunode.operations.families.dnf5 import REFRESH as DNF5_REFRESH
from gpunode.operations.families.zypper_shell import REFRESH as ZYPPER_REFRESH
from gpunode.operations.families.zypper_shell import ZYPP

_INSTALL = script_file("kernel_headers")

# What is locked is locked against others: it is by its own kernel's version that it comes.
BY_DNF = f"""{DNF_RUN}{DNF_REFRESH}
add() {{ refresh ""; dnf_run --disableplugin=versionlock install "$1-$2"; }}
upgrade="dnf upgrade"
{_INSTALL}"""
BY_DNF5 = f"""{DNF5_RUN}{DNF5_REFRESH}
add() {{ refresh ""; dnf_unlocked install "$1-$2"; }}
upgrade="dnf upgrade"
{_INSTALL}"""
BY_ZYPPER = f"""{ZYPP}{ZYPPER_REFRESH}
add() {{ refresh ""; zypp install --no-recommends --oldpackage "$1=$2"; }}
upgrade="zypper update"
{_INSTALL}"""
