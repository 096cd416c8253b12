"""How a run ends for whoever reads it: golden texts at several widths, and what is noted of each host on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyinfra.api.exceptions import ConnectError
from pyinfra.api.state import StateStage

from gpunode.base.findings import Finding, FindingClass
from gpunode.base.messages import Scope
from gpunode.base.verdicts import Refusal
from gpunode.fleet import run_end
from gpunode.fleet.call import Call
from gpunode.fleet.reports.run_end import HostEnd, failure_of, host_end_from, verdict_text
from gpunode.kubernetes.device_plugin.verdict import DEPLOYMENT
from gpunode.operations.failure import fail, has_work, node_operation
from tests.support.run_end import GOOD, MODULE, RUNTIME, _state, lines
from tests.support.simulated_host import Host

__all__ = ["lines"]
pytestmark = pytest.mark.pure
GOLDEN = Path(__file__).parent / "data" / "run_end"
REFUSED = Finding(
    "mig", FindingClass.UNSUPPORTED, "preflight", cause="an L4 has no MIG", remedy="take mig.config away",
    code="preflight.mig-has-none",
)  # fmt: skip
EXTENDER = DEPLOYMENT.finding(FindingClass.DRIFT, "not ready", "ready", of="kube-system/extender")
INSTALL = "Install NVIDIA driver 580.95.05 (open)"


def _fleet() -> list[HostEnd]:
    """Return how a run ended on 12 hosts, in all the ways that there are."""
    ends = [HostEnd(f"gpu-{number}", findings=GOOD) for number in range(1, 7)]
    return [
        *ends,
        HostEnd("gpu-7", findings=(*GOOD, MODULE)),
        HostEnd("gpu-8", findings=(*GOOD, RUNTIME), failure=failure_of("Verify the node", ["drift: …"])),
        HostEnd(
            "gpu-9", failure=failure_of(INSTALL, ["the archive has no 580.95.05\nit has 580.82.07"]), log="wave-1.log"
        ),
        HostEnd("gpu-10", unreached="Connection refused"),
        HostEnd("gpu-11", refused=(REFUSED,)),
        HostEnd("gpu-12", left_alone="its node is cordoned by somebody else"),
        HostEnd("gpu-13", findings=GOOD, cut_off="pyinfra ended before its last operation: KeyError: 'x'"),
        HostEnd("gpu-14", unverified="an image is made here, which its first boot verifies"),
        HostEnd("prod", findings=(EXTENDER,), scope=Scope.CLUSTER),
    ]


@pytest.mark.parametrize("columns", [40, 80, 100, 160])
def test_the_end_of_a_run_says_how_each_node_is_and_what_to_do_at_any_width(columns: int) -> None:
    text = verdict_text(_fleet(), columns, Call("inventories/prod.py")) + "\n"
    assert text == (GOLDEN / f"{columns}.txt").read_text()


def test_a_deploy_alone_that_verifies_nothing_does_not_say_that_all_is_well() -> None:
    text = verdict_text([HostEnd("a"), HostEnd("b")], call=Call("inventories/prod.py"))
    first, second = text.splitlines()
    assert first.startswith("a, b: ") and ": ok" not in first and second == "  gpunode drift inventories/prod.py"


def test_how_a_run_ended_goes_from_pyinfra_to_its_parent_whole() -> None:
    assert [host_end_from(json.loads(json.dumps(end.to_json()))) for end in _fleet()] == _fleet()


def taking_part() -> Any:
    host = Host({})
    run_end.takes_part(host)  # type: ignore[arg-type]
    return host


def test_what_an_operation_says_before_it_fails_is_why_it_failed(lines: list[str]) -> None:
    host = taking_part()
    assert fail("no such version").function(host.state, host) is False
    run_end.Watcher.operation_host_error(_state(host), host, INSTALL)
    run_end.tell(_state(host))
    assert lines[0] == "--> Verdict:"
    assert "  cause    no such version" in lines
    assert f"run: “{INSTALL}”: error, gpu-1 [run.operation-failed]" in lines


def test_a_run_that_was_not_carried_out_or_is_none_of_ours_has_no_verdict(lines: list[str]) -> None:
    run_end.tell(_state(taking_part(), StateStage.Prepare))
    run_end.tell(_state(Host({})))
    assert lines == []


def test_a_host_in_the_middle_of_a_run_that_ended_is_told_by_what_ended_it(lines: list[str]) -> None:
    run_end.judged(host := taking_part(), GOOD)
    try:
        raise ValueError("no\nsuch thing")
    except ValueError:
        run_end.tell(_state(host, StateStage.Execute))
    (cause,) = (line for line in lines if line.startswith("  cause "))
    assert cause.endswith(": no such thing") and "gpu-1: error, 3 of 4 as desired" in lines


def test_a_host_that_is_left_alone_loses_nothing_by_a_crash(lines: list[str]) -> None:
    run_end.note(host := taking_part(), left_alone="a foreign cordon")
    run_end.tell(_state(host, StateStage.Execute))
    assert lines[1:] == ["gpu-1: left alone: a foreign cordon"]


def test_a_host_that_is_not_reached_is_told_beside_one_that_is_judged_on_node_and_cluster(lines: list[str]) -> None:
    host, other = taking_part(), Host({}, name="gpu-2")
    state = _state(host)
    state.inventory.append(other)
    for findings in (GOOD, GOOD[:1]):
        run_end.judged(host, findings)
    run_end.Watcher.host_connect_error(state, other, ConnectError("timed out"))  # type: ignore[arg-type]
    run_end.tell(state)
    assert lines[-5:-2] == [
        "gpu-1: ok, 4 of 4 as desired", "gpu-2: unreachable", "2 nodes: 1 ok, 1 unreachable"
    ]  # fmt: skip


def test_what_is_found_of_the_cluster_is_in_a_row_of_its_own_as_it_was_found_last(lines: list[str]) -> None:
    run_end.judged(host := taking_part(), GOOD)
    state = _state(host)
    for actual in ("none", "not ready"):
        run_end.cluster_judged(state, "prod", [replace(EXTENDER, actual=actual)])
    run_end.tell(state)
    assert "gpu-1: ok, 3 of 3 as desired" in lines and "the cluster prod: drift, 0 of 1 as desired" in lines
    assert "  actual   not ready" in lines and "  actual   none" not in lines


def test_a_refusal_is_told_with_its_remedy(lines: list[str]) -> None:
    refusal = Refusal("mig", "an L4 has no MIG", "the table", "take mig.config away", "preflight.mig-has-none")
    run_end.refused(host := taking_part(), [refusal, "odd. Remedy: look"])
    run_end.tell(_state(host))
    assert "  remedy   take mig.config away" in lines and "  remedy   look" in lines


def test_what_has_nothing_to_do_is_seen_before_it_is_added() -> None:
    @node_operation
    def idle(path: str) -> Any:
        """Do nothing."""
        yield from ()

    @node_operation
    def busy(path: str) -> Any:
        """Do something."""
        yield path

    @node_operation
    def broken(path: str) -> Any:
        """Fail."""
        raise ValueError(path)
        yield

    assert [has_work(each, path="x") for each in (idle, busy, broken)] == [False, True, True]
