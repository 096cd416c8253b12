"""This machine as main_job.py uses it: driver's files, the GPU's settings, the repository, what is broken on it.

Of the standard library alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

_PORT = 8902
_PIPE = "/run/nvidia-mps"
_CONTROL = "nvidia-cuda-mps-control"
# What a job must not change. Where the driver has no such setting it answers so, before and after.
_STATE = (
    "driver_version", "mig.mode.current", "mig.mode.pending", "compute_mode", "persistence_mode", "power.limit",
    "clocks.applications.graphics", "clocks.applications.memory", "ecc.mode.current",
)  # fmt: skip
# Where a driver's files are that no package manager brought.
_FOLDERS = ("/usr/local/nvidia", "/opt/nvidia/driver")
_LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
# Where a container runtime, CDI and MPS are configured, in the order in which they are broken.
_FILES = ("/etc/containerd/config.toml", "/etc/containerd/conf.d", "/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml")


class Machine:
    """The machine in its namespaces, whose files may all be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.served = f"http://127.0.0.1:{_PORT}"
        self._server: subprocess.Popen[bytes] | None = None
        self.simulated = "SIMULATED" in self._out("nvidia-smi", "-h")

    @property
    def has_mps(self) -> bool:
        """Say whether the driver brought the MPS control daemon."""
        return shutil.which(_CONTROL) is not None

    def prepare(self) -> str:
        """Put the driver's files where its packages would have them, and let apt read the carried packages alone."""
        copied = self._driver()
        # Where the driver came with the kernel there may be no list of modules, in which the toolkit's unit looks.
        listed = Path("/lib/modules", os.uname().release, "modules.dep")
        if not listed.exists():
            listed.parent.mkdir(parents=True, exist_ok=True)
            listed.write_text("updates/dkms/nvidia.ko:\n")
        sources = Path("/etc/apt/sources.list.d")
        shutil.rmtree(sources, ignore_errors=True)
        sources.mkdir(parents=True)
        Path("/etc/apt/sources.list").write_text(
            f"deb [signed-by={self.folder}/repository/key.asc] {self.served}/archive ./\n"
        )
        shutil.rmtree("/var/lib/apt/lists", ignore_errors=True)
        (Path("/var/lib/apt/lists") / "partial").mkdir(parents=True)
        command = [sys.executable, "-m", "http.server", str(_PORT), "--bind", "127.0.0.1", "--directory"]
        self._server = subprocess.Popen(
            [*command, str(self.folder / "repository")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait()
        done = subprocess.run(
            ["apt-get", "-q", "-o", "APT::Update::Error-Mode=any", "update"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        if done.returncode:
            raise OSError(f"apt-get update: {done.stderr.strip()[-500:]}")
        return copied

    def _wait(self) -> None:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", _PORT), timeout=5):
                return
            time.sleep(0.1)
        raise OSError("the carried packages are not served")

    def _driver(self) -> str:
        """Copy the driver out of a folder of its own, which gpunode and NVIDIA's toolkit would have to be given."""
        if Path("/usr/bin/nvidia-smi").exists():
            return "the driver is where its packages have it"
        for folder in map(Path, _FOLDERS):
            if (folder / "bin/nvidia-smi").exists():
                for name, target in (("bin", Path("/usr/bin")), ("lib64", _LIBRARIES), ("lib", _LIBRARIES)):
                    for file in (folder / name).glob("*"):
                        if (file.is_file() or file.is_symlink()) and not os.path.lexists(target / file.name):
                            shutil.copy2(file, target / file.name, follow_symlinks=False)
                subprocess.run(["ldconfig"], timeout=60, check=True)
                return f"the driver's files were copied from {folder} to /usr (in the overlay)"
        found = shutil.which("nvidia-smi")
        raise OSError(f"nvidia-smi is not in /usr/bin, {', '.join(_FOLDERS)}; found: {found}")

    def state(self) -> dict[str, str]:
        """Return the settings of all GPUs that a job must not change."""
        return {name: self._query(name) for name in _STATE}

    def described(self, state: dict[str, str]) -> str:
        """Return the settings for people; raise where no GPU answers."""
        if not self.gpus():
            raise OSError("nvidia-smi lists no GPU")
        return ", ".join(f"{name} {value}" for name, value in state.items())

    def gpus(self) -> list[str]:
        """Return the names of the GPUs."""
        return [line for line in self._query("name").split("; ") if line and "not" not in line.lower()]

    def restore(self, state: dict[str, str]) -> None:
        """Put the compute mode back, the one setting that MPS changes."""
        for index, mode in enumerate(state["compute_mode"].split("; ")):
            self._out("nvidia-smi", "-i", str(index), "-c", mode.upper())

    def system(self) -> str:
        """Return the name of the operating system, and whose systemd runs."""
        for line in Path("/etc/os-release").read_text().splitlines():
            if line.startswith("PRETTY_NAME="):
                return (
                    f"{line.partition('=')[2].strip(chr(34))}, {(self.folder / 'systemd').read_text().strip()} systemd"
                )
        return ""

    def mps(self, question: str) -> str:
        """Return the MPS daemon's answer."""
        done = subprocess.run(
            [_CONTROL], input=question + "\n", capture_output=True, text=True, timeout=20, check=False,
            env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": _PIPE},
        )  # fmt: skip
        return done.stdout

    def broken(self) -> list[str]:
        """Take away containerd's nvidia runtime, the CDI specification and the MPS daemon; return which there were."""
        done = []
        for path in map(Path, _FILES):
            if path.is_dir():
                shutil.rmtree(path)
                done.append(str(path))
            elif path.exists():
                path.unlink()
                done.append(str(path))
        if self._out("systemctl", "is-active", "nvidia-mps.service").strip() == "active":
            self._out("systemctl", "disable", "--now", "nvidia-mps.service")
            done.append("nvidia-mps.service")
        self._out("systemctl", "restart", "containerd.service")
        return done

    def container(self) -> list[str]:
        """Return the command that runs the CUDA program in a container, made of this machine's libraries."""
        root = Path("/root/container")
        shutil.rmtree(root, ignore_errors=True)
        for name in ("dev", "etc", "proc", "sys", "tmp", "run", "lib64", "usr/lib/x86_64-linux-gnu"):
            (root / name).mkdir(parents=True)
        (root / "lib").symlink_to("usr/lib")
        shutil.copy2(self.folder / "client", root / "client")
        shutil.copy2("/lib64/ld-linux-x86-64.so.2", root / "lib64")
        # What libcuda needs of the C library.
        for name in ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"):
            shutil.copy2(_LIBRARIES / name, root / "usr/lib/x86_64-linux-gnu")
        runtime = shutil.which("nvidia-container-runtime") or "nvidia-container-runtime"
        return [
            "ctr", "--namespace", "main-job", "run", "--rm", "--runc-binary", runtime, "--runc-systemd-cgroup",
            "--cgroup", "system.slice:gpunode:main-job", "--env", "NVIDIA_VISIBLE_DEVICES=all", "--env",
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility", "--rootfs", str(root), "main-job", "/client",
        ]  # fmt: skip

    def _query(self, name: str) -> str:
        lines = self._out("nvidia-smi", f"--query-gpu={name}", "--format=csv,noheader").strip().splitlines()
        return "; ".join(line.strip() for line in lines)

    def _out(self, *command: str) -> str:
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
        except FileNotFoundError:
            return ""
