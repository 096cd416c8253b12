"""What container runtimes have in common: findings, a change of their files as data, their service and packages."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from gpunode.base import tables, versions
from gpunode.base.comparison import RESTART, RUN, Classes, FindingMessage, finding_message
from gpunode.base.decision import Step, bad, is_forbidden, target_digest
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.probe_output import repeated
from gpunode.base.reading import ParseError, Reading
from gpunode.base.tables.sources import Distribution
from gpunode.system.service import RESTARTING, Daemon, unmask

NVIDIA_RUNTIME = "/usr/bin/nvidia-container-runtime"
RUNNING, MASKED = "running", "masked"
_MEND = f"look at `journalctl -u {{unit}}` on the node, mend what ends it, `systemctl restart {{unit}}`, and {RUN}"
# What a person does about a service that does not run, or does not start at boot.
MEND_SERVICE = (RUN, _MEND, f"{unmask('{unit}')}, and {RUN}")
MEND_BOOT = (RUN, MEND_SERVICE[-1])


@dataclass(frozen=True)
class Runtimes:
    """The desired runtimes of a daemon.

    systemd_cgroup: whether systemd's cgroups are used, by runc and nvidia
    nvidia: whether there is a runtime nvidia
    cdi: whether CDI is enabled, where the daemon has an option for it; None: not managed
    """

    default: str = "nvidia"
    systemd_cgroup: bool = True
    nvidia: bool = True
    cdi: bool | None = None

    @property
    def manager(self) -> str:
        """Return the name of the cgroup manager."""
        return "systemd" if self.systemd_cgroup else "cgroupfs"


@dataclass(frozen=True)
class ServiceVerdict:
    """Hold what a service does, or whether it starts at boot; where that is not as it should be, why and what to do."""

    actual: str
    remedy: str = RUN
    cause: str | None = None


def service_verdict(unit: str, actual: Daemon) -> ServiceVerdict:
    """Return what a runtime's unit does: `running` where it runs and stays up."""
    service = actual.service
    said = f"; its journal says: {' | '.join(service.said)}" if service.said else ""
    mend = _MEND.format(unit=unit)
    if service.restarting:
        times = f", {service.restarts} times so far" if service.restarts > 1 else ""
        return ServiceVerdict(RESTARTING, mend, f"it ends by itself, and systemd starts it again{times}{said}")
    if actual.active:
        return ServiceVerdict(RUNNING)
    if actual.masked:
        return _masked(unit)
    return ServiceVerdict("failed", mend, f"it ended by itself{said}") if service.failed else ServiceVerdict("stopped")


def boot_verdict(unit: str, actual: Daemon) -> ServiceVerdict:
    """Return whether a runtime's unit starts at boot: yes, no or masked."""
    if actual.masked and not actual.enabled:
        return _masked(unit)
    return ServiceVerdict("yes" if actual.enabled else "no")


def _masked(unit: str) -> ServiceVerdict:
    return ServiceVerdict(MASKED, f"{unmask(unit)}, and {RUN}", "somebody masked it, which forbids to start it")


def masked_refusal(unit: str) -> str:
    """Return why a run starts no unit that somebody masked: that is no fault of what is desired."""
    return (
        f"{unit} is masked: somebody forbade that it is started; nothing was changed"
        f". Remedy: undo that by {unmask(unit)}, and {RUN}"
    )


def absent_refusal(runtime: str, installs: bool, binary: str | None) -> str | None:
    """Return why a run cannot bring a runtime that is not on the node; None where its packages bring it.

    installs: whether the settings have a run install packages
    binary: the missing program that the runtime's unit runs; None: there is no such unit
    """
    if binary and not (installs and binary.startswith(("/usr/bin/", "/usr/sbin/"))):
        return missing_program(f"{runtime}.service", binary)
    if installs:
        return None
    return (
        f"{runtime} is not installed, and {runtime}.source is 'present', so that no run installs it; nothing was "
        f"changed. Remedy: install it, or set {runtime}.source to the one of 'distribution' and 'docker-repository' "
        "that has it for this system"
    )


def missing_program(unit: str, binary: str) -> str:
    """Return why a run stops at a unit whose program is missing."""
    return (
        f"{binary}, which the unit {unit} runs, is missing; nothing was changed. Remedy: install its package again, or "
        "correct the unit"
    )


