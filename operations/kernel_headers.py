"""Headers of the kernel that boots next, where their package has one name for all kernels (kernel-devel).

Of such a package several versions are there side by side, so that it is not asked for by name and version as others
are: the one that is needed was built with the kernel's image, and so has that package's version.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.facts.boot import Boot
from gpunode.operations.explained import explained_command
from gpunode.operations.failure import node_operation, require
from gpunode.operations.families.headers import BY_DNF, BY_DNF5, BY_ZYPPER
from gpunode.operations.script import script_command


@node_operation
def installed(family: str) -> Iterator[Any]:
    """Install the headers of the kernel that boots next, at that kernel's version, where they are not there.

    + family: of the node's package manager: dnf, dnf5 or zypper
    """
    kernel = require(host.get_fact(Boot), "what boots next").next_kernel
    if kernel is None or kernel.headers:
        host.noop(f"the headers of kernel {kernel.release} are there" if kernel else "no kernel is known to boot next")
        return
    text = BY_DNF if family == "dnf" else BY_DNF5 if family == "dnf5" else BY_ZYPPER
    yield explained_command(script_command(text, release=kernel.release))
