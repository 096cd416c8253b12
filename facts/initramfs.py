"""Initial file systems: the programs that list and make them, in one place for all who ask."""

from gpunode.base.probe import shell_text

# "RELEASE TIME" of each image that was looked into and does not load nouveau: to look takes a second per image.
LOOKED_INTO = "/var/lib/gpunode/initramfs-without-nouveau"

INITRAMFS = f"{shell_text('system/initramfs')}\n"
