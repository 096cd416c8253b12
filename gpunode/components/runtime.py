"""The change of a container runtime's configuration as data, whichever runtime it is; who carries it out is a node.

A runtime with a daemon is one more module, beside those of containerd, docker and CRI-O, that returns these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gpunode.base.comparison import RESTART, RUN, Classes, FindingMessage, finding_message

# What brings a daemon to its files: `nothing` where it already does what they say.
Act = Literal["restart", "reload", "nothing"]


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
        "The version of {component} is not the one that the settings ask for.",
        "It is missing, of another version or branch, or too old for what gpunode needs, such as CDI.",
    ),
    "default runtime": (
        "The default runtime of {component} is not the one that the settings ask for.",
        "It starts every container that names no runtime: these see no GPU, or all of them get NVIDIA's hook.",
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
        "CDI of {component} is not as the settings ask.",
        "Off, or with a CDI file that it cannot read, containers that name a GPU by CDI do not start.",
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
    """

    files: tuple[WrittenFile, ...]
    staged: str | None
    expected: tuple[str, ...]
    act: Act
