"""What a run would do to a node, in which order, and what that disturbs; or why it will not be done.

Pure: settings and a node's reading in, a plan out, so that a plan can be reviewed without the machine. The steps come
from the same judgement as the verdict at the end of a run: what is not as asked is what there is to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from gpunode.base import decision
from gpunode.base.decision import Decision, is_forbidden
from gpunode.base.subject import Subject
from gpunode.disturbance import Disturbance
from gpunode.driver_packages import on_system
from gpunode.findings import Finding, FindingClass
from gpunode.mig import boot as mig_boot
from gpunode.mig.target import TargetError, targets
from gpunode.mps.change import felt_by_clients
from gpunode.node import Node
from gpunode.preflight import Caution, Refusal, cautions, refusals
from gpunode.reading import Reading
from gpunode.settings import Settings
from gpunode.verify import decisions, judged

SCHEMA = 1


@dataclass(frozen=True)
class Step(Reading):
    """Hold one thing to be done: of which component, what, because of what, and what it disturbs.

    `found` and `wanted` are the two sides of the difference; `pending` says that a run will report it, not do it: the
    settings do not allow it now (disruption.allow), or it is for a person to do. `packages` are what it installs,
    as far as settings and tables tell: what else these need comes along. `drains`: the node of the cluster is emptied
    before it.
    """

    component: str
    action: str
    found: str | None
    wanted: str | None
    disturbs: Disturbance
    pending: bool = False
    packages: tuple[str, ...] = ()
    drains: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON types; what it disturbs by name."""
        return {**super().to_json(), "disturbs": self.disturbs.name}


