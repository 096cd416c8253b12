"""Will the next boot leave the GPUs to NVIDIA's module, or does nouveau take them first?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.comparison import compared
from gpunode.base.subject import Subject
from gpunode.boot import Boot
from gpunode.findings import Finding


def nouveau(boot: Boot) -> Iterator[Finding]:
    """Judge whether nouveau is kept out, and of the initial file systems too; nothing on a node without a kernel."""
    kernel = boot.next_kernel
    if kernel is None:
        return
    kept_out = boot.blacklist_written is not None
    yield compared(
        "driver", Subject.NOUVEAU, "kept out" if kept_out else "may be loaded", "kept out", kept_out,
        cause="no file in modprobe.d blacklists it: at the next boot it may take the GPUs",
    )  # fmt: skip
    if kernel.initramfs_written is None and not boot.with_nouveau:
        return
    unknown = kernel.initramfs_nouveau is None
    found = "cannot be looked into" if unknown else "does not load nouveau"
    if boot.with_nouveau:
        found = f"of {', '.join(boot.with_nouveau)} holds nouveau"
    good = not unknown and not boot.with_nouveau
    cause = "it is older than the blacklist of nouveau, which may be loaded before the blacklist is read"
    if unknown:
        yield compared(
            "driver", Subject.INITRAMFS, found, "does not load nouveau", good, cause=cause,
            remedy=f"look at the initial file system of kernel {kernel.release} (`lsinitramfs`), and make it anew",
        )  # fmt: skip
        return
    yield compared("driver", Subject.INITRAMFS, found, "does not load nouveau", good, cause=cause)
