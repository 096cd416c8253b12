"""Files that root runs by and that others than root may write: who may, decides what root does next."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.comparison import finding_message
from gpunode.base.decision import Decision
from gpunode.base.probe_output import repeated
from gpunode.base.reading import ParseError, Reading

# Configuration of what runs as root, and the folders that it is read from. gpunode's own files are judged by
# themselves (gpunode/system/applied.py), keyrings as well; those of MPS and MIG are here, whose transactions go by
# what a file says alone, and leave its mode as it is.
FILES = (
    "/etc/containerd",
    "/etc/containerd/*.toml",
    "/etc/containerd/*/*.toml",
    "/etc/docker",
    "/etc/docker/daemon.json",
    "/etc/crio",
    "/etc/crio/crio.conf",
    "/etc/crio/crio.conf.d",
    "/etc/crio/crio.conf.d/*",
    "/etc/nvidia-container-runtime",
    "/etc/nvidia-container-runtime/*.toml",
    "/etc/nvidia-container-toolkit",
    "/etc/nvidia-container-toolkit/*",
    "/etc/cdi",
    "/etc/cdi/*",
    "/var/run/cdi",
    "/var/run/cdi/*",
    "/etc/systemd/system",
    "/etc/systemd/system/containerd.service.d/*",
    "/etc/systemd/system/docker.service.d/*",
    "/etc/systemd/system/kubelet.service.d/*",
    "/etc/systemd/system/crio.service.d/*",
    "/etc/systemd/system/nvidia-dcgm*.service.d/*",
    "/etc/modprobe.d",
    "/etc/modprobe.d/*",
    "/etc/modules-load.d/*",
    "/var/lib/gpunode",
    "/var/lib/gpunode/transactions",
    "/etc/nvidia-imex",
    "/etc/nvidia-imex/*",
    "/etc/nvidia-mps",
    "/etc/nvidia-mps/*",
    "/usr/local/lib/gpunode",
    "/usr/local/lib/gpunode/*",
    "/etc/systemd/system/nvidia-mps*",
    "/etc/systemd/system/gpunode-mig*",
    "/var/lib/gpunode/mig",
    "/var/lib/gpunode/mig/*",
    "/etc/systemd/system/gpunode-power*",
    "/etc/profile.d/gpunode-mps*",
    "/etc/slurm/gpunode-*",
    "/etc/environment.d/*gpunode*",
)

EXPOSED = finding_message(
    "node",
    "files that root runs by",
    "Users other than root may write files that root runs or reads.",
    "Who writes these configuration files, or folders above them, decides what root does next.",
    cause="others than root may write what root runs by: they decide what root does next",
    remedies=("look at what they say, then `chown root:root {paths}; chmod go-w {paths}` on the node",),
)


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


def decide(actual: Exposed) -> Decision[None]:
    """Return what is to be done about them: a person looks; who owns a file on purpose is not known here."""
    files = actual.files
    paths = " ".join(file.path for file in files)
    item = EXPOSED.compared(
        ", ".join(map(str, files)) or "root's alone",
        "root's alone",
        not files,
        remedy=EXPOSED.remedies[0].format(paths=paths),
    )
    return Decision((item,))
