"""The desired runtimes of a daemon, the findings that several runtimes have, and the change of their files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from gpunode.base.comparison import RESTART, RUN, Classes, FindingMessage, finding_message
from gpunode.base.decision import target_digest
from gpunode.base.disruption import Disruption
from gpunode.system.service import Daemon

NVIDIA_RUNTIME = "/usr/bin/nvidia-container-runtime"
# The CDI specification that gpunode makes, and its first line.
OWN_SPECIFICATION = "/etc/cdi/nvidia.yaml"
CDI_MARK = "# Written by gpunode with nvidia-ctk; changes are overwritten. toolkit.cdi = 'off' removes this file."
_ISOLATING = re.compile(r"(?:^|[/.-])(?:kata|runsc|krun|urunc|firecracker)|^io\.containerd\.(?!runc\.|runtime\.)")


def isolates(program: str | None) -> bool:
    """Return whether a runtime's program or type isolates containers more than runc does: Kata Containers, gVisor."""
    return _ISOLATING.search(program or "") is not None


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


# What brings a daemon to the desired values; `nothing` where it already runs by them.
Act = Literal["restart", "reload", "nothing"]


RESTART_FORBIDDEN = "{containers} containers run and disruption.allow is nothing"


def restart_of(actual: Daemon) -> Disruption:
    """Return how much a restart of a daemon disturbs: nothing where it does not run."""
    return Disruption.restart if actual.active else Disruption.nothing


# What is compared -> summary and detail of the finding.
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
        "The default runtime of {component} is not as in the settings.",
        "It starts every container that names no runtime: with runc, without a GPU; with nvidia, with NVIDIA's hook.",
    ),
    "cgroup driver": (
        "The cgroup driver of {component} is not as in the settings.",
        "Kubelet and runtime need the same one: else pods have two owners of their cgroups and fail under load.",
    ),
    "runtime nvidia": (
        "The runtime nvidia of {component} is not as in the settings.",
        "Containers that name it get their GPUs from it. It is missing, left over, or points to another program.",
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
    """A file that a run writes; text None: it removes the file."""

    path: str
    text: str | None


@dataclass(frozen=True)
class RuntimeChange:
    """A change of files and daemon, and how it is proven.

    files: in the order in which they are put in place; none where only the daemon runs by older values
    staged: the text that the program's own check reads before any file is in place; None: nothing to check
    expected: the `KEY=VALUE` lines that the program must answer after the change
    act: what the daemon needs
    since: what tells a restart without new files from a later one: when the files were last written
    """

    files: tuple[WrittenFile, ...]
    staged: str | None
    expected: tuple[str, ...]
    act: Act
    since: str = ""

    @property
    def target(self) -> str:
        """Return the digest of the desired state."""
        return target_digest(*(file.text or "" for file in self.files), "" if self.files else self.since)


def change_by_answers(
    file: WrittenFile,
    before: str,
    desired: Mapping[str, str],
    actual: Mapping[str, str | None],
    act: Act,
    active: bool,
) -> RuntimeChange | None:
    """Return the change of a runtime with one file, whose daemon answers its values; None where it needs none."""
    writes = file.text != before
    if not writes and (act == "nothing" or not active):
        return None
    expected = tuple(f"{key}={value}" for key, value in desired.items())
    since = next(iter(actual.values())) or ""
    return RuntimeChange((file,) if writes else (), file.text if writes else None, expected, act, since)
