"""Kernel modules, kernel parameters, and headers of the kernel that boots next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pyinfra import host
from pyinfra.api import QuoteString, StringCommand

from gpunode.base.shell_file import script_file
from gpunode.facts.system import Boot, KernelFeatures, KubernetesSysctls
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.families.dnf import DNF_RUN
from gpunode.operations.families.dnf import REFRESH as DNF_REFRESH
from gpunode.operations.families.dnf5 import DNF5_RUN
from gpunode.operations.families.dnf5 import REFRESH as DNF5_REFRESH
from gpunode.operations.families.zypper import REFRESH as ZYPPER_REFRESH
from gpunode.operations.families.zypper import ZYPP
from gpunode.operations.script import script_command

# Of kernel-devel several versions are installed side by side: the one that is needed was built with the kernel's image,
# and has that package's version.
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


@node_operation
def headers_installed(family: str) -> Iterator[Any]:
    """Install the headers of the kernel that boots next, at that kernel's version, where they are not there.

    + family: of the node's package manager: dnf, dnf5 or zypper
    """
    kernel = read_fact(Boot, "what boots next").next_kernel
    if kernel is None or kernel.headers:
        host.noop(f"the headers of kernel {kernel.release} are there" if kernel else "no kernel is known to boot next")
        return
    text = BY_DNF if family == "dnf" else BY_DNF5 if family == "dnf5" else BY_ZYPPER
    yield script_command(text, release=kernel.release)


@node_operation
def parameters_set(values: Mapping[str, str]) -> Iterator[Any]:
    """Set the parameters that differ; persist them with a file in /etc/sysctl.d beside this.

    + values: among those of gpunode.system.kernel
    """
    present = dict(read_fact(KubernetesSysctls, "the kernel's parameters").values)
    wrong = {name: value for name, value in values.items() if present.get(name) != value}
    if not wrong:
        host.noop(f"set: {', '.join(values)}")
        return
    yield StringCommand("sysctl", "-w", *(QuoteString(f"{name}={value}") for name, value in wrong.items()))


@node_operation
def loaded(modules: Sequence[str]) -> Iterator[Any]:
    """Load the modules whose effect is missing; persist them with a file in /etc/modules-load.d beside this.

    + modules: among overlay, br_netfilter and ib_umad
    """
    present = read_fact(KernelFeatures, "the kernel's features")
    missing = [module for module in modules if module not in present.present]
    if not missing:
        host.noop(f"loaded: {', '.join(modules)}")
        return
    yield StringCommand("modprobe", "-a", *(QuoteString(module) for module in missing))
