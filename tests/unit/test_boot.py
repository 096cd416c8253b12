"""What boots next: GRUB's configuration, links and names read as a boot loader reads them."""

from __future__ import annotations

import base64

import pytest

from gpunode.system.boot import grub_next, parse_boot

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


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _kernels(*releases: str) -> list[str]:
    return [
        "running=6.1.0-9-amd64",
        *(f"kernel={name} headers=no initramfs= module= signer= gcc=" for name in releases),
    ]


def test_grub_decides_then_the_link_then_the_newest() -> None:
    lines = _kernels("6.1.0-9-amd64", "6.1.0-40-amd64", "6.1.0-100-amd64")
    newest = parse_boot(lines)
    assert (newest.next_release, newest.decided_by) == ("6.1.0-100-amd64", "newest")
    linked = parse_boot([*lines, "link=/boot/vmlinuz-6.1.0-9-amd64"])
    assert (linked.next_release, linked.decided_by) == ("6.1.0-9-amd64", "link")
    grub = parse_boot([*lines, "link=/boot/vmlinuz-6.1.0-9-amd64", f"grub={_coded(GRUB)}"])
    assert (grub.next_release, grub.decided_by) == ("6.1.0-40-amd64", "grub")


def test_a_menu_entry_whose_kernel_was_removed_decides_nothing() -> None:
    boot = parse_boot([*_kernels("6.1.0-9-amd64"), f"grub={_coded(GRUB)}"])
    assert (boot.next_release, boot.decided_by) == ("6.1.0-9-amd64", "newest")


def test_a_container_has_no_next_kernel() -> None:
    boot = parse_boot(["running=6.18.44"])
    assert boot.next_release is None and boot.next_kernel is None


def test_every_line_of_the_probe_is_read() -> None:
    boot = parse_boot([
        "running=6.1.0-40-amd64",
        "kernel=6.1.0-40-amd64 headers=yes initramfs=1700000000 module=580.95.05 signer=DKMS_module_key gcc=12 "
        "nouveau=yes",
        "dkms=nvidia 580.95.05 - added",
        "dkms=nvidia 580.95.05 6.1.0-40-amd64 installed",
        "secure_boot=1", "key_enrolled=yes", "blacklist=1700000001.25", "gcc=13",
    ])  # fmt: skip
    kernel = boot.next_kernel
    assert kernel is not None
    assert (kernel.headers, kernel.module_version, kernel.module_signer) == (True, "580.95.05", "DKMS module key")
    assert (kernel.initramfs_written, kernel.compiler) == (1700000000, "12")
    assert kernel.initramfs_nouveau
    assert boot.dkms_state("nvidia", "6.1.0-40-amd64") == "installed"
    assert boot.dkms_state("nvidia", "6.1.0-9-amd64") == "added"
    assert boot.dkms_state("other", "6.1.0-40-amd64") is None
    assert (boot.secure_boot, boot.key_enrolled) == (True, True)
    assert (boot.blacklist_written, boot.compiler) == (1700000001.25, "13")


def test_without_uefi_secure_boot_is_unknown_not_off() -> None:
    assert parse_boot(["running=6.1"]).secure_boot is None
    assert parse_boot(["running=6.1", "secure_boot=0"]).secure_boot is False
