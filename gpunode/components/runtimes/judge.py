"""The decision about a container runtime with a daemon: one judge for containerd, docker and CRI-O.

A runtime contributes its findings (`RuntimeFindings`), what is known of its daemon (`RuntimeJudge`), and the comparison
of its configuration (`Configuration`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpunode.base import versions
from gpunode.base.comparison import (
    AS_DESIRED,
    DRIFT,
    RUN,
    FindingMessage,
    by_hand,
    configuration_files,
    pending,
    unrecorded,
)
from gpunode.base.decision import Decision, Step, bad, behind, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.runtimes.runtime import (
    RESTART_FORBIDDEN,
    Act,
    RuntimeChange,
    Runtimes,
    restart_of,
    runtime_finding,
)
from gpunode.components.runtimes.service import (
    MEND_BOOT,
    MEND_SERVICE,
    masked_refusal,
    refused_start,
    running_steps,
    service_findings,
)
from gpunode.system.service import Daemon

_AFTER = {"restart": " and restart it", "reload": " and reload it", "nothing": ""}


@dataclass(frozen=True)
class DesiredRuntime:
    """The desired state of a runtime with a daemon.

    allowed: how much a change may disturb
    version: a version or a branch; None: any
    unit: the systemd unit of its daemon
    """

    runtimes: Runtimes = field(default_factory=Runtimes)
    allowed: Disruption = Disruption.restart
    version: str | None = None
    unit: str = ""


@dataclass(frozen=True)
class RuntimeFindings:
    """The findings that every runtime with a daemon has.

    restart_forbidden: why a restart is not done now; `{containers}` is their number
    """

    component: str
    version: FindingMessage
    service: FindingMessage
    starts_at_boot: FindingMessage
    files: FindingMessage
    restart_forbidden: str = RESTART_FORBIDDEN


def runtime_findings(
    component: str,
    version: FindingMessage | None = None,
    files: FindingMessage | None = None,
    restart_forbidden: str = RESTART_FORBIDDEN,
) -> RuntimeFindings:
    """Declare the findings of a runtime; version, files: where the runtime has a declaration of its own."""
    return RuntimeFindings(
        component,
        version or runtime_finding(component, "version", restart_forbidden),
        runtime_finding(component, "service", remedies=MEND_SERVICE, classes=DRIFT),
        runtime_finding(component, "starts at boot", remedies=MEND_BOOT, classes=DRIFT),
        files or configuration_files(component),
        restart_forbidden,
    )


@dataclass(frozen=True)
class Configuration:
    """The comparison of a runtime's configuration with the desired one.

    values: the findings about the values that the daemon runs by
    act: what brings the daemon to the desired values
    change: the change of files and daemon; None where there is none, or it is not known
    refusal: why a run cannot make that change
    editable: whether the files can be edited; False where the refusal is about the files themselves
    plugin: the findings about what the daemon loads
    is_forecast: whether the files are not compared (`RuntimeJudge.is_forecast`)
    """

    values: tuple[Finding, ...]
    act: Act
    change: RuntimeChange | None = None
    refusal: str | None = None
    editable: bool = True
    plugin: tuple[Finding, ...] = ()
    is_forecast: bool = False


@dataclass(frozen=True)
class RuntimeJudge:
    """The judge of one runtime on one node.

    installed: the version of the daemon's program; None where it is missing
    containers: how many running containers a restart disturbs
    has_texts: whether the texts of its files are known: recorded facts have none
    absent: why no run can bring a missing runtime; None where its packages bring it, or it is installed
    """

    findings: RuntimeFindings
    desired: DesiredRuntime
    actual: Daemon
    installed: str | None
    containers: int
    has_texts: bool = True
    absent: str | None = None

    @property
    def blocked(self) -> str | None:
        """Return why the daemon is not restarted now; None where it may be."""
        forbidden = is_forbidden(Disruption.restart, self.desired.allowed, self.containers)
        return self.findings.restart_forbidden.format(containers=self.containers) if forbidden else None

    def version(self) -> tuple[Finding, str | None]:
        """Compare the version, and return why its packages are not upgraded now: an upgrade restarts the daemon."""
        rule = self.desired.version
        good = self.installed is not None and (rule is None or versions.in_branch(self.installed, rule))
        disruption = restart_of(self.actual)
        finding = self.findings.version.compared(self.installed, rule or "any version", good, disruption=disruption)
        blocked = self.blocked if finding.disruption else None
        return (finding if blocked is None else pending(finding, blocked)), blocked

    def is_forecast(self) -> bool:
        """Return whether the files cannot be compared yet: no texts, or a run installs a version of other texts."""
        version, blocked = self.version()
        stays = not bad(version) or (blocked is not None and self.installed is not None)
        return not (stays and self.has_texts)

    def configuration(
        self, compared: Configuration, causes: Mapping[str, str] | None = None
    ) -> Decision[RuntimeChange]:
        """Return the decision about the configuration: its findings, and one step that changes files and daemon.

        causes: causes of findings that stay where no run can make the change -> the same with their remedy
        """
        blocked = self.blocked if compared.act == "restart" else None
        refusal = compared.refusal
        if compared.change is not None and self.actual.masked and refusal is None and blocked is None:
            refusal = masked_refusal(self.desired.unit)
        judged = (*compared.values, *self._files(replace(compared, refusal=refusal)), *compared.plugin)
        if refusal is not None:
            return Decision(_as_manual(judged, refusal, causes or {}), (), refusal)
        if blocked is not None:
            judged = tuple(pending(item, blocked) for item in judged)
        fixes = bad(*judged)
        if not fixes:
            return Decision(judged)
        action = "configure its runtimes" + (_AFTER[compared.act] if self.actual.active else "")
        if fixes[0].code == self.findings.files.code:
            action = "write its configuration files"
        elif fixes[0] in judged[len(judged) - len(compared.plugin) :]:
            action = "restart it"
        disruption = max(item.disruption or Disruption.nothing for item in fixes)
        return Decision(judged, (Step(action, fixes, disruption, blocked, compared.change),))

    def _files(self, compared: Configuration) -> tuple[Finding, ...]:
        """Compare the files with what a run would write, where the daemon runs by the desired values."""
        message, change = self.findings.files, compared.change
        if bad(*compared.values):
            return ()
        if compared.is_forecast:
            return (unrecorded(message),) if self.installed is not None and not self.has_texts else ()
        paths = ", ".join(file.path for file in change.files) if change is not None else ""
        disruption = restart_of(self.actual) if compared.act == "restart" else Disruption.nothing
        finding = message.compared(
            f"another text in {paths}" if paths else AS_DESIRED,
            AS_DESIRED,
            not paths,
            cause=message.causes[0],
            disruption=disruption,
        )
        known = all(item.finding_class is not FindingClass.NOT_KNOWN for item in (*compared.values, *compared.plugin))
        if compared.refusal is not None and known and not (compared.editable and bad(finding, *compared.plugin)):
            # Without this finding, drift would pass a node that every run refuses.
            finding = message.finding(FindingClass.ERROR, "not editable by a run", AS_DESIRED)
        return (finding,)

    def component(
        self,
        configured: Decision[RuntimeChange],
        *,
        version: tuple[Finding, str | None] | None = None,
        others: tuple[Finding, ...] = (),
        others_action: str = "",
    ) -> Decision[RuntimeChange]:
        """Return the decision about the whole component: its package, its configuration and its service.

        version: where the runtime judges its version by itself
        others: findings that a run fixes before it comes to the daemon, by the step `others_action`
        """
        unit = self.desired.unit
        finding, blocked = version or self.version()
        runs, starts = service_findings(unit, self.actual, self.findings.service, self.findings.starts_at_boot)
        refusal = configured.refusal or refused_start(unit, runs, starts)
        if refusal is not None and any(step.waits is None for step in configured.steps):
            configured = Decision(_as_manual(configured.findings, refusal, {}))
        steps: list[Step[RuntimeChange]] = []
        if bad(finding) and not finding.by_person:
            install = f"install {self.findings.component}"
            steps.append(Step(install, (finding,), finding.disruption or Disruption.nothing, blocked))
        steps += configured.steps
        if missing := bad(*others):
            steps.append(Step(others_action, missing, Disruption.nothing))
        # A run ends at a refused change, before it starts anything.
        steps += running_steps(runs, starts, refusal)
        decision = Decision((finding, runs, starts, *others, *configured.findings), tuple(steps), refusal)
        if self.absent is None:
            return decision
        late = behind(decision, self.absent, lambda step: not set(step.settles) & set(others))
        return replace(late, refusal=self.absent)


def _as_manual(judged: tuple[Finding, ...], refusal: str, causes: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return the findings as a person's to fix."""
    return tuple(by_hand(item, causes.get(item.cause or "", refusal)) for item in judged)


def compare_values(
    messages: Mapping[str, FindingMessage],
    desired: Mapping[str, str],
    actual: Mapping[str, str | None],
    silent: tuple[str, str] | None,
    disruption: Disruption,
) -> tuple[Finding, ...]:
    """Compare the values that a daemon answers, by their keys, with the desired ones.

    silent: where a running daemon gives no answer: that, and what to look at
    """
    if silent is not None:
        cause, look = silent
        return tuple(messages[key].not_known(value, cause, f"{look}, and {RUN}") for key, value in desired.items())
    return tuple(
        messages[key].compared(actual[key], value, actual[key] == value, disruption=disruption)
        for key, value in desired.items()
    )
