"""What is decided of MIG is what drift finds, what the plan promises, and what the operation does: on any node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.decision import Decision
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mig.boot import UNIT, MigBoot
from gpunode.components.mig.decide import MigChange
from gpunode.components.mig.state import DISABLED, ENABLED, Mig
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.gpu import MigBoot as MigBootFact
from gpunode.facts.runtimes import Containerd as ContainerdFact
from gpunode.facts.runtimes import Crio as CrioFact
from gpunode.facts.runtimes import Docker as DockerFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.node import Node
from gpunode.node.components import decisions
from gpunode.node.plan import STOP, plan
from gpunode.node.verdict import judge
from gpunode.operations import mig as operation
from gpunode.settings import Settings, settings_from
from gpunode.system.transaction import Journal
from tests.support.mig_target import DECLARATION, FILES, MIXED, OWN, RECORD, boot_of, gpu, instances, node_with
from tests.support.simulated_host import Host, commands
from tests.support.verify import DATA

pytestmark = [pytest.mark.pure, pytest.mark.simulated]

_GPU = st.builds(
    lambda mode, pending, places: gpu(0, mode, *(places if mode == ENABLED else ()), pending=pending or mode),
    mode=st.sampled_from([ENABLED, ENABLED, ENABLED, DISABLED]),
    pending=st.sampled_from([None, None, None, ENABLED, DISABLED]),
    places=st.sampled_from([MIXED, MIXED, MIXED[:2], ("2g.20gb:4",), ("3g.40gb:4", "2g.20gb:0", "2g.20gb:2"), ()]),
)
_MIG = st.one_of(
    *[_GPU.map(lambda each: Mig("ok", None, (each,)))] * 4,
    st.sampled_from(
        [
            Mig("absent"), Mig("mismatch"), Mig("hangs"), Mig("ok"), Mig("ok", None, (gpu(0, "[N/A]"),)),
            Mig("ok", None, (gpu(0, ENABLED, uuid="GPU-0 $(reboot)"),)),
        ]
    ),
)  # fmt: skip
_BOOT = st.sampled_from(
    [
        boot_of(RECORD), boot_of(RECORD), MigBoot(), boot_of("GPU-0 off"), boot_of(RECORD, enabled=False),
        boot_of(RECORD, failed=True), boot_of(RECORD, files=FILES[:1]), boot_of(RECORD, files=((UNIT, "0" * 64),)),
        MigBoot(FILES, None, readable=False, enabled=True),
    ]
)  # fmt: skip


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path: Path = tmp_path_factory.mktemp("mig") / "mig.yaml"
    path.write_text(DECLARATION)
    yield str(path)


def _settings(file: str, allow: str, config: str | None) -> Settings:
    mig = {"config": config, "file": file} if config else {}
    return settings_from({**DATA, "mig": mig, "disruption": {"allow": allow}})


def _bad(settings: Settings, node: Node) -> list[Finding]:
    return [item for item in judge(settings, node) if item.component == "mig" and item.finding_class != "ok"]


def _applied(node: Node, change: MigChange) -> Node:
    """Return the node as the transaction leaves it, where no reset fails."""
    if change.layout is None:
        return replace(node, mig_boot=MigBoot())
    (there,) = node.mig.gpus
    record = tuple(change.layout.splitlines())
    if change.goal:
        _, mode, *words = change.goal.split()
        on = ENABLED if mode == "on" else DISABLED
        made = instances(*(word.partition("=")[0] for word in words))
        there = replace(there, current=on, pending=on, instances=made, profiles=OWN if mode == "on" else ())
    return replace(node, mig=Mig("ok", None, (there,)), mig_boot=boot_of(*record))


@given(
    actual=_MIG,
    boot=_BOOT,
    shims=st.sampled_from([0, 2]),
    allow=st.sampled_from(["nothing", "restart", "reset", "reboot"]),
    config=st.sampled_from(["mixed", "mixed", "wider", None]),
    newer=st.sampled_from([False, False, True]),
)
def test_of_mig_drift_plan_verdict_and_run_say_the_same(
    file: str, actual: Mig, boot: MigBoot, shims: int, allow: str, config: str | None, newer: bool
) -> None:
    settings, node = _settings(file, allow, config), node_with(gpu(), boot=boot, shims=shims)
    driver = replace(node.driver, loaded_version="580.82.07") if newer else node.driver
    node = replace(node, mig=actual, driver=driver)
    decision: Decision[MigChange] = decisions(settings, node)["mig"]
    bad = _bad(settings, node)
    settled = {item.what for step in decision.steps for item in step.settles}
    # Every difference is a step's, or says that a person is to mend it; what a step settles is a difference.
    for item in bad:
        if item.finding_class is FindingClass.NOT_KNOWN:
            assert item.what not in settled and item.cause, item
        else:
            assert item.what in settled or item.by_person, item
    assert settled <= {item.what for item in bad}
    assert decision.refusal is None or (bad and not decision.steps)
    steps = [step for step in plan(settings, node).steps if step.component == "mig"]
    own = [step for step in steps if not step.not_known and ": mend" not in step.action and step.action != STOP]
    promised = [(step.action, step.waits is not None, step.disruption) for step in decision.steps]
    assert promised == [(step.action, step.pending, step.disruption) for step in own]
    assert not (decision.refusal and [step for step in steps if not step.pending])
    # One transaction brings all of it, or all of it waits.
    waits = {step.waits for step in decision.steps}
    assert len(waits) <= 1
    change = decision.steps[0].change if decision.steps else None
    if waits not in (set(), {None}):
        assert {item.finding_class for item in bad} <= {FindingClass.RESTART_PENDING, FindingClass.REBOOT_PENDING}
    host = Host({
        MigFact: actual, MigBootFact: boot, ContainerdFact: node.containerd, DockerFact: node.docker,
        CrioFact: node.crio, DriverFact: driver, TransactionJournal: Journal(None, None, None, False),
    })  # fmt: skip
    patch = pytest.MonkeyPatch()
    patch.setattr(operation, "driver_state", lambda: driver)
    patch.setattr(operation, "new_boot", lambda *_, **__: ())
    with ctx_host.use(host):
        given_commands = commands(operation.layout, host, settings=settings.mig, gpus=node.pci.gpus, allowed=allow)
    patch.undo()
    assert all(step.change is change for step in decision.steps)
    if decision.steps and change is None and not newer:
        # The driver was to come before it, and did not.
        assert given_commands == [] and actual.status in host.refusals[0]
        return
    assert (given_commands != []) == (waits == {None} and change is not None)
    if decision.refusal:
        assert host.refusals == [f"mig: nothing was changed: {decision.refusal}"]
    if waits == {None} and change is not None:
        after = _applied(node, change)
        assert not _bad(settings, after)
        assert not [step for step in plan(settings, after).steps if step.component == "mig"]
    elif change is not None and waits:
        assert host.noops == [f"reset pending: {waits.pop()} ({change.said})"]
