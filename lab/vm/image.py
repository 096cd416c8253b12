"""The disk that all virtual machines of the lab begin from: Debian with a kernel of its own, built once and cached."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from gpunode.lab.cache import cache_dir, complete_or_nothing, locked, mark_used, remove, remove_partial
from gpunode.lab.chroot import run, within, write
from gpunode.lab.errors import LabError
from gpunode.lab.hardware import hardware_digest
from gpunode.lab.hardware.image import install_pci
from gpunode.lab.image import base_digest, debian_base

Report = Callable[[str], None]

# How many kernels there are: the one that is installed, and those that the node may be updated to.
KERNELS = 3
# Sparse: preflight asks for room that fixture packages never take.
_SIZE = "20G"
_FILES = Path(__file__).parent / "files"
_NODE_FILES = Path(__file__).parent.parent / "node"
_KERNEL = re.compile(r"^linux-headers-(6\.\d+\.\d+-(\d+)-cloud-amd64)\b", re.MULTILINE)
# initramfs-tools before any kernel: its settings count for the first initial file system already.
_FIRST = ("initramfs-tools", "zstd", "udev", "grub2-common", "grub-common")
_BUILD = ("dkms", "gcc", "make", "libc6-dev")
# It leaves a boot alone that has no seed (gpunode/lab/vm/seed.py).
_FIRST_BOOT = ("cloud-init",)
_MASKED = (
    *("apt-daily.service", "apt-daily.timer", "apt-daily-upgrade.service", "apt-daily-upgrade.timer"),
    *("getty.target", "serial-getty@ttyS0.service", "dpkg-db-backup.timer", "e2scrub_all.timer"),
    *("e2scrub_reap.service", "fstrim.timer", "systemd-timesyncd.service"),
)
_PLACES = (
    (_NODE_FILES / "sshd.conf", "etc/ssh/sshd_config.d/gpunode-lab.conf", 0o644),
    (_NODE_FILES / "lab-mirror.service", "etc/systemd/system/lab-mirror.service", 0o644),
    (_NODE_FILES / "mirror.py", "usr/lib/gpunode-lab-mirror.py", 0o644),
    (_NODE_FILES / "operator.sudoers", "etc/sudoers.d/operator", 0o440),
    (_NODE_FILES / "dpkg-slim.conf", "etc/dpkg/dpkg.cfg.d/gpunode-lab", 0o644),
    (_FILES / "cloud-init.cfg", "etc/cloud/cloud.cfg.d/99-gpunode-lab.cfg", 0o644),
    (_FILES / "fstab", "etc/fstab", 0o644),
    (_FILES / "network", "etc/systemd/network/10-lab.network", 0o644),
    (_FILES / "default-grub", "etc/default/grub", 0o644),
    (_FILES / "initramfs.conf", "etc/initramfs-tools/conf.d/gpunode-lab", 0o644),
    (_FILES / "initramfs-modules", "etc/initramfs-tools/modules", 0o644),
    (_FILES / "initramfs-hook", "etc/initramfs-tools/hooks/gpunode-lab", 0o755),
)
_ARCHIVE = "srv/gpunode-lab/debian"
_SOURCES = "Types: deb\nURIs: file:/srv/gpunode-lab/debian\nSuites: ./\nTrusted: yes\n"
_STAND_IN = "srv/gpunode-lab/nouveau"
# What core.img needs to find the disk by its label and to read any grub.cfg that update-grub writes.
_GRUB_MODULES = (
    *(
        "biosdisk",
        "ext2",
        "linux",
        "normal",
        "configfile",
        "search",
        "search_label",
        "search_fs_uuid",
        "search_fs_file",
    ),
    *("test", "echo", "ls", "gzio", "part_msdos", "part_gpt", "serial", "terminal", "loadenv", "all_video", "sleep"),
    *("boot", "minicmd", "true", "halt", "reboot"),
)
_GRUB = Path("/usr/lib/grub/i386-pc")
_KEPT_SECONDS = 7 * 86400


def disk(report: Report) -> Path:
    """Return the folder with root.ext4, loader (GRUB, for -kernel) and kernels (one release per line, oldest first).

    It is named by the digest of what went into it. Raises LabError if the build fails.
    """
    folder = cache_dir() / "vm"
    folder.mkdir(exist_ok=True)
    with locked(folder / "lock"):
        remove_partial(folder)
        wanted = folder / _digest()
        if wanted.is_dir():
            report("virtual machine's disk: found in the cache")
        else:
            with complete_or_nothing(wanted) as draft:
                _build(draft, report)
        mark_used(wanted)
        _remove_unused(folder, wanted)
        return wanted


def releases(folder: Path) -> tuple[str, ...]:
    """Return the kernels of a built disk, oldest first; the first one is installed, the others can be."""
    return tuple((folder / "kernels").read_text(encoding="utf-8").split())


def _digest() -> str:
    digest = hashlib.sha256(f"{base_digest()}\0{hardware_digest()}\0".encode())
    for path in (Path(__file__), *sorted(_FILES.iterdir()), *(place[0] for place in _PLACES)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _remove_unused(folder: Path, wanted: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and path != wanted and time.time() - path.stat().st_mtime > _KEPT_SECONDS:
            remove(path)


def _build(draft: Path, report: Report) -> None:
    started = time.monotonic()
    root = draft / "root"
    with debian_base(report) as base:
        run(["cp", "-a", "--reflink=auto", str(base), str(root)], "copying the base image")
    report("virtual machine's disk: installing a kernel and what DKMS needs (two minutes, once)")
    policy = root / "usr/sbin/policy-rc.d"
    write(policy, "#!/bin/sh\nexit 101\n", 0o755)
    _install(root, *_FIRST)
    for source, place, mode in _PLACES:
        write(root / place, source.read_text(encoding="utf-8"), mode)
    kernels = _kernels(root)
    _install(root, *_FIRST_BOOT, *_BUILD, *(f"linux-{kind}-{kernels[0]}" for kind in ("image", "headers")))
    _add_nouveau(root, kernels[0])
    report(f"virtual machine's disk: kernel {kernels[0]} is in; fetching {', '.join(kernels[1:])}")
    _archive(root, kernels[1:])
    grub = (_FILES / "grub.cfg").read_text(encoding="utf-8").replace("@release@", kernels[0])
    write(root / "boot/grub/grub.cfg", grub)
    within(root, "update-initramfs", "-u", "-k", kernels[0])
    policy.unlink()
    _set_up_units(root)
    install_pci(root)
    _loader(draft)
    _file_system(root, draft / "root.ext4")
    write(draft / "kernels", "".join(f"{release}\n" for release in kernels))
    shutil.rmtree(root)
    report(f"virtual machine's disk: done in {time.monotonic() - started:.0f} s")


def _install(root: Path, *packages: str) -> None:
    within(root, "apt-get", "install", "-y", "--no-install-recommends", *packages)


def _kernels(root: Path) -> tuple[str, ...]:
    listed = within(root, "apt-cache", "search", "--names-only", "^linux-headers-6[.].*-cloud-amd64$")
    found = sorted({(int(number), release) for release, number in _KERNEL.findall(listed)})
    if len(found) < KERNELS:
        raise LabError(
            f"Debian's archive has {len(found)} kernels for clouds ({listed.strip() or 'none'}), and the lab needs "
            f"{KERNELS}, to update from one to the next: look at `apt-cache search linux-headers-6` on this machine"
        )
    return tuple(release for _, release in found[-KERNELS:])


def _add_nouveau(root: Path, release: str) -> None:
    """Build what stands in for nouveau, which a kernel for clouds does not have, into the first kernel's modules."""
    folder = root / _STAND_IN
    write(folder / "nouveau.c", (_FILES / "nouveau.c").read_text(encoding="utf-8"))
    write(folder / "Kbuild", "obj-m := nouveau.o\n")
    within(root, "make", "-C", f"/lib/modules/{release}/build", f"M=/{_STAND_IN}", "modules")
    target = root / f"lib/modules/{release}/kernel/drivers/gpu/drm/nouveau"
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / "nouveau.ko", target / "nouveau.ko")
    within(root, "depmod", release)


