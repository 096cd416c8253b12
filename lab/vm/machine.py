"""A virtual machine of the lab: a kernel, a boot loader and an initial file system of its own, under QEMU's emulation.

For what a container cannot show: modules that are really built and loaded, and boots that are really made. It is slow
(no KVM is asked for) and talks to this machine alone: user-mode network without a way out, SSH on 127.0.0.1.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gpunode.lab import access
from gpunode.lab.cache import cache_dir, locked
from gpunode.lab.chroot import run as run_here
from gpunode.lab.errors import LabError
from gpunode.lab.nodes import nodes
from gpunode.lab.repository import BUILT, build_mirror
from gpunode.lab.state import lab_folder, lab_name, labs_folder, read_json, told_command, write_json
from gpunode.lab.vm.image import disk, releases

Report = Callable[[str], None]

NAME = "gpu-vm"
# The disk, in the machine's folder, that cloud-init takes its user data from; there only where somebody put it.
SEED = "seed"
_PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "grub-mkimage": "grub-common",
    "mke2fs": "e2fsprogs",
    "debootstrap": "debootstrap",
    "apt-ftparchive": "apt-utils",
    "dpkg-deb": "dpkg",
    "gpg": "gpg",
    "ssh": "openssh-client",
    "genisoimage": "genisoimage",
}
_MEMORY_MIB = 1024
_READY_SECONDS = 300.0


@dataclass(frozen=True)
class VirtualMachine:
    """One virtual machine: its lab, where its SSH answers, and its kernels: the first is installed, the rest can be."""

    lab: str
    address: str
    port: int
    kernels: tuple[str, ...]
    gpu: str
    gpus: int
    name: str = NAME
    container: str = ""

    @property
    def folder(self) -> Path:
        """The folder with its disks, its console's text and QEMU's process id."""
        return lab_folder(self.lab) / "vm"


def up(lab: str, report: Report = lambda line: None, gpu: str = "h100-80gb", gpus: int = 1) -> VirtualMachine:
    """Bring the lab's virtual machine up, and return it once SSH answers; one that is up is kept.

    Raises LabError where this machine lacks a program, or the virtual machine does not become ready.
    """
    lab = lab_name(lab)
    _check_preconditions()
    with locked(labs_folder() / f"{lab}.lock"):
        if any(node.container for node in nodes(lab)):
            raise LabError(f"lab {lab} has nodes already: take it down first, or choose another name with --lab")
        there = _found(lab)
        if there is not None and _process(there.folder) is not None:
            report(f"{there.name}: is up already, kept")
            return there
        shutil.rmtree(lab_folder(lab), ignore_errors=True)
        machine = _prepared(lab, gpu, gpus, report)
        start(machine)
        report(f"{NAME}: started with {gpus} × {gpu} SIMULATED; it is emulated, so its boot takes about half a minute")
        wait(machine, report)
        return machine


def machine(lab: str) -> VirtualMachine:
    """Return the lab's virtual machine; raise LabError where there is none."""
    found = _found(lab_name(lab))
    if found is None:
        raise LabError(f"lab {lab} has no virtual machine: run `{told_command(lab, 'vm up')}`")
    return found


def is_running(lab: str) -> bool:
    """Say whether the lab has a virtual machine that runs."""
    return _process(lab_folder(lab_name(lab)) / "vm") is not None


def down(lab: str, report: Report = lambda line: None) -> bool:
    """End the lab's virtual machine and remove its disks; return whether there was one."""
    lab = lab_name(lab)
    folder = lab_folder(lab) / "vm"
    with locked(labs_folder() / f"{lab}.lock"):
        if not folder.exists():
            return False
        if (process := _process(folder)) is not None:
            os.kill(process, signal.SIGKILL)
            while _process(folder) is not None:
                time.sleep(0.1)
        shutil.rmtree(lab_folder(lab), ignore_errors=True)
        report(f"{NAME}: removed")
        return True


