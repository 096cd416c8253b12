"""Initial file systems: made anew where one would load nouveau before the root file system's blacklist is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from facts.boot import Boot as BootFact
from facts.initramfs import INITRAMFS, LOOKED_INTO
from gpunode.boot import Boot
from operations.failure import OperationRefused, known, node_operation
from operations.files import write_command
from operations.transaction import Transaction, refuse_failed, settled, target_digest, transaction_command

# A second name keeps the old image, and takes no room in /boot, where there may be little; an EFI partition knows no
# second names. It goes only once the new image was read to its end and holds what it was made for.
_REBUILD = Transaction(
    name="initramfs",
    shared=INITRAMFS,
    checkpoint="""
for release in $releases; do
  image=$(initramfs_of "$release")
  rm -f "$image.gpunode-old"
  ln "$image" "$image.gpunode-old" 2>/dev/null || cp -p "$image" "$image.gpunode-old" || {
    rm -f "$image.gpunode-old"; echo "gpunode: there is no room in /boot to keep the old $image; nothing changed" >&2
    exit 1; }
done
""",
    change="""
for release in $releases; do
  make_initramfs "$release" || {
    echo "gpunode: the initial file system of kernel $release could not be made; the old one stays. Look at the" \\
      "words above, and at the room in /boot: $(df -h --output=avail /boot | tail -n 1 | tr -d ' ') left" >&2; exit 1; }
  image=$(initramfs_of "$release")
  inside=$(list_initramfs "$image") || {
    echo "gpunode: the new initial file system of kernel $release cannot be read to its end; the old one stays" >&2
    exit 1; }
  printf '%s\\n' "$inside" | grep -F "lib/modules/$release/" > /dev/null || {
    echo "gpunode: the new initial file system of kernel $release holds no module of it; the old one stays" >&2
    exit 1; }
  # It may leave nouveau out altogether (deploys/driver.py), and /etc/modprobe.d where it is made for any machine.
  # To its end: without a reader printf would complain.
  ! printf '%s\\n' "$inside" | grep '/nouveau\\.ko' > /dev/null ||
    printf '%s\\n' "$inside" | grep -F "/$blacklist" > /dev/null ||
    reject "the new initial file system of kernel $release lacks $blacklist; look for a hook of the node's own that\\
 leaves /etc/modprobe.d out"
  sync -f "$image"
done
for release in $releases; do rm -f "$(initramfs_of "$release").gpunode-old"; done
""",
    restore="""
for release in $releases; do
  image=$(initramfs_of "$release") || image=/boot/initrd.img-$release
  old=$image.gpunode-old
  # Two names of one file still: there is nothing to put back, and mv would complain.
  if [ -e "$old" ] && ! [ "$old" -ef "$image" ]; then mv -f "$old" "$image" || return 1; fi
  rm -f "$old"
done
sync -f /boot
""",
)


@node_operation
def without_nouveau(blacklist: str) -> Iterator[Any]:
    """Make each initial file system anew that would load nouveau, and keep the old one until the new one is whole.

    + blacklist: name of the file in modprobe.d that keeps nouveau out, by which a new one is known
    """
    yield from settled(_REBUILD)
    boot = known(host.get_fact(BootFact), "what boots next")
    stale = boot.with_nouveau
    if stale:
        # A newer blacklist or image is a new try: whatever stood in the way may be gone.
        written = (line for line in _images(boot) if line.split(" ")[0] in stale)
        target = target_digest(*written, str(boot.blacklist_written))
        refuse_failed(_REBUILD, target)
        yield transaction_command(_REBUILD, target, releases=" ".join(stale), blacklist=blacklist)
        boot = known(host.get_fact(BootFact), "what boots next")
        if boot.with_nouveau:
            raise OperationRefused(
                f"the initial file systems of {', '.join(boot.with_nouveau)} were made anew, and still would load "
                f"nouveau; look into them, and whether {blacklist} is in /etc/modprobe.d"
            )
    if any(kernel.initramfs_read for kernel in boot.kernels):
        lines = _images(boot)
        yield write_command(LOOKED_INTO, "".join(f"{line}\n" for line in lines))
    elif not stale:
        host.noop("no initial file system loads nouveau" if _images(boot) else "there is no initial file system")


def _images(boot: Boot) -> list[str]:
    """Return "RELEASE TIME" of each image that is there and could be read."""
    return [
        f"{kernel.release} {kernel.initramfs_written:.0f}"
        for kernel in boot.kernels
        if kernel.initramfs_written is not None and kernel.initramfs_nouveau is not None
    ]
