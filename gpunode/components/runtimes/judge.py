"""The judge of container runtimes with a daemon: one for containerd, docker and CRI-O.

A runtime contributes its findings, what is known of its daemon, the values of its configuration, and their change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

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
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.runtimes.runtime import (
    RESTART_FORBIDDEN,
    Act,
    RuntimeChange,
    Runtimes,
    restart_of,
    runtime_finding,
)
from gpunode.system.service import (
    MEND_BOOT,
    MEND_SERVICE,
    Daemon,
    masked_refusal,
    missing_program,
    refused_start,
    running_steps,
    service_findings,
)

_ACTIONS = {"restart": " and restart it", "reload": " and reload it", "nothing": ""}
_SWITCH: dict[str | None, str] = {"true": "on", "false": "off"}
_NOT_INSTALLED = (
    "{component} is not installed, and {component}.source is 'present', so that no run installs it; nothing was changed"
    ". Remedy: install it, or set {component}.source to the one of 'distribution' and 'docker-repository' that has it "
    "for this system"
)


@dataclass(frozen=True)
class Desired:
    """The desired state of a runtime with a daemon.

    allowed: how much a change may disturb
    version: a version or a branch; None: any
    installs: whether a run installs its packages
    unit: the systemd unit of its daemon; None: the unit of its packages
    """

    runtimes: Runtimes = field(default_factory=Runtimes)
    allowed: Disruption = Disruption.restart
    version: str | None = None
    installs: bool = True
    unit: str | None = None


class RuntimeFindings:
    """The findings that every runtime with a daemon has, and its own texts.

    restart_forbidden: why a restart is not done now, with `{containers}`
    silent: that the running daemon does not answer its values
    absent: why no run installs it
    """

    def __init__(
        self,
        component: str,
        restart_forbidden: str = RESTART_FORBIDDEN,
        silent: str = "",
        absent: str = _NOT_INSTALLED,
        version: FindingMessage | None = None,
        files: FindingMessage | None = None,
    ) -> None:
        declare = partial(runtime_finding, component)
        self.component, self.silent = component, silent
        self.restart_forbidden, self.absent = restart_forbidden, absent.format(component=component)
        self.version = version or declare("version", restart_forbidden)
        self.service = declare("service", remedies=MEND_SERVICE, classes=DRIFT)
        self.starts_at_boot = declare("starts at boot", remedies=MEND_BOOT, classes=DRIFT)
        self.files = files or configuration_files(component)


@dataclass(frozen=True)
class RuntimeJudge:
    """The judge of one runtime on one node.

    installed: the version of the daemon's program; None where it is missing
    binary: the program that the unit runs; None: there is no unit
    containers: how many running containers a restart disturbs
    has_texts: whether the texts of its files are known: recorded facts have none
    """

    findings: RuntimeFindings
    desired: Desired
    actual: Daemon
    installed: str | None
    binary: str | None
    containers: int
    has_texts: bool

    @property
    def unit(self) -> str:
        """Return the unit of the daemon."""
        return self.desired.unit or f"{self.findings.component}.service"

    @property
    def absent(self) -> str | None:
        """Return why no run can bring a missing runtime; None where its packages bring it, or it is installed."""
        packaged = self.desired.installs and (self.binary or "/usr/bin/").startswith(("/usr/bin/", "/usr/sbin/"))
        if self.installed is not None or packaged:
            return None
        return missing_program(self.unit, self.binary) if self.binary else self.findings.absent

    @property
    def blocked(self) -> str | None:
        """Return why the daemon is not restarted now; None where it may be."""
        forbidden = is_forbidden(Disruption.restart, self.desired.allowed, self.containers)
        return self.findings.restart_forbidden.format(containers=self.containers) if forbidden else None

    @property
    def is_forecast(self) -> bool:
        """Return whether the files cannot be judged yet: no texts, or a run installs a version of other texts."""
        version, blocked = self.version()
        stays = not bad(version) or (blocked is not None and self.installed is not None)
        return not (stays and self.has_texts)

    def version(self) -> tuple[Finding, str | None]:
        """Compare the version, and return why its packages are not upgraded now: an upgrade restarts the daemon."""
        rule = self.desired.version
        good = self.installed is not None and (rule is None or versions.in_branch(self.installed, rule))
        version = self.findings.version.compared(
            self.installed, rule or "any version", good, disruption=restart_of(self.actual)
        )
        blocked = self.blocked if version.disruption else None
        return (version if blocked is None else pending(version, blocked)), blocked

    def configuration(
        self,
        values: tuple[Finding, ...],
        act: Act,
        change: RuntimeChange | None = None,
        refusal: str | None = None,
        *,
        editable: bool = True,
        plugin: tuple[Finding, ...] = (),
        is_forecast: bool = False,
        causes: Mapping[str, str] | None = None,
    ) -> Decision[RuntimeChange]:
        """Return the decision about the configuration: its findings, and one step that changes files and daemon.

        values, plugin: the findings about the values that the daemon runs by, and about what it loads
        act: what brings the daemon to the desired values
        change: None where there is none, or it is not known
        refusal: why a run cannot make the change; editable: whether that is not about the files themselves
        causes: causes of findings that stay where the change is refused -> the same with their remedy
        """
        blocked = self.blocked if act == "restart" else None
        if change is not None and self.actual.masked and refusal is None and blocked is None:
            refusal = masked_refusal(self.unit)
        files: tuple[Finding, ...] = ()
        if not bad(*values) and not is_forecast:
            files = (self._files(change, act),)
            known = all(item.finding_class is not FindingClass.NOT_KNOWN for item in (*values, *plugin))
            if refusal is not None and known and not (editable and bad(*files, *plugin)):
                # Without this finding, drift would pass a node that every run refuses.
                files = (self.findings.files.finding(FindingClass.ERROR, "not editable by a run", AS_DESIRED),)
        elif not bad(*values) and self.installed is not None and not self.has_texts:
            files = (unrecorded(self.findings.files),)
        judged = (*values, *files, *plugin)
        if refusal is not None:
            return Decision(_as_manual(judged, refusal, causes or {}), (), refusal)
        if blocked is not None:
            judged = tuple(pending(item, blocked) for item in judged)
        fixes = bad(*judged)
        if not fixes:
            return Decision(judged)
        action = "configure its runtimes" + (_ACTIONS[act] if self.actual.active else "")
        if fixes[0].code == self.findings.files.code:
            action = "write its configuration files"
        elif not bad(*values):
            action = "restart it"
        disruption = max(item.disruption or Disruption.nothing for item in fixes)
        return Decision(judged, (Step(action, fixes, disruption, blocked, change),))

    def _files(self, change: RuntimeChange | None, act: Act) -> Finding:
        """Compare the files with what a run would write, where the daemon runs by the desired values."""
        message, paths = self.findings.files, ", ".join(file.path for file in change.files) if change else ""
        return message.compared(
            f"another text in {paths}" if paths else AS_DESIRED,
            AS_DESIRED,
            not paths,
            cause=message.causes[0],
            disruption=restart_of(self.actual) if act == "restart" else Disruption.nothing,
        )

    def by_answers(
        self,
        messages: Mapping[str, FindingMessage],
        desired: Mapping[str, str],
        actual: Mapping[str, str | None],
        answers: bool,
        act: Act,
        needed: Callable[[], RuntimeChange | None],
        is_forecast: bool,
    ) -> Decision[RuntimeChange]:
        """Return the decision about the configuration of a daemon that answers its values.

        messages, desired, actual: by the keys of its answer
        answers: whether the running daemon gave an answer
        needed: return the change of file and daemon; it is not called where `is_forecast`
        """
        silent, look = self.findings.silent, f"look at `journalctl -u {self.unit}` on the node, and {RUN}"
        is_silent = self.actual.active and not answers
        disruption = restart_of(self.actual) if act == "restart" else Disruption.nothing
        values = tuple(
            messages[key].not_known(value, silent, look)
            if is_silent
            else messages[key].compared(
                _SWITCH.get(actual[key], actual[key]),
                _SWITCH.get(value, value),
                actual[key] == value,
                disruption=disruption,
            )
            for key, value in desired.items()
        )
        if is_forecast:
            return self.configuration(values, act, is_forecast=True)
        try:
            change = needed()
        except ConfigurationRefused as error:
            return self.configuration(values, act, None, str(error), editable=False)
        refusal = f"{silent}; nothing was changed. Remedy: {look}" if is_silent else None
        return self.configuration(values, act, change, refusal)

    def component(
        self,
        configured: Decision[RuntimeChange],
        version: tuple[Finding, str | None] | None = None,
        others: tuple[Finding, ...] = (),
        others_action: str = "",
    ) -> Decision[RuntimeChange]:
        """Return the decision about the whole component: its packages, its configuration and its service.

        version: where the runtime judges its version by itself
        others: findings that a run fixes before it comes to the daemon, by the step `others_action`
        """
        findings, (finding, blocked) = self.findings, version or self.version()
        runs, starts = service_findings(self.unit, self.actual, findings.service, findings.starts_at_boot)
        refusal = configured.refusal or refused_start(self.unit, runs, starts)
        if refusal is not None and any(step.waits is None for step in configured.steps):
            configured = Decision(_as_manual(configured.findings, refusal, {}))
        steps: list[Step[RuntimeChange]] = []
        if bad(finding) and not finding.by_person:
            install = f"install {findings.component}"
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
