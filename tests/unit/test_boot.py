"""What boots next: GRUB's configuration, links and names read as a boot loader reads them."""

from __future__ import annotations

import pytest

from gpunode.system.boot import grub_next, parse_boot
from tests.support.readings import encoded

pytestmark = pytest.mark.pure

# As grub-mkconfig writes it, reduced to the lines that the probe keeps.
GRUB = """
   set default="${next_entry}"
   set default="0"
menuentry 'Debian GNU/Linux' --class debian --class gnu-linux $menuentry_id_option 'gnulinux-simple-1' {
        linux   /boot/vmlinuz-6.1.0-40-amd64 root=UUID=1 ro quiet
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-1' {
        menuentry 'Debian, with Linux 6.1.0-40-amd64' --class debian $menuentry_id_option 'gnulinux-40-advanced-1' {
                linux   /boot/vmlinuz-6.1.0-40-amd64 root=UUID=1 ro quiet
        }
        menuentry 'Debian, with Linux 6.1.0-9-amd64' --class debian $menuentry_id_option 'gnulinux-9-advanced-1' {
                linux   /boot/vmlinuz-6.1.0-9-amd64 root=UUID=1 ro quiet
        }
}
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
}
"""


@pytest.mark.parametrize(
    ("default", "environment", "release"),
    [
        ("0", "", "6.1.0-40-amd64"),
        ("1>1", "", "6.1.0-9-amd64"),
        ("1", "", "6.1.0-40-amd64"),
        ("gnulinux-advanced-1>gnulinux-9-advanced-1", "", "6.1.0-9-amd64"),
        ("1>gnulinux-9-advanced-1", "", "6.1.0-9-amd64"),
        ("gnulinux-advanced-1>1", "", "6.1.0-9-amd64"),
        # Within a submenu GRUB looks for no bare name: it takes the first entry, and so the newest kernel.
        ("gnulinux-9-advanced-1", "", "6.1.0-40-amd64"),
        ("Debian, with Linux 6.1.0-9-amd64", "", "6.1.0-40-amd64"),
        ("Advanced options for Debian GNU/Linux>Debian, with Linux 6.1.0-9-amd64", "", "6.1.0-9-amd64"),
        ("${saved_entry}", "saved_entry=1>1", "6.1.0-9-amd64"),
        ("${saved_entry}", "", "6.1.0-40-amd64"),
        ("0", "next_entry=gnulinux-advanced-1>gnulinux-9-advanced-1", "6.1.0-9-amd64"),
        ("2", "", "6.1.0-40-amd64"),
        ("something that is not there", "", "6.1.0-40-amd64"),
    ],
)
def test_grub_s_default_is_followed_through_numbers_titles_ids_and_submenus(
    default: str, environment: str, release: str
) -> None:
    assert grub_next(GRUB.replace('set default="0"', f'set default="{default}"'), environment) == release


@pytest.mark.parametrize(
    ("releases", "next_release", "decided_by"),
    [
        (("6.1.0-9-amd64", "6.1.0-40-amd64", "6.1.0-100-amd64"), "6.1.0-40-amd64", "grub"),
        # A menu entry whose kernel was removed decides nothing.
        (("6.1.0-9-amd64",), "6.1.0-9-amd64", "link"),
    ],
)
def test_grub_decides_before_the_link(releases: tuple[str, ...], next_release: str, decided_by: str) -> None:
    kernels = [f"kernel={name} headers=no initramfs= module= signer= gcc=" for name in releases]
    boot = parse_boot(["running=6.1.0-9-amd64", *kernels, "link=/boot/vmlinuz-6.1.0-9-amd64", f"grub={encoded(GRUB)}"])
    assert (boot.next_release, boot.decided_by) == (next_release, decided_by)
