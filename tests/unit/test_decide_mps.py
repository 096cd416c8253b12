"""What is decided of MPS is what drift finds, what the plan promises, and what the operation does: on any node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.decision import Decision
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.components.mps.change import PROFILE, MpsChange, actual_digests
from gpunode.components.mps.daemon import COMPUTE_MODES, UNITS, daemons
from gpunode.components.mps.state import Mps, MpsDaemon
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.gpu import Mps as MpsFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.fleet.rollout.choice import left_out
from gpunode.node import Node
from gpunode.node.components import decisions
from gpunode.node.plan import STOP, plan
from gpunode.node.verdict import judge
from gpunode.operations import mps as operation
from gpunode.settings import Settings, settings_from
from gpunode.system.applied import Applied, OwnFile, PresentFile
from gpunode.system.gpu import Gpu, Gpus
from gpunode.system.pci import PciGpus
from gpunode.system.transaction import Journal
from tests.support.mps import H100, ROW, asked, digest_of, settled
from tests.support.simulated_host import Host, commands
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure

OTHER = "0" * 64
_ASKED: Any = st.builds(
    lambda environment, **more: {**more, "environment": environment and more["daemons"] == "node"},
    environment=st.booleans(),
    daemons=st.sampled_from(["node", "node", "gpu"]),
    active_thread_percentage=st.sampled_from(["100", "100", "50"]),
    memory_limit=st.sampled_from([None, "8G"]),
    compute_mode=st.sampled_from(["exclusive-process", "exclusive-process", "default"]),
)
_DAEMON = st.sampled_from(
    [
        {},
        {},
        {"clients": 2},
        {"clients": 2, "stale": True},
        {"stale": True},
        {"enabled": False},
        {"active": False, "answers": False, "clients": 0},
        {"answers": False, "clients": None, "last_error": "it failed"},
        {"settings": None, "readings": ()},
        {"settings": OTHER},
    ]
)


@st.composite
def _actual(draw: Any) -> Mps:
    """Return what a run of some settings left on a node with two GPUs, and what became of it since."""
    before = asked(**draw(_ASKED))
    there = settled(before, gpus=2, exclusive=before.compute_mode == "exclusive-process")
    every = tuple(replace(each, **draw(_DAEMON)) for each in there.daemons)
    files = [(path, draw(st.sampled_from([digest, digest, digest, OTHER, None]))) for path, digest in there.files]
    left = tuple((path, digest) for path, digest in files if digest is not None)
    there = replace(there, daemons=draw(st.sampled_from([every, every, every[:1], ()])), files=left)
    there = replace(there, program=draw(st.sampled_from([there.program] * 5 + [None])))
    foreign = draw(st.sampled_from([(), (), (), (UNITS[1],), (PROFILE,)]))
    known = dict(there.files)
    return replace(there, foreign=tuple(path for path in foreign if path not in known))


def node_with(actual: Mps, *gpus: Gpu) -> Node:
    return replace(GOOD, mps=actual, gpus=Gpus("ok", 0, None, gpus), pci=PciGpus((H100,) * len(gpus)))


def _settings(allow: str, enabled: bool, mps: dict[str, Any]) -> Settings:
    return settings_from({**DATA, "mps": {"enabled": enabled, **mps}, "disruption": {"allow": allow}})


def _applied(settings: Settings, node: Node, change: MpsChange) -> Node:
    """Return the node as the transaction leaves it."""
    wanted = daemons(settings.mps, range(2)) if settings.mps.enabled else ()
    files = {path: digest for path, digest in actual_digests(node.mps).items() if path not in change.removed}
    files |= {path: digest_of(text) for path, text in change.written.items()}
    mode, every, modes = settings.mps.compute_mode, [], set(change.modes)
    for daemon in wanted:
        each = node.mps.daemon(daemon.unit) or MpsDaemon(daemon.unit, False, False, False, False, None, (), 0, 0)
        each = replace(each, enabled=True, settings=files.get(daemon.settings_path))
        if daemon.unit in (*change.restart, *change.told):
            each = replace(each, readings=tuple((item.question, item.answer) for item in daemon.controls))
        if daemon.unit in change.restart:
            exclusive = mode == "exclusive-process"
            each = replace(each, active=True, answers=True, stale=False, clients=0, exclusive=exclusive)
            modes |= set(daemon.gpus) if exclusive else set()
        every.append(each)
    own = tuple((path, digest) for path, digest in files.items() if not path.startswith("/etc/nvidia-mps/"))
    rows = tuple(
        replace(row, compute_mode=COMPUTE_MODES[mode]) if row.index in modes else row for row in node.gpus.gpus
    )
    if change.gone and not wanted:  # Units set the mode back when they stop.
        rows = tuple(replace(row, compute_mode="Default") for row in rows)
    return node_with(replace(node.mps, files=own, daemons=tuple(every)), *rows)


def _bad(settings: Settings, node: Node) -> list[Finding]:
    return [item for item in judge(settings, node) if item.component == "mps" and item.finding_class != "ok"]


@given(
    actual=_actual(),
    allow=st.sampled_from(["nothing", "restart", "reboot"]),
    enabled=st.sampled_from([True, True, False]),
    mps=_ASKED,
    modes=st.lists(st.sampled_from(["Exclusive_Process", "Exclusive_Process", "Default"]), min_size=2, max_size=2),
    memory=st.sampled_from([81559, 81559, 81559, None, 4096]),
)
def test_of_mps_drift_plan_verdict_and_run_say_the_same(
    actual: Mps, allow: str, enabled: bool, mps: dict[str, Any], modes: list[str], memory: int | None
) -> None:
    settings = _settings(allow, enabled, mps)
    if not enabled and not actual.daemons:  # Another mode is a person's to change then.
        modes = ["Default", "Default"]
    rows = [replace(ROW, index=index, compute_mode=mode, memory_mib=memory) for index, mode in enumerate(modes)]
    node = node_with(actual, *rows)
    decision: Decision[MpsChange] = decisions(settings, node)["mps"]
    bad = _bad(settings, node)
    settled_by_steps = {item.what for step in decision.steps for item in step.settles}
    # Every difference is a step's, or says that a person is to mend it; what a step settles is a difference.
    assert all(item.what in settled_by_steps or item.by_person for item in bad)
    assert settled_by_steps <= {item.what for item in bad}
    assert decision.refusal is None or (bad and not decision.steps)
    steps = [step for step in plan(settings, node).steps if step.component == "mps"]
    promised = [(step.action, step.waits is not None, step.disruption) for step in decision.steps]
    planned = [step for step in steps if not step.action.startswith(f"{step.what}: ") and step.action != STOP]
    assert promised == [(step.action, step.pending, step.disruption) for step in planned]
    assert not (decision.refusal and [step for step in steps if not step.pending])
    # One transaction brings all of it, or all of it waits.
    waits = {step.waits for step in decision.steps}
    assert len(waits) <= 1
    if waits not in (set(), {None}):
        assert {item.finding_class for item in bad} == {FindingClass.RESTART_PENDING}
        assert left_out(NodeReport("gpu-1", tuple(bad)), everyone=False, allowed=Disruption[allow])
    if enabled and actual.program is None:
        assert all(step.change is None for step in decision.steps)
        return
    host = Host({MpsFact: actual, GpusFact: node.gpus, TransactionJournal: Journal(None, None, None, False)})
    every = daemons(settings.mps, range(2)) if enabled else ()
    with ctx_host.use(host):
        given_commands = commands(
            operation.daemons, host, desired=every, settings=settings.mps, restart_allowed=allow != "nothing"
        )
    assert host.refusals == ([decision.refusal] if decision.refusal else [])
    assert (given_commands != []) == (waits == {None})
    if waits == {None}:
        change = decision.steps[0].change
        assert change is not None and all(step.change is change for step in decision.steps)
        after = _applied(settings, node, change)
        assert not _bad(settings, after)
        assert not [step for step in plan(settings, after).steps if step.component == "mps"]
    elif waits:
        assert host.noops == [f"restart pending: {waits.pop()}"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_unit_that_is_another_one_or_gone_is_told_once_and_waits_for_clients(gone: bool) -> None:
    there = settled(asked(), clients=2)
    files = {**dict(there.files), UNITS[0]: OTHER}
    if gone:
        del files[UNITS[0]]
    # The last run left another text there: what is recorded says nothing more of it.
    found = ((UNITS[0], PresentFile("644 root:root", OTHER)),)
    record = Applied(True, "0", "x", ((UNITS[0], OwnFile(OTHER, "644")),), () if gone else found)
    node = replace(node_with(replace(there, files=tuple(files.items())), ROW), applied=record)
    for allow, finding_class in (("nothing", FindingClass.RESTART_PENDING), ("restart", FindingClass.DRIFT)):
        (item,) = _bad(_settings(allow, True, {}), node)
        assert (item.what, item.actual) == (f"file {UNITS[0]}", "none" if gone else "another text")
        assert (item.finding_class, item.disruption) == (finding_class, Disruption.restart)
        assert [step.pending for step in plan(_settings(allow, True, {}), node).steps] == [allow == "nothing"]
