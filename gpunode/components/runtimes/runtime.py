"""The desired runtimes of a daemon, the findings that several daemons have, and a change of their files as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpunode.base.comparison import RESTART, RUN, Classes, FindingMessage, finding_message
from gpunode.base.decision import target_digest
from gpunode.base.disruption import Disruption
from gpunode.system.service import Daemon

NVIDIA_RUNTIME = "/usr/bin/nvidia-container-runtime"


@dataclass(frozen=True)
class Runtimes:
    """The desired runtimes of a daemon.

    systemd_cgroup: whether systemd's cgroups are used, by runc and nvidia
    nvidia: whether there is a runtime nvidia; None: one that is there is left as it is
    cdi: whether CDI is enabled, where the daemon has an option for it; None: not managed
    """

    default: str = "nvidia"
    systemd_cgroup: bool = True
    nvidia: bool | None = True
    cdi: bool | None = None

    @property
    def manager(self) -> str:
        """Return the name of the cgroup manager."""
        return "systemd" if self.systemd_cgroup else "cgroupfs"


# What brings a daemon to its files: `nothing` where it already does what they say.
Act = Literal["restart", "reload", "nothing"]


RESTART_FORBIDDEN = "{containers} containers run and disruption.allow is nothing"


def restart_of(actual: Daemon) -> Disruption:
    """Return how much a restart of a daemon disturbs: nothing where it does not run."""
    return Disruption.restart if actual.active else Disruption.nothing


# What is compared of a runtime -> what it says where that differs, and what it means.
_TEXTS = {
    "service": (
        "The service of {component} does not run.",
        "Without it no container starts. It is stopped, failed, masked, or restarts over and over.",
    ),
    "starts at boot": (
        "The service of {component} does not start at boot.",
        "It may run now, and will be missing after the next boot: its unit is disabled or masked.",
    ),
    "version": (
        "{component} is missing, or of another version than the settings desire.",
        "It is not installed, is of another version or branch, or too old for what gpunode needs, such as CDI.",
    ),
    "default runtime": (
        "The default runtime of {component} is not the one in the settings.",
        "It starts every container that names none: with runc, these see no GPU; with nvidia, all get NVIDIA's hook.",
    ),
    "cgroup driver": (
        "The cgroup driver of {component} is not the one that the settings ask for.",
        "Kubelet and runtime need the same one: else pods have two owners of their cgroups and fail under load.",
    ),
    "runtime nvidia": (
        "The runtime nvidia of {component} is not what the settings ask for.",
        "Containers that name it get their GPUs by it. It is missing, left over, or points to another program.",
    ),
    "CDI": (
        "CDI of {component} is not as in the settings.",
        "With CDI (Container Device Interface), files describe the devices of a GPU. Where it is off, or such a file "
        "cannot be read, containers that request a GPU by its CDI name do not start.",
    ),
}


def runtime_finding(
    component: str, what: str, *causes: str, remedies: tuple[str, ...] = (RUN,), classes: Classes = RESTART
) -> FindingMessage:
    """Declare a finding that several container runtimes have."""
    summary, detail = (text.format(component=component) for text in _TEXTS[what])
    return finding_message(component, what, summary, detail, causes=causes, remedies=remedies, classes=classes)


@dataclass(frozen=True)
class WrittenFile:
    """Hold a file as it is to be; text None: it is to go."""

    path: str
    text: str | None


@dataclass(frozen=True)
class RuntimeChange:
    """Hold what is to be changed, and how it is proven.

    files: in the order in which they are put in place; none where the daemon alone lags behind
    staged: the text that the program's own check reads before any file is in its place; None: nothing to check
    expected: `KEY=VALUE` lines that the program must then say of itself
    act: what the daemon needs
    since: tells a restart without new files from a later one: when the files were last written
    """

    files: tuple[WrittenFile, ...]
    staged: str | None
    expected: tuple[str, ...]
    act: Act
    since: str = ""

    @property
    def target(self) -> str:
        """Return the digest of what is to be reached."""
        return target_digest(*(file.text or "" for file in self.files), "" if self.files else self.since)