def run(machine: VirtualMachine, command: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run a shell command as root over SSH, and return the finished process whatever its exit code.

    Raises LabError if it takes longer than `timeout` seconds.
    """
    line = [*access.ssh_command(lab_folder(machine.lab), machine.address, port=machine.port), command]
    try:
        return subprocess.run(
            line, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise LabError(f"`{command[:80]}` did not end within {timeout:.0f} seconds on {machine.name}") from error


def boot_id(machine: VirtualMachine) -> str:
    """Return the kernel's name for the boot that runs; empty while none answers."""
    with suppress(LabError):
        return run(machine, "cat /proc/sys/kernel/random/boot_id", timeout=20).stdout.strip()
    return ""


def reboot(machine: VirtualMachine, report: Report = lambda line: None) -> None:
    """Reboot it from within, and return when the new boot is ready; raise LabError if none comes."""
    before = boot_id(machine)
    run(machine, "systemctl --no-block reboot")
    deadline = time.monotonic() + _READY_SECONDS
    while boot_id(machine) in ("", before):
        if time.monotonic() > deadline:
            raise LabError(f"{machine.name} did not reboot within {_READY_SECONDS:.0f} seconds{_console(machine)}")
        time.sleep(1)
    wait(machine, report)


def power_off(machine: VirtualMachine, seconds: float) -> None:
    """Have it stop all that runs and switch itself off; raise LabError where it has not within `seconds`."""
    run(machine, "systemctl --no-block poweroff")
    deadline = time.monotonic() + seconds
    while _process(machine.folder) is not None:
        if time.monotonic() > deadline:
            raise LabError(f"{machine.name} did not switch itself off within {seconds:.0f} seconds{_console(machine)}")
        time.sleep(0.2)


def wait(machine: VirtualMachine, report: Report = lambda line: None) -> None:
    """Return once SSH answers and systemd has started everything; raise LabError where that takes too long."""
    started = last = time.monotonic()
    state = ""
    while time.monotonic() - started < _READY_SECONDS:
        if _process(machine.folder) is None:
            raise LabError(f"QEMU has ended{_console(machine)}")
        with suppress(LabError):
            state = run(machine, "systemctl is-system-running", timeout=20).stdout.strip()
        if state in ("running", "degraded"):
            report(f"{machine.name}: ready after {time.monotonic() - started:.0f} s, systemd {state}")
            return
        if time.monotonic() - last >= 10:
            last = time.monotonic()
            report(f"{machine.name}: waiting, systemd says {state or 'nothing'}; {last - started:.0f} s")
        time.sleep(1)
    raise LabError(f"{machine.name} did not become ready within {_READY_SECONDS:.0f} seconds{_console(machine)}")


def _check_preconditions() -> None:
    missing = sorted({package for program, package in _PROGRAMS.items() if shutil.which(program) is None})
    if os.geteuid() != 0:
        raise LabError("the virtual machine's disk is built by root: run it with sudo")
    if missing:
        raise LabError(f"programs are missing: apt-get install --no-install-recommends {' '.join(missing)}")


def _found(lab: str) -> VirtualMachine | None:
    state = read_json(lab_folder(lab) / "nodes.json")
    for entry in state.get("nodes", ()):
        if "kernels" in entry:
            return VirtualMachine(**{**entry, "kernels": tuple(entry["kernels"])})
    return None


def _process(folder: Path) -> int | None:
    """Return QEMU's process id while it runs; a number that another program has got since is none."""
    with suppress(OSError, ValueError):
        process = int((folder / "pid").read_text(encoding="utf-8"))
        if str(folder).encode() in Path(f"/proc/{process}/cmdline").read_bytes():
            return process
    return None


def _prepared(lab: str, gpu: str, gpus: int, report: Report) -> VirtualMachine:
    image = disk(report)
    mirror = build_mirror(cache_dir(), report)
    folder = lab_folder(lab)
    found = VirtualMachine(lab, "127.0.0.1", _free_port(), releases(image), gpu, gpus)
    found.folder.mkdir(parents=True)
    access.client_key(folder)
    own = folder / NAME
    key = access.prepare_host(own, NAME, folder / "id_ed25519")
    write_json(own / "hardware.json", {"gpu": gpu, "count": gpus})
    write_json(own / "faults.json", {})
    run_here(["cp", "--sparse=always", str(image / "root.ext4"), str(found.folder / "root")], "copying the disk")
    shutil.copyfile(image / "loader", found.folder / "loader")
    _file_system(own, found.folder / "lab", "gpunode-lab")
    served = found.folder / "served"
    for part in (BUILT, "toolkit", "keys"):
        shutil.copytree(mirror.path / part, served / part)
    _file_system(served, found.folder / "repos", "gpunode-repos")
    shutil.rmtree(served)
    access.write_known_hosts(folder / "known_hosts", [(f"[{found.address}]:{found.port}", key)])
    state = {"lab": lab, "key_fingerprint": mirror.key_fingerprint, "nodes": [asdict(found)]}
    write_json(folder / "nodes.json", state)
    access.hand_to_caller(folder)
    return found


def _file_system(source: Path, target: Path, label: str) -> None:
    used = sum(path.stat().st_size for path in source.rglob("*") if path.is_file())
    size = f"{used // 1024 * 5 // 4 + 8192}k"
    run_here(["mke2fs", "-q", "-t", "ext4", "-L", label, "-d", str(source), str(target), size], "mke2fs")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def start(machine: VirtualMachine) -> None:
    """Switch on a machine that is off; it boots meanwhile."""
    folder = machine.folder
    names = ("root", "lab", "repos", *([SEED] if (folder / SEED).exists() else []))
    disks = [part for name in names for part in ("-drive", _drive(folder / name, name in ("repos", SEED)))]
    run_here(
        [
            *("qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=512", "-machine", "q35", "-smp", "2"),
            *("-m", str(_MEMORY_MIB), "-nodefaults", "-display", "none", "-serial", f"file:{folder / 'console'}"),
            *("-kernel", str(folder / "loader"), *disks),
            # Without a way out: what the node needs, it has on its disks.
            *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:{machine.address}:{machine.port}-:22"),
            *("-device", "virtio-net-pci,netdev=net,romfile=", "-device", "virtio-rng-pci"),
            # What the lab's nvidia and nouveau bind: QEMU has no GPU to give.
            *("-device", "pci-testdev"),
            *("-daemonize", "-pidfile", str(folder / "pid")),
        ],
        "qemu-system-x86_64",
    )


def _drive(path: Path, readonly: bool) -> str:
    # Thrown away at the end, so that nothing need survive this machine's own crash.
    return f"file={path},format=raw,if=virtio,cache=unsafe" + (",readonly=on" if readonly else "")


def _console(machine: VirtualMachine) -> str:
    path = machine.folder / "console"
    last = path.read_text(errors="replace").splitlines()[-8:] if path.exists() else []
    return f"; its console ({path}) ends:\n" + "\n".join(last) if last else ""
