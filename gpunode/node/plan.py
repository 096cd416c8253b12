"""What a run would do to a node, in which order, and what that disturbs; or why it will not be done.

Pure: settings and a node's reading in, a plan out, so that a plan can be reviewed without the machine. The steps come
from the same judgement as the verdict at the end of a run: what is not as desired is what there is to do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from gpunode.base.decision import Decision, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import PENDING, Finding, FindingClass, finding_from, typed_fields, with_since
from gpunode.base.messages import keep_as_data
from gpunode.base.reading import Reading
from gpunode.components.runtimes.unmanaged import OTHER_RUNTIME
from gpunode.node import Node
from gpunode.node.components import decisions, in_order, is_felt
from gpunode.node.machine import resolved
from gpunode.node.preflight import Caution, Refusal, cautions, refusals
from gpunode.node.verdict import judged
from gpunode.settings import Settings

SCHEMA = 2
STOP = "the run stops here, and does nothing that comes after it"


@dataclass(frozen=True)
class PlannedStep(Reading):
    """One row of a plan: what is done to which component, why, and what it disturbs.

    `actual` and `desired` are the two sides of the difference; `pending` says that a run will report it, not do it: the
    settings do not allow it now (disruption.allow), or it is for a person to do. `fails`: a run does not do it, and
    fails because of it; False in plans of earlier versions. `packages` are what it installs,
    as far as settings and tables tell: what else these need comes along. `drains`: the node of the cluster is emptied
    before it. `since`: when a run first left the node to wait for it, by the node's record; None where none did. `what`
    names what the two sides are of, as a finding does (`SystemdCgroup of nvidia`), and `code` is that finding's; None
    where the step comes with another one and settles none. `cause`: of one that is pending, why, where that is known.
    `not_known`: the actual state could not be read or judged; no run acts on it.
    """

    component: str
    action: str
    actual: str | None
    desired: str | None
    disruption: Disruption
    pending: bool = False
    packages: tuple[str, ...] = ()
    drains: bool = False
    since: str | None = None
    what: str | None = None
    code: str | None = None
    cause: str | None = None
    not_known: bool = False
    fails: bool = False

    def __post_init__(self) -> None:
        """Hold each text as data: it may have a node's own words."""
        keep_as_data(self, "component", "actual", "desired", "what", commands=("action", "cause"))

    @property
    def is_unasked(self) -> bool:
        """Return whether it is a state that is not known and that no setting asks for."""
        return self.not_known and self.desired is None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON types; what it disturbs by name."""
        return {**super().to_json(), "disruption": self.disruption.name}


@dataclass(frozen=True)
class Plan(Reading):
    """Hold what is to become of one node.

    findings: what else is found of a node that is refused; of any other node its steps say that
    cluster: the name of the cluster whose plan it is; None: a node's
    known_after_run: what a run may fail by that no reading of the node tells before
    """

    refusals: tuple[Refusal, ...]
    cautions: tuple[Caution, ...]
    steps: tuple[PlannedStep, ...]
    findings: tuple[Finding, ...] = ()
    known_after_run: tuple[str, ...] = ()
    cluster: str | None = None

    @property
    def verdict(self) -> str:
        """Return `refused`, `would fail`, `can be done`, `waits`, `not known` or `nothing to do`."""
        if self.refusals:
            return "refused"
        if any(step.fails for step in self.steps):
            return "would fail"
        if any(not step.pending for step in self.steps):
            return "can be done"
        if any(not step.not_known for step in self.steps):
            return "waits"
        return "not known" if self.steps else "nothing to do"

    @property
    def is_negative(self) -> bool:
        """Return whether `gpunode apply` would not exit 0: as of findings, and of whatever a run leaves pending."""
        return bool(self.refusals) or any(step.pending and not step.is_unasked for step in self.steps)

    @property
    def disruption(self) -> Disruption:
        """Return the gravest disruption among the steps that will be done."""
        return max((step.disruption for step in self.steps if not step.pending), default=Disruption.nothing)

    @property
    def drains(self) -> bool:
        """Say whether the node of the cluster is emptied on the way, and given back at the end."""
        return any(step.drains for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return verdict and gravest disruption beside the fields."""
        name, fields = {} if self.cluster is None else {"name": self.cluster}, super().to_json()
        fields["findings"] = [item.to_json() for item in self.findings]
        del fields["cluster"]
        return {**name, "verdict": self.verdict, "disruption": self.disruption.name, **fields}


def plan_from(found: Mapping[str, Any]) -> Plan:
    """Return the plan of which `to_json` gave this; raise KeyError, TypeError or ValueError where it did not."""
    return Plan(
        tuple(Refusal(**typed_fields(Refusal, each)) for each in found["refusals"]),
        tuple(Caution(**typed_fields(Caution, each)) for each in found["cautions"]),
        tuple(PlannedStep(**typed_fields(PlannedStep, each)) for each in found["steps"]),
        # A plan of an earlier version has none.
        tuple(map(finding_from, found.get("findings", ()))),
        tuple(map(str, found.get("known_after_run", ()))),
        None if found.get("name") is None else str(found["name"]),
    )