def service_findings(
    unit: str, state: Daemon, runs: FindingMessage, starts: FindingMessage, of: str | None = None
) -> tuple[Finding, Finding]:
    """Return whether a unit runs, and whether it starts at boot, as findings of these declarations."""
    service, boots = service_verdict(unit, state), boot_verdict(unit, state)
    good = service.actual == RUNNING
    return (
        runs.compared(service.actual, RUNNING, good, of=of, cause=service.cause, remedy=service.remedy),
        starts.compared(boots.actual, "yes", state.enabled, of=of, cause=boots.cause, remedy=boots.remedy),
    )


def refused_start(unit: str, runs: Finding, starts: Finding) -> str | None:
    """Return why a run stops where it is to have a unit run; None where nobody masked it."""
    return masked_refusal(unit) if MASKED in (runs.actual, starts.actual) else None


def running_steps(runs: Finding, starts: Finding, waits: str | None = None) -> Iterator[Step[Any]]:
    """Yield the steps that have a service run now and at boot.

    One that systemd starts over and over is started, and one that is masked is a person's to unmask.

    waits: why a run does not come to it
    """
    for item, action in ((runs, "start it"), (starts, "start it at boot")):
        if bad(item) and item.actual not in (RESTARTING, MASKED):
            yield Step(action, (item,), item.disruption or Disruption.nothing, waits)


# What brings a daemon to its files: `nothing` where it already does what they say.
Act = Literal["restart", "reload", "nothing"]


RESTART_FORBIDDEN = "{containers} containers run and disruption.allow is nothing"


def restart_of(actual: Daemon) -> Disruption:
    """Return how much a restart of a daemon disturbs: nothing where it does not run."""
    return Disruption.restart if actual.active else Disruption.nothing


def blocked_reason(allowed: Disruption, containers: int) -> str | None:
    """Return why a restart under so many running containers is not done now; None where it may be done."""
    forbidden = is_forbidden(Disruption.restart, allowed, containers)
    return RESTART_FORBIDDEN.format(containers=containers) if forbidden else None


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


DOCKER_OF_DOCKER = ("docker-ce", "docker-ce-cli")
# Of container runtimes those that another source's would remove.
RUNTIMES = tuple(
    sorted({name for rows in tables.removals_of_runtimes().values() for gone in rows.values() for name in gone})
)
ORIGINS = {"distribution": "the distribution", "docker-repository": "Docker's repository"}


@dataclass(frozen=True)
class RuntimePackages(Reading):
    """Hold the installed packages of container runtimes, of whatever source: (name, version)."""

    installed: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return their names."""
        return tuple(name for name, _ in self.installed)


def parse_runtime_packages(lines: list[str]) -> RuntimePackages:
    """Parse `package=NAME VERSION` lines; raise ParseError for what is none."""
    pairs = [tuple(line.split(" ")) for line in repeated(lines, "package")]
    if wrong := [pair for pair in pairs if len(pair) != 2]:
        raise ParseError(f"not a package: {' '.join(wrong[0])[:80]!r}")
    return RuntimePackages(tuple(sorted((name, version) for name, version in pairs)))


def docker_packages(source: str, system: Distribution) -> tuple[str, ...]:
    """Return the packages that install docker and its client; none where it is installed already, or none are known."""
    if source == "docker-repository":
        return DOCKER_OF_DOCKER
    # Preflight refuses a distribution without docker.io.
    if source != "distribution" or system.family != "apt":
        return ()
    clients = (
        row.package
        for row in tables.docker_clients()
        if row.id == system.id and versions.at_least(system.version, row.since)
    )
    return ("docker.io", *clients)


def removed_for(desired: Collection[str], installed: Collection[str], family: str = "apt") -> tuple[str, ...]:
    """Return the installed packages that a family's package manager would remove to install the wanted ones.

    Of the wanted ones those count that are not there yet.
    """
    table = tables.removals_of_runtimes().get(family, {})
    lost = {gone for name in desired if name not in installed for gone in table.get(name, ())}
    return tuple(name for name in installed if name in lost and name not in desired)


def is_had(runtime: str, source: str, system: Distribution) -> bool:
    """Say whether a distribution has a runtime (containerd, docker) in a source (distribution, docker-repository)."""
    if source == "docker-repository":
        return system.docker != ""
    return system.containerd if runtime == "containerd" else system.family == "apt"


def way_out(runtime: str, source: str, system: Distribution) -> str:
    """Return which settings ask for no such removal, as a remedy begins: none that preflight refuses there."""
    other = {"distribution": "docker-repository", "docker-repository": "distribution"}[source]
    named = f"{other!r}, or " if is_had(runtime, other, system) else ""
    return f"set {runtime}.source = {named}'present' to leave what is there"
