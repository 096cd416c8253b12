"""The root filesystem that all nodes of a lab share, built once and kept in the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gpunode.lab import apt_lists
from gpunode.lab.cache import cache_dir, complete_or_nothing, locked, mark_used, remove, remove_partial
from gpunode.lab.chroot import run, within, write
from gpunode.lab.errors import LabError
from gpunode.lab.families import Family
from gpunode.lab.family_image import family_digest, finish, install_tools, tools_digest
from gpunode.lab.family_mirror import system_digests, system_files
from gpunode.lab.hardware import hardware_digest, install_hardware
from gpunode.lab.hardware.image import HardwareInstallError
from gpunode.lab.host_apt import HostApt, host_apt
from gpunode.lab.podman import attempt, podman
from gpunode.lab.signing import key_file, public_key

Report = Callable[[str], None]

SUITE = "bookworm"
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "sudo",
    "iproute2",
    "ca-certificates",
    "procps",
    "kmod",
    "curl",
    "gpg",
    "gpgv",
    "python3",
    "busybox-static",
)
# Fetched but not installed, so that a node need not download them.
_PREFETCHED = ("containerd", "runc")
# They would take apt's lock at a time of their own, want hardware that a container does not have, or change the
# kernel that the node shares with this machine.
_MASKED = (
    "apt-daily.service",
    "apt-daily.timer",
    "apt-daily-upgrade.service",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "getty.target",
    "systemd-binfmt.service",
    "systemd-sysctl.service",
    "systemd-udevd.service",
    "systemd-udev-trigger.service",
)
_APPLETS = ("sh", "ls", "cat", "true", "false", "sleep", "echo", "stat", "id", "env", "test", "grep", "mount")
_NODE_FILES = Path(__file__).parent / "node"
_PLACES = (
    ("sshd.conf", "etc/ssh/sshd_config.d/gpunode-lab.conf", 0o644),
    ("lab-mirror.service", "etc/systemd/system/lab-mirror.service", 0o644),
    ("mirror.py", "usr/lib/gpunode-lab-mirror.py", 0o644),
    ("operator.sudoers", "etc/sudoers.d/operator", 0o440),
    ("dpkg-slim.conf", "etc/dpkg/dpkg.cfg.d/gpunode-lab", 0o644),
)
_BUILD_ID = "srv/gpunode-lab/build-id"
_KEPT_SECONDS = 7 * 86400
_SLIMMED = ("usr/share/man", "usr/share/info", "usr/share/locale")


def image(report: Report, family: Family | None = None) -> Path:
    """Return the folder of the nodes' root filesystem, built if the cache does not have it.

    A complete one is named image-<digest>; the digest covers everything that went into it. $GPUNODE_LAB_IMAGE names an
    OCI image of Debian or Ubuntu to take as the base instead of debootstrap's. With a family, the root has its package
    manager instead of apt. Raises LabError if the build fails.
    """
    with locked(cache_dir() / "image.lock"):
        remove_partial(cache_dir())
        reference, apt, digest = _origin(report)
        wanted = cache_dir() / f"image-{_image_digest(digest, family)}"
        base = cache_dir() / f"base-{digest}"
        if wanted.is_dir():
            report("base image: found in the cache")
            mark_used(wanted, base)
            return wanted
        _build_base(base, apt, reference, report)
        if family is not None:
            base = _with_tools(base, digest, family, report)
        started = time.monotonic()
        with complete_or_nothing(wanted) as folder:
            run(["cp", "-a", "--reflink=auto", f"{base}/.", str(folder)], "copying the base image")
            _add_node_files(folder)
            if family is None:
                before, after = apt_lists.cut_down(folder)
                report(f"base image: Debian's package lists cut from {before >> 20} MiB to {after >> 10} KiB")
            write(folder / _BUILD_ID, f"{uuid.uuid4()}\n")
            try:
                install_hardware(folder)
            except HardwareInstallError as error:
                raise LabError(f"the simulated hardware cannot be put into the base image: {error}") from error
            if family is not None:
                system = system_files(family, cache_dir(), base)
                finish(folder, family, public_key(key_file(cache_dir() / "keys", "repository"))[0], system)
        mark_used(wanted, base)
        report(f"base image: node files and simulated hardware put in, {time.monotonic() - started:.0f} s")
        return wanted


@contextmanager
def debian_base(report: Report) -> Iterator[Path]:
    """Give the folder of a bare Debian system, without anything of the lab's nodes, which stays while it is used.

    It is not to be changed. Raises LabError if its build fails.
    """
    with locked(cache_dir() / "image.lock"):
        remove_partial(cache_dir())
        apt = host_apt()
        base = cache_dir() / f"base-{_base_digest(apt, '')}"
        _build_base(base, apt, "", report)
        mark_used(base)
        yield base


def base_digest() -> str:
    """Return the digest of what `debian_base` is made of."""
    return _base_digest(host_apt(), "")


def tools(report: Report, family: Family) -> Path:
    """Return a root filesystem that has the family's package manager and what makes its packages and repositories."""
    with locked(cache_dir() / "image.lock"):
        remove_partial(cache_dir())
        reference, apt, digest = _origin(report)
        base = cache_dir() / f"base-{digest}"
        _build_base(base, apt, reference, report)
        return _with_tools(base, digest, family, report)