def _archive(root: Path, kernels: tuple[str, ...]) -> None:
    """Make the other kernels, their headers, and what the base image has fetched, the node's archive of Debian."""
    wanted = [f"linux-{kind}-{release}" for release in kernels for kind in ("image", "headers")]
    within(root, "apt-get", "install", "-y", "--no-install-recommends", "--download-only", *wanted)
    folder = root / _ARCHIVE
    folder.mkdir(parents=True)
    for file in (root / "var/cache/apt/archives").glob("*.deb"):
        shutil.move(file, folder / file.name)
    result = subprocess.run(["apt-ftparchive", "packages", "."], cwd=folder, capture_output=True, check=False)
    if result.returncode:
        raise LabError(f"apt-ftparchive failed: {result.stderr.decode(errors='replace').strip()}")
    (folder / "Packages").write_bytes(result.stdout)
    shutil.rmtree(root / "var/lib/apt/lists")
    (root / "var/lib/apt/lists/partial").mkdir(parents=True)
    write(root / "etc/apt/sources.list.d/debian.sources", _SOURCES)


def _set_up_units(root: Path) -> None:
    within(root, "systemctl", "enable", "lab-mirror.service", "ssh.service", "systemd-networkd.service")
    for unit in _MASKED:
        link = root / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
    write(root / "etc/hostname", "gpu-vm\n")


def _loader(draft: Path) -> None:
    """Make GRUB a file that QEMU takes for a kernel: the disk needs no boot sector, and its own grub.cfg decides."""
    if not (_GRUB / "lnxboot.img").exists():
        raise LabError("GRUB's modules are missing: apt-get install --no-install-recommends grub-pc-bin grub-common")
    core = draft / "core.img"
    command = ["grub-mkimage", "-O", "i386-pc", "-p", "/boot/grub", "-c", str(_FILES / "loader.cfg"), "-o", str(core)]
    run([*command, *_GRUB_MODULES], "grub-mkimage")
    (draft / "loader").write_bytes((_GRUB / "lnxboot.img").read_bytes() + core.read_bytes())
    core.unlink()


def _file_system(root: Path, target: Path) -> None:
    # Tables that are not left to the node's kernel to write, and no more inodes than are of use.
    options = ["-E", "lazy_itable_init=0", "-N", "200000"]
    run(["mke2fs", "-q", "-t", "ext4", "-L", "gpunode-root", *options, "-d", str(root), str(target), _SIZE], "mke2fs")
