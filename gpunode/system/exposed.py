"""Files that root runs by and that others than root may write: who may, decides what root does next."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gpunode.base.comparison import RUN, FindingMessage, finding_message
from gpunode.base.decision import Decision, Step
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.probe_output import repeated
from gpunode.base.reading import ParseError, Reading

KEYRINGS = ("/usr/share/keyrings", "/etc/pki/rpm-gpg")
# Folders with configuration of what runs as root, and with scripts that root runs.
_FOLDERS = (
    *("/etc/apt", "/etc/yum.repos.d", "/etc/dnf", "/etc/zypp", "/etc/pacman.d", "/etc/default", *KEYRINGS),
    *("/etc/containerd", "/etc/docker", "/etc/crio", "/etc/nvidia-container-runtime", "/etc/nvidia-container-toolkit"),
    *("/etc/cdi", "/var/run/cdi", "/etc/nvidia-imex", "/etc/nvidia-mps", "/etc/systemd/system", "/etc/udev/rules.d"),
    *("/etc/modprobe.d", "/etc/modules-load.d", "/etc/sysctl.d", "/etc/ld.so.conf.d", "/etc/profile.d", "/etc/cron*"),
    *("/etc/environment.d", "/etc/sudoers.d", "/var/lib/gpunode", "/usr/local/lib/gpunode"),
    *("/etc/gpunode", "/etc/containers", "/etc/dracut.conf.d", "/etc/initramfs-tools", "/etc/sysconfig"),
)
# Patterns of these folders, of what is in them and in their own folders, and of single files.
FILES = (
    *(folder + depth for folder in _FOLDERS for depth in ("", "/*", "/*/*")),
    *("/etc/pacman.conf", "/etc/ld.so.conf", "/etc/ld.so.preload", "/etc/environment", "/etc/sudoers", "/etc/rc.local"),
    "/etc/slurm/gpunode-*",
)

EXPOSED = finding_message(
    "node",
    "files that root runs by",
    "Users other than root may write files that root runs or reads.",
    "Who writes these configuration files, or folders above them, decides what root does next.",
    cause="others than root may write what root runs by: they decide what root does next",
    remedies=("look at what they say, then `chown root:root {paths}; chmod go-w {paths}` on the node", RUN),
)
TAKE = "take from other users the write access to gpunode's files"
READABLE = finding_message(
    "node",
    "files with passwords",
    "Users other than root may read files with passwords of package repositories.",
    "Every user and many services of the node can take these passwords.",
    cause="every user of the node can read the passwords in them",
    remedies=("run `chmod o-rwx {paths}` on the node, and consider the passwords known",),
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
    """Hold the files that others than root may write, and those with passwords that everybody may read."""

    files: tuple[ExposedFile, ...] = ()
    readable: tuple[ExposedFile, ...] = ()


def parse_exposed(lines: list[str]) -> Exposed:
    """Parse `exposed=MODE UID GID PATH` and `readable=MODE UID GID PATH` lines."""
    return Exposed(tuple(_files(lines, "exposed")), tuple(_files(lines, "readable")))


def _files(lines: list[str], key: str) -> Iterator[ExposedFile]:
    for line in repeated(lines, key):
        mode, user, group, path = (*line.split(" ", 3), "", "", "", "")[:4]
        if not (mode.isascii() and mode.isdigit() and user.isdigit() and group.isdigit() and path.startswith("/")):
            raise ParseError(f"not a file with its mode and owner: {line[:80]!r}")
        yield ExposedFile(path, mode, int(user), int(group))


def own(actual: Exposed) -> tuple[str, ...]:
    """Return the paths of gpunode's own files among them, whose texts a run compares as well."""
    names = (file.path for file in actual.files if file.path.startswith(("/etc/", "/usr/")))
    ours = (path for path in names if "gpunode" in path or path.startswith("/etc/nvidia-mps/"))
    # The operation that trusts a repository corrects its keyring. No run writes what a pull trusts.
    return tuple(path for path in ours if not path.startswith((*KEYRINGS, "/etc/gpunode")))


def decide(actual: Exposed, repositories: Collection[str] = ()) -> Decision[None]:
    """Return what is to be done: a run corrects gpunode's own files; who owns another on purpose is not known here.

    repositories: those whose keyrings are judged with them
    """
    keyrings = tuple(f"{folder}/gpunode-{name}." for folder in KEYRINGS for name in repositories)
    files = tuple(file for file in actual.files if not file.path.startswith(keyrings))
    ours = own(actual)
    only_ours = 0 < len(ours) == len(files)
    found = [_compared(EXPOSED, files, "root's alone", only_ours)]
    settles = tuple(found) if only_ours else ()
    step: Step[None] = Step(TAKE, settles, Disruption.nothing, actual="writable by others", desired="root's alone")
    if actual.readable:
        found.append(_compared(READABLE, actual.readable, "not for everybody to read"))
    return Decision(tuple(found), (step,) if ours else ())


def _compared(message: FindingMessage, files: tuple[ExposedFile, ...], desired: str, run: bool = False) -> Finding:
    remedy = RUN if run else message.remedies[0].format(paths=shlex.join(file.path for file in files))
    return message.compared(", ".join(map(str, files)) or desired, desired, not files, remedy=remedy)