def _origin(report: Report) -> tuple[str, HostApt, str]:
    """Return which OCI image is the base (or none), how apt reaches Debian, and the base's digest."""
    reference = os.environ.get("GPUNODE_LAB_IMAGE", "")
    apt = host_apt()
    return reference, apt, _base_digest(apt, _pulled(reference, report) if reference else "")


def _build_base(base: Path, apt: HostApt, reference: str, report: Report) -> None:
    if base.is_dir():
        return
    with complete_or_nothing(base) as folder:
        if reference:
            _unpack_oci(reference, folder, report)
        else:
            _debootstrap(apt, folder, report)
        _set_up_apt(apt, folder, own_sources=bool(reference))
        _fetch(folder, report, install=bool(reference))
        _prepare(folder)


def build_id(root: Path) -> str:
    """Return which build of an image the folder holds; empty if it holds none."""
    try:
        return (root / _BUILD_ID).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def remove_unused(report: Report) -> None:
    """Remove images and bases that no container uses and that no lab asked for within the last week."""
    folder = cache_dir()
    used = set(podman("ps", "--all", "--format", '{{index .Labels "gpunode.image"}}').split())
    with locked(folder / "image.lock"):
        for path in (*folder.glob("image-*"), *folder.glob("base-*")):
            # Two checkouts with different files take turns; do not make them rebuild each time.
            if str(path) not in used and time.time() - path.stat().st_mtime > _KEPT_SECONDS:
                report(f"cache: removing {path.name}, which no node uses")
                remove(path)


def _base_digest(apt: HostApt, oci: str) -> str:
    parts = (oci or SUITE, *PACKAGES, *_PREFETCHED, repr(apt), _source_digest())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _source_digest() -> str:
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def _with_tools(base: Path, digest: str, family: Family, report: Report) -> Path:
    """Return the base with the family's package manager, made of Debian's if the cache does not have it."""
    wanted = cache_dir() / f"base-{tools_digest(digest, family)}"
    if not wanted.is_dir():
        report(f"base image: installing {family.name} on Debian (half a minute, once)")
        with complete_or_nothing(wanted) as folder:
            run(["cp", "-a", "--reflink=auto", f"{base}/.", str(folder)], "copying the base image")
            install_tools(folder, family)
    mark_used(wanted)
    return wanted


def _image_digest(base_digest: str, family: Family | None) -> str:
    lists = Path(apt_lists.__file__).read_bytes()
    digest = hashlib.sha256(f"{base_digest}\0{hardware_digest()}\0".encode() + lists)
    for name, place, mode in _PLACES:
        digest.update(f"{place}\0{mode}\0".encode())
        digest.update((_NODE_FILES / name).read_bytes())
    if family is not None:
        _, fingerprint = public_key(key_file(cache_dir() / "keys", "repository"))
        digest.update(family_digest(family, fingerprint, system_digests(family)).encode())
    return digest.hexdigest()[:16]


def _debootstrap(apt: HostApt, folder: Path, report: Report) -> None:
    report(f"base image: debootstrap of {SUITE} from {apt.mirror} (about a minute, once)")
    command = [
        # Its own mount namespace: an interrupted debootstrap leaves no /proc mounted in the folder.
        *("unshare", "--mount"),
        *("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}"),
        *(SUITE, str(folder), apt.mirror),
    ]
    counts = {"Retrieving": 0, "Extracting": 0, "Unpacking": 0, "Configuring": 0}
    said: list[str] = []
    started = last = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            words = line.split()
            if len(words) > 1 and words[1] in counts:
                counts[words[1]] += 1
            if time.monotonic() - last >= 5:
                last = time.monotonic()
                state = ", ".join(f"{count} {verb.lower()}" for verb, count in counts.items() if count)
                report(f"base image: debootstrap, packages so far: {state}; {last - started:.0f} s")
    if process.returncode:
        log = folder / "debootstrap" / "debootstrap.log"
        tail = log.read_text(errors="replace").splitlines()[-5:] if log.exists() else []
        raise LabError(
            f"debootstrap failed (exit code {process.returncode}). It said:\n{''.join(said[-5:])}"
            + "".join(f"  log: {line}\n" for line in tail)
            + f"Check that {apt.mirror} can be reached (it is this machine's own apt source), then run it again."
        )
    report(f"base image: debootstrap done, {time.monotonic() - started:.0f} s")


