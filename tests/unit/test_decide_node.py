"""Repositories, own files and what was cut off are decided once: drift and plan say the same of any node."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.decision import bad
from gpunode.base.findings import FindingClass, NodeReport
from gpunode.fleet.rollout.choice import left_out
from gpunode.node import Node
from gpunode.node.components import decisions, desired_files
from gpunode.node.plan import plan
from gpunode.node.verdict import judge, judged
from gpunode.packages import repositories
from gpunode.packages.trust import PERMISSIONS, Keyrings
from gpunode.settings import settings_from
from gpunode.system.applied import PATH, Applied, OwnFile, PresentFile
from gpunode.system.exposed import Exposed, ExposedFile
from gpunode.system.transaction import Interrupted, decide
from tests.support.agreement import assert_planned, assert_whole
from tests.support.verify import DATA, GOOD, SETTINGS

pytestmark = pytest.mark.pure

KEYS = st.sampled_from([(), ("A" * 40,), (SETTINGS.repositories.cuda.key_fingerprint,)])
PERMITTED = st.sampled_from([None, PERMISSIONS, "666 root:root"])
CHANGES = ("cuda", "containerd", "docker", "driver", "initramfs", "mig", "mps", "scheduler")
ALLOW = st.sampled_from(["nothing", "restart", "reboot"])


@given(keys=st.tuples(KEYS, KEYS), permitted=st.tuples(PERMITTED, PERMITTED))
def test_of_repositories_drift_and_plan_say_the_same_and_the_steps_are_enough(keys: Any, permitted: Any) -> None:
    names = ("cuda", "toolkit")
    there = Keyrings(
        tuple((name, key) for name, found in zip(names, keys, strict=True) for key in found),
        tuple((name, mode) for name, mode in zip(names, permitted, strict=True) if mode is not None),
    )
    node = replace(GOOD, keyrings=there)
    assert_whole(decisions(SETTINGS, node)["repositories"])
    assert_planned("repositories", SETTINGS, node)
    desired = repositories.desired_of(SETTINGS, GOOD.operating_system)
    trusted = {
        name for name in names for step in repositories.decide(desired, there).steps if f" {name} " in step.action
    }
    left = [(name, key) for name, key in there.keys if name not in trusted]
    after = Keyrings(
        (*left, *((name, desired[name]) for name in trusted)),
        tuple({**dict(there.permissions), **dict.fromkeys(trusted, PERMISSIONS)}.items()),
    )
    assert bad(*repositories.decide(desired, after).findings) == ()


@given(
    names=st.lists(st.sampled_from(CHANGES), unique=True),
    off=st.lists(st.sampled_from(["cuda", "containerd", "docker", "driver"]), unique=True),
    exposed=st.booleans(), allow=ALLOW, shims=st.sampled_from([0, 2]),
)  # fmt: skip
def test_what_was_cut_off_is_a_step_where_a_run_comes_to_it_and_else_a_person_s(
    names: list[str], off: list[str], exposed: bool, allow: str, shims: int
) -> None:
    data = {**DATA, **{name: {"enabled": False} for name in off}, "disruption": {"allow": allow}}
    settings = settings_from(data)
    files = (ExposedFile("/etc/docker", "777", 0, 0),) if exposed else ()
    node = replace(
        GOOD, interrupted=Interrupted(tuple(names)), exposed=Exposed(files),
        containerd=replace(GOOD.containerd, shims=shims),
    )  # fmt: skip
    decision = decisions(settings, node)["node"]
    assert_whole(decision)
    # What was cut off is undone whatever is allowed: no step waits.
    assert_planned("node", settings, node)
    unasked = {name for name in names if name in off or (name == "initramfs" and "driver" in off)}
    unasked |= {"docker"} & set(names)  # Not asked for unless somebody does.
    assert [step.settles[0].actual for step in decision.steps] == (
        [", ".join(name for name in names if name not in unasked)] if set(names) - unasked else []
    )
    (left,) = [item.actual for item in decision.findings if "switched off" in item.what] or [None]
    assert left == (", ".join(name for name in names if name in unasked) or None)


def test_a_change_that_no_run_comes_to_is_no_step_of_the_plan() -> None:
    node = replace(GOOD, interrupted=Interrupted(("docker",)))
    (step,) = plan(SETTINGS, node).steps
    assert (step.code, step.actual, step.pending) == ("node.interrupted-changes", "docker", True)
    assert decide(Interrupted(("docker",)), ["docker"]).steps == ()


@st.composite
def _present(draw: st.DrawFn) -> Node:
    files = {PATH: PresentFile("644 root:root", "a" * 64)} if draw(st.booleans()) else {}
    recorded = {}
    for path in desired_files(SETTINGS, GOOD):
        if draw(st.booleans()):
            files[path] = PresentFile(draw(st.sampled_from(["644 root:root", "666 root:root"])), "b" * 64)
        if draw(st.booleans()):
            recorded[path] = OwnFile(draw(st.sampled_from(["a", "b"])) * 64, "644")
    return replace(
        GOOD, applied=Applied(True, None, None, tuple(recorded.items()), tuple(files.items())),
        containerd=replace(GOOD.containerd, shims=draw(st.sampled_from([0, 2]))),
    )  # fmt: skip


@given(node=_present(), allow=ALLOW)
def test_every_own_file_that_is_not_as_desired_is_a_step(node: Node, allow: str) -> None:
    settings = settings_from({**DATA, "disruption": {"allow": allow}})
    findings, files = judged(settings, node)
    assert_whole(files)
    assert [item for step in files.steps for item in step.settles] == list(bad(*files.findings))
    planned = [(step.component, step.action) for step in plan(settings, node).steps if "/" in step.action]
    assert sorted(planned) == sorted((step.settles[0].component, step.action) for step in files.steps)
    assert set(files.findings) <= set(findings)


@pytest.mark.parametrize(
    "part",
    [
        {"exposed": Exposed((ExposedFile("/etc/docker", "777", 0, 0),))},
        {"toolkit": replace(GOOD.toolkit, config_text="= nonsense")},
        {"containerd": replace(GOOD.containerd, active=False, masked=True)},
        {"containerd": replace(GOOD.containerd, default_runtime="runc")},
        {"interrupted": Interrupted(("docker",))},
    ],
)
def test_a_rollout_leaves_out_a_node_on_which_no_step_mends_anything(part: dict[str, Any]) -> None:
    report = NodeReport("gpu-1", judge(SETTINGS, replace(GOOD, **part)))
    left = left_out(report, everyone=False)
    assert left is not None and left.finding_class is FindingClass.DRIFT
    # With one that a run does mend it is taken.
    more = replace(GOOD, **{**part, "keyrings": Keyrings(())})
    assert left_out(NodeReport("gpu-1", judge(SETTINGS, more)), everyone=False) is None


def test_a_rollout_leaves_out_a_node_whose_only_steps_come_behind_a_refusal() -> None:
    asked = settings_from({**DATA, "toolkit": {"preset": "shared"}})
    there = replace(GOOD.toolkit, config_text="= nonsense", unlinked=("/dev/nvidia0",))
    left = left_out(NodeReport("gpu-1", judge(asked, replace(GOOD, toolkit=there))), everyone=False)
    assert left is not None and left.finding_class is FindingClass.DRIFT