def plan(settings: Settings, node: Node, today: date | None = None, no_cluster: bool = False) -> Plan:
    """Return the plan for one node; a refused node has no steps, for nothing will be done to it.

    no_cluster: as in `decisions`
    """
    refused, told = refusals(settings, node), cautions(settings, node, today)
    settings = resolved(settings, node)
    steps = () if refused else tuple(_steps(settings, node, no_cluster))
    return Plan(refused, told, steps, known_after_run=tuple(_known_after_run(steps)))


def _known_after_run(steps: tuple[PlannedStep, ...]) -> Iterator[str]:
    """Yield what only the run finds out about the steps that it does."""
    done = [step for step in steps if not step.pending]
    if any(step.packages or step.action.startswith("install ") for step in done):
        yield "whether the repositories have the packages, and they can be installed"
    if any(step.code in ("driver.module-on-disk", "driver.loaded-module") for step in done):
        yield "whether the kernel accepts the driver's module"
    if any("service" in (step.code or "") for step in done):
        yield "whether the services start, and go on running"
    if any(step.disruption is Disruption.reboot for step in done):
        yield "whether the node may be rebooted, and answers again"


def _steps(settings: Settings, node: Node, no_cluster: bool) -> Iterator[PlannedStep]:
    decided = decisions(settings, node, no_cluster=no_cluster)
    drains = settings.kubernetes.drains and not no_cluster
    is_stopped = any(each.refusal is not None for each in decided.values())
    findings, files = judged(settings, node, decided=decided)
    # A caution of the plan says what runtimes of other programs come to.
    bad = (each for each in findings if each.finding_class is not FindingClass.OK and each.code != OTHER_RUNTIME.code)
    differences = {(item.component, item.what): item for item in bad}
    for component in in_order(settings):
        own = decided.get(component, Decision(()))
        of_files = [step for step in files.steps if step.settles[0].component == component]
        felt = is_felt(component, own)
        for step in (*of_files, *own.steps):
            for item in step.settles:
                differences.pop((item.component, item.what), None)
            first = step.settles[0] if step.settles else None
            pending = step.waits is not None or _is_pending(settings, node, component, step.disruption)
            # What waits for a boot that is not allowed is a boot's when the run is through, not a difference.
            boots = is_forbidden(step.disruption, Disruption[settings.disruption.allow], 0)
            left = pending and not is_stopped and not boots
            yield PlannedStep(
                component,
                step.action,
                *((first.actual, first.desired) if first else (step.actual, step.desired)),
                step.disruption,
                pending,
                step.packages,
                drains=drains and step.disruption > Disruption.nothing and felt and not pending,
                since=_since(node, step.settles) if pending else None,
                what=str(first.what) if first else None,
                code=first.code if first else None,
                cause=step.waits,
                fails=left and any(map(_fails, step.settles)),
            )
        # What no step of a run mends is a person's, so that a plan leaves out nothing that the verdict would find.
        # A finding has the reason of its refusal without that it changed nothing.
        is_told, reason = False, str(own.refusal).replace("; nothing was changed", "")
        judged_with = {component, *(item.component for item in own.findings)}
        for item in [item for item in differences.values() if item.component in judged_with]:
            del differences[item.component, item.what]
            is_told |= _fails(item) and bool(item.cause) and str(item.cause) in reason
            yield step_of(item, _since(node, (item,)))
        if own.refusal is not None and not is_told:
            yield PlannedStep(component, STOP, None, None, Disruption.nothing, True, cause=own.refusal, fails=True)


def step_of(item: Finding, since: str | None = None) -> PlannedStep:
    """Return the row of a difference that no run removes, or of a state that is not known."""
    return PlannedStep(
        item.component,
        f"{item.what}: {item.remedy or item.cause or item.finding_class}",
        item.actual,
        item.desired,
        item.disruption or Disruption.nothing,
        pending=True,
        since=since,
        what=str(item.what),
        code=item.code,
        cause=item.cause if item.remedy else None,
        not_known=item.finding_class is FindingClass.NOT_KNOWN,
        fails=_fails(item),
    )


def _fails(item: Finding) -> bool:
    """Return whether the verdict at the end of a run fails by a difference that the run leaves."""
    return item.finding_class not in (FindingClass.OK, FindingClass.NOT_KNOWN, *PENDING)


def _since(node: Node, findings: tuple[Finding, ...]) -> str | None:
    """Return since when the node waits for what settles these, the first of them."""
    told = with_since(findings, dict(node.applied.waiting))
    return min((item.since for item in told if item.since), default=None)


def _is_pending(settings: Settings, node: Node, component: str, disruption: Disruption) -> bool:
    """Say whether the settings do not allow now what packages disturb; other steps say themselves why they wait.

    What was cut off is undone before anything else, whatever is allowed.
    """
    if component in ("crio", "imex", "mps", "mig", "power", "slurm", "node"):
        return False
    # docker's own containers may be kept by live-restore.
    of_docker = 0 if node.docker.live_restore else node.docker.containers
    workloads = of_docker if component == "docker" else node.containerd.shims
    return is_forbidden(disruption, Disruption[settings.disruption.allow], workloads)
