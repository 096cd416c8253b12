"""Initial file systems: made anew where one would load nouveau before the root file system's blacklist is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from facts.boot import Boot
from facts.initramfs import INITRAMFS
from operations.failure import known, node_operation
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
  printf '%s\\n' "$inside" | grep -qF "lib/modules/$release/" || {
    echo "gpunode: the new initial file system of kernel $release holds no module of it; the old one stays" >&2
    exit 1; }
  printf '%s\\n' "$inside" | grep -qF "/$blacklist" || reject "the new initial file system of kernel $release lacks\\
 $blacklist; look for a hook of the node's own that leaves /etc/modprobe.d out"
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
    boot = known(host.get_fact(Boot), "what boots next")
    stale = boot.with_nouveau
    if not stale:
        there = any(kernel.initramfs_written is not None for kernel in boot.kernels)
        host.noop("no initial file system loads nouveau" if there else "there is no initial file system")
        return
    # A newer blacklist or image is a new try: whatever stood in the way may be gone.
    written = (f"{kernel.release} {kernel.initramfs_written}" for kernel in boot.kernels if kernel.release in stale)
    target = target_digest(*written, str(boot.blacklist_written))
    refuse_failed(_REBUILD, target)
    yield transaction_command(_REBUILD, target, releases=" ".join(stale), blacklist=blacklist)
