"""Files that root runs by and that others than root may write: who may, decides what root does next."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.probe_output import repeated
from gpunode.reading import ParseError, Reading

# Configuration of what runs as root, and the folders that it is read from. gpunode's own files are judged by
# themselves (gpunode/applied.py), keyrings as well.
FILES = (
    "/etc/containerd", "/etc/containerd/*.toml", "/etc/containerd/*/*.toml",
    "/etc/docker", "/etc/docker/daemon.json",
    "/etc/nvidia-container-runtime", "/etc/nvidia-container-runtime/*.toml",
    "/etc/nvidia-container-toolkit", "/etc/nvidia-container-toolkit/*",
    "/etc/cdi", "/etc/cdi/*", "/var/run/cdi", "/var/run/cdi/*",
    "/etc/systemd/system", "/etc/systemd/system/containerd.service.d/*", "/etc/systemd/system/docker.service.d/*",
    "/etc/systemd/system/kubelet.service.d/*",
    "/etc/modprobe.d", "/etc/modprobe.d/*", "/etc/modules-load.d/*",
    "/var/lib/gpunode", "/var/lib/gpunode/transactions",
)  # fmt: skip


@dataclass(frozen=True)
class ExposedFile(Reading):
    """Hold a file or folder with its mode (octal digits), and the numbers of its owner and its group."""

    path: str
    mode: str
    user: int
    group: int

    def __str__(self) -> str:
        """Return `PATH (MODE UID:GID)`."""
        return f"{self.path} ({self.mode} {self.user}:{self.group})"


@dataclass(frozen=True)
class Exposed(Reading):
    """Hold the files that others than root may write."""

    files: tuple[ExposedFile, ...] = ()


def parse_exposed(lines: list[str]) -> Exposed:
    """Parse `exposed=MODE UID GID PATH` lines."""
    found = []
    for line in repeated(lines, "exposed"):
        mode, user, group, path = (*line.split(" ", 3), "", "", "", "")[:4]
        if not (mode.isascii() and mode.isdigit() and user.isdigit() and group.isdigit() and path.startswith("/")):
            raise ParseError(f"not a file with its mode and owner: {line[:80]!r}")
        found.append(ExposedFile(path, mode, int(user), int(group)))
    return Exposed(tuple(found))