def _pulled(reference: str, report: Report) -> str:
    if attempt("image", "exists", reference).returncode:
        report(f"base image: pulling {reference}")
        podman("pull", "--quiet", reference, timeout=900)
    return podman("image", "inspect", "--format", "{{.Id}}", reference)


def _unpack_oci(reference: str, folder: Path, report: Report) -> None:
    report(f"base image: unpacking {reference} (GPUNODE_LAB_IMAGE)")
    container = podman("create", reference, "/bin/true")
    archive = folder.with_name(f"{folder.name}.tar.partial")
    archive.mkdir()
    try:
        podman("export", "--output", str(archive / "root.tar"), container, timeout=900)
        run(["tar", "-C", str(folder), "-xpf", str(archive / "root.tar")], f"unpacking {reference}")
    finally:
        podman("rm", "--force", container)
        remove(archive)
    if not (folder / "usr/bin/apt-get").exists():
        raise LabError(f"GPUNODE_LAB_IMAGE={reference} has no apt-get: name an image of Debian or Ubuntu")


def _set_up_apt(apt: HostApt, folder: Path, own_sources: bool) -> None:
    if not own_sources:
        (folder / "etc/apt/sources.list").unlink(missing_ok=True)
        write(folder / "etc/apt/sources.list.d/debian.sources", apt.sources(SUITE))
    write(folder / "etc/apt/apt.conf.d/90gpunode-lab", 'Acquire::Languages "none";\n' + apt.configuration)
    for name, text in apt.certificates:
        write(folder / "usr/local/share/ca-certificates" / name, text)


def _fetch(folder: Path, report: Report, install: bool) -> None:
    started = time.monotonic()
    resolver = folder / "etc/resolv.conf"
    resolver.unlink(missing_ok=True)
    resolver.write_text(Path("/etc/resolv.conf").read_text(encoding="utf-8"), encoding="utf-8")
    policy = folder / "usr/sbin/policy-rc.d"
    write(policy, "#!/bin/sh\nexit 101\n", 0o755)
    within(folder, "apt-get", "-o", "APT::Update::Error-Mode=any", "update")
    if install:
        within(folder, "apt-get", "install", "-y", "--no-install-recommends", *PACKAGES)
    within(folder, "update-ca-certificates")
    within(folder, "apt-get", "clean")
    within(folder, "apt-get", "install", "-y", "--download-only", *_PREFETCHED)
    policy.unlink()
    took = time.monotonic() - started
    report(f"base image: package lists and the .deb files of {', '.join(_PREFETCHED)} fetched, {took:.0f} s")


def _prepare(folder: Path) -> None:
    (folder / "etc/machine-id").write_text("")
    (folder / "etc/hostname").unlink(missing_ok=True)
    for key in (folder / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    _add_operator(folder)
    for name in _SLIMMED:
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "etc/gpunode-lab").mkdir(exist_ok=True)
    (folder / "srv/gpunode-lab/mirror").mkdir(parents=True, exist_ok=True)
    _make_tiny_root(folder)


def _add_operator(folder: Path) -> None:
    if "\noperator:" in (folder / "etc/passwd").read_text():
        # An image of the user's own may have one.
        return
    # Debian has a group of this name already.
    group = ["--gid", "operator"] if "\noperator:" in (folder / "etc/group").read_text() else ["--user-group"]
    within(folder, "useradd", "--create-home", "--shell", "/bin/bash", *group, "operator")


def _make_tiny_root(folder: Path) -> None:
    """Make a container's root filesystem of busybox alone: `ctr run --rootfs /srv/gpunode-lab/rootfs ID /bin/ls`."""
    tiny = folder / "srv/gpunode-lab/rootfs"
    shutil.rmtree(tiny, ignore_errors=True)
    for name in ("bin", "dev", "etc", "proc", "root", "run", "sys", "tmp"):
        (tiny / name).mkdir(parents=True, exist_ok=True)
    busybox = next((path for path in (folder / "bin/busybox", folder / "usr/bin/busybox") if path.exists()), None)
    if busybox is None:
        raise LabError("the base image has no busybox: the package busybox-static did not bring it")
    shutil.copy2(busybox, tiny / "bin/busybox")
    for applet in _APPLETS:
        (tiny / "bin" / applet).symlink_to("busybox")
    write(tiny / "etc/passwd", "root:x:0:0:root:/root:/bin/sh\n")


def _add_node_files(folder: Path) -> None:
    for name, place, mode in _PLACES:
        write(folder / place, (_NODE_FILES / name).read_text(encoding="utf-8"), mode)
    within(folder, "systemctl", "enable", "lab-mirror.service", "ssh.service")
    for unit in _MASKED:
        link = folder / "etc/systemd/system" / unit
        link.unlink(missing_ok=True)
        link.symlink_to("/dev/null")
