"""Initial file systems: made anew where one would load nouveau before the root file system's blacklist is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.base.shell_file import script_file
from gpunode.facts.system import INITRAMFS, LOOKED_INTO
from gpunode.facts.system import Boot as BootFact
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.files import write_command
from gpunode.operations.transaction import Transaction, refuse_failed, settled, transaction_command

_REBUILD = Transaction("initramfs", INITRAMFS + script_file("initramfs"))


@node_operation
def without_nouveau(blacklist: str) -> Iterator[Any]:
    """Make each initial file system anew that would load nouveau, and keep the old one until the new one is whole.

    + blacklist: name of the file in modprobe.d that keeps nouveau out, by which a new one is known
    """
    yield from settled(_REBUILD)
    boot = read_fact(BootFact, "what boots next")
    stale = boot.with_nouveau
    if stale:
        # A newer blacklist or image is a new try: whatever stood in the way may be gone.
        refuse_failed(_REBUILD, boot.new_images)
        yield transaction_command(_REBUILD, boot.new_images, releases=" ".join(stale), blacklist=blacklist)
        boot = read_fact(BootFact, "what boots next")
        if boot.with_nouveau:
            raise OperationRefused(
                f"the initial file systems of {', '.join(boot.with_nouveau)} were made anew, and still would load "
                f"nouveau. Remedy: look into them (`lsinitramfs`), and whether {blacklist} is in /etc/modprobe.d"
            )
    if any(kernel.initramfs_read for kernel in boot.kernels):
        yield write_command(LOOKED_INTO, "".join(f"{line}\n" for line in boot.images))
    elif not stale:
        host.noop("no initial file system loads nouveau" if boot.images else "there is no initial file system")