@dataclass(frozen=True)
class Plan(Reading):
    """Hold what is to become of one node."""

    refusals: tuple[Refusal, ...]
    cautions: tuple[Caution, ...]
    steps: tuple[Step, ...]

    @property
    def verdict(self) -> str:
        """Return `refused`, `nothing to do` or `can be done`."""
        if self.refusals:
            return "refused"
        return "can be done" if self.steps else "nothing to do"

    @property
    def disturbs(self) -> Disturbance:
        """Return the gravest disturbance among the steps that will be done."""
        return max((step.disturbs for step in self.steps if not step.pending), default=Disturbance.nothing)

    @property
    def drains(self) -> bool:
        """Say whether the node of the cluster is emptied on the way, and given back at the end."""
        return any(step.drains for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """Return verdict and gravest disturbance beside the fields."""
        return {"verdict": self.verdict, "disturbs": self.disturbs.name, **super().to_json()}


def refused_plan(refusal: Refusal) -> Plan:
    """Return the plan for a node that is refused before anything of it is judged."""
    return Plan((refusal,), (), ())


def plan(settings: Settings, node: Node, today: date | None = None) -> Plan:
    """Return the plan for one node; a refused node has no steps, for nothing will be done to it."""
    settings = on_system(settings, node.operating_system)
    refused = refusals(settings, node.machine)
    told = cautions(settings, node.machine, today)
    return Plan(refused, told, () if refused else tuple(_steps(settings, node)))


# What is wrong with a component, by what it is about. Each room takes out what its steps mend.
Bad = dict[str, Finding]


def _steps(settings: Settings, node: Node) -> Iterator[Step]:
    bad: dict[str, Bad] = {}
    decided = decisions(settings, node)
    findings, files = judged(settings, node, decided=decided)
    for item in findings:
        if item.finding_class is not FindingClass.OK:
            bad.setdefault(item.component, {})[item.what] = item
    allowed = Disturbance[settings.disruption.allow]
    # An MPS daemon that is to go holds its GPU, one that is to come serves GPUs that are whole again.
    sharing = (("mig", _mig), ("mps", _mps)) if settings.mps.enabled else (("mps", _mps), ("mig", _mig))
    for component, steps in (
        ("repositories", _decided("repositories", decided)),
        ("driver", _decided("driver", decided)),
        ("health", _by_hand),
        ("cuda", _decided("cuda", decided)),
        *sharing,
        ("toolkit", _decided("toolkit", decided)),
        ("containerd", _decided("containerd", decided)),
        ("docker", _decided("docker", decided)),
        ("node", _decided("node", decided)),
    ):
        found = bad.pop(component, {})
        workloads = _workloads(settings, node, component)
        own = [step for step in files.steps if step.settles[0].component == component]
        _take(found, *(step.settles[0].what for step in own))
        every = (*(_of(component, step) for step in own), *steps(settings, node, found))
        for step in (*every, *_by_hand(settings, node, found)):
            # What was cut off is undone before anything else, whatever is allowed.
            pending = step.pending or (component != "node" and is_forbidden(step.disturbs, allowed, workloads))
            disturbs = step.disturbs > Disturbance.nothing and (workloads > 0 or component != "mps")
            drains = settings.kubernetes.drains and disturbs and not pending
            yield replace(step, pending=pending, drains=drains)


def _step(action: str, item: Finding, disturbs: Disturbance | None = None, pending: bool = False) -> Step:
    grave = item.disturbs if disturbs is None else disturbs
    return Step(item.component, action, item.found, item.wanted, grave or Disturbance.nothing, pending)


def _by_hand(settings: Settings, node: Node, found: Bad) -> Iterator[Step]:
    """Give what no step of a run mends to a person, so that a plan leaves out nothing that the verdict would find."""
    while found:
        item = found.pop(next(iter(found)))
        yield _step(f"{item.what}: {item.remedy or item.cause or item.finding_class}", item, pending=True)


def _take(found: Bad, *subjects: str) -> Finding | None:
    """Take out all of `subjects`; return the first that is there."""
    taken = [found.pop(subject) for subject in subjects if subject in found]
    return taken[0] if taken else None


def _decided(component: str, decided: Mapping[str, Decision[Any]]) -> Callable[[Settings, Node, Bad], Iterator[Step]]:
    """Return the steps of a component that is decided once; none of one that is switched off."""
    own = decided.get(component, Decision(()))

    def steps(settings: Settings, node: Node, found: Bad) -> Iterator[Step]:
        for step in own.steps:
            _take(found, *(item.what for item in step.settles))
            yield _of(component, step)

    return steps


def _of(component: str, step: decision.Step[Any]) -> Step:
    """Return the plan's step of one that was decided."""
    sides = (step.settles[0].found, step.settles[0].wanted) if step.settles else (step.actual, step.desired)
    return Step(component, step.action, *sides, step.disturbs, step.waits is not None, step.packages)


def _mps(settings: Settings, node: Node, found: Bad) -> Iterator[Step]:
    for what in tuple(found):
        item = found.pop(what)
        if unit := Subject.SERVICE.named(what):
            yield _step(f"stop {unit}" if item.wanted == "none" else f"run {unit}, now and at boot", item)
        elif name := Subject.MPS_SETTING.named(what):
            yield _step(f"tell the MPS daemon of {name} {item.wanted}", item)
        elif index := Subject.COMPUTE_MODE.named(what):
            restart = ", which takes a restart of the MPS daemon" if item.disturbs else ""
            yield _step(f"set the compute mode of GPU {index}{restart}", item)
        elif Subject.RUNNING_CONFIGURATION.named(what):
            yield _step("restart the MPS daemon", item)
        elif Subject.MPS_ENVIRONMENT.named(what):
            yield _step(f"{'no longer ' if item.wanted == 'none' else ''}set {what}", item)
        else:
            yield _step(f"set {what}", item)


def _mig(settings: Settings, node: Node, found: Bad) -> Iterator[Step]:
    if item := _take(found, Subject.MIG_TARGET):
        if node.mig.status == "ok":
            found[Subject.MIG_TARGET] = item
        else:
            yield _step(f"divide the GPUs by MIG configuration {settings.mig.config}, once the driver runs", item)
    try:
        every = targets(settings.mig, node.pci.gpus, node.mig) if settings.mig.config else ()
    except TargetError:
        every = ()
    divided = False
    for target in every:
        index = str(target.gpu.index)
        if item := _take(found, Subject.MIG_INSTANCES.of(index), Subject.MIG_MODE.of(index)):
            divided = True
            yield _step(f"GPU {index}: {target.steps}", item)
    service = Subject.SERVICE.of(mig_boot.NAME)
    if (item := found.get(service)) and item.wanted == "none":
        yield _step("no longer bring a MIG layout back at boot; the instances stay", found.pop(service))
    # That comes along with any other change.
    item = _take(found, Subject.MIG_RECORD, Subject.AT_BOOT.of(mig_boot.NAME), service)
    if item and not divided:
        yield _step("bring the MIG layout back at every boot", item)


def _workloads(settings: Settings, node: Node, component: str) -> int:
    """Return how many containers would feel a restart: docker's own may be kept by live-restore.

    Of MPS, how many daemons with clients are to be restarted or to go; a node is drained for those alone.
    """
    if component == "mps":
        return len(felt_by_clients(settings.mps, len(node.pci.gpus), node.mps))
    if component == "mig":
        return node.containerd.shims + node.docker.containers
    if component == "docker":
        return 0 if node.docker.live_restore else node.docker.containers
    return node.containerd.shims
