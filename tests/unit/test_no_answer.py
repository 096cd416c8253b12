"""A node without a plan is the finding that drift tells of it: reason, remedy and code, in text, JSON, at the end."""

from __future__ import annotations

import pytest

from gpunode.base.findings import ExitCode, Finding
from gpunode.cli.plan import as_json
from gpunode.fleet import no_answer
from gpunode.fleet.reports.plan_text import plan_text
from gpunode.fleet.reports.run_end import report_of, verdict_text
from gpunode.fleet.run.ends import ends_of, status_of
from gpunode.fleet.run.progress import Progress
from gpunode.node.plan import Plan

pytestmark = pytest.mark.pure
DONE = Plan((), (), ())


def test_a_remedy_that_came_with_the_reason_stands_apart_and_one_that_is_known_is_added() -> None:
    item = no_answer.unreached("the host key is unknown. Remedy: run `ssh-keyscan gpu-1`")
    assert (item.cause, item.remedy) == ("the host key is unknown", "run `ssh-keyscan gpu-1`")
    assert no_answer.unreached(None).cause == "no connection"
    assert plan_text({"gpu-1": item}).splitlines() == [
        "gpu-1: no answer: the host key is unknown [node.connection]", "  remedy: run `ssh-keyscan gpu-1`",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("item", "head"),
    [
        (no_answer.unreadable("sudo asks for a password"), "gpu-1: unreadable: sudo asks for a password [node.state]"),
        (no_answer.unjudged(KeyError("x")), "gpu-1: cannot be judged: KeyError: 'x' [node.state]"),
    ],
)
def test_a_node_that_answered_is_not_said_to_be_silent(item: Finding, head: str) -> None:
    plans: dict[str, Plan | Finding] = {"gpu-1": item, "gpu-2": DONE}
    assert plan_text(plans).splitlines()[:2] == [head, "  remedy: look at the node"]
    host = as_json(plans)["hosts"]["gpu-1"]
    assert host == {"verdict": "unreachable", "reason": item.cause, "remedy": "look at the node", "code": "node.state"}
    end, _ = ends_of(plans, Progress(0), 0)
    report = report_of(end)
    assert report is not None and report.findings == (item,)
    assert status_of([end]) is ExitCode.ERROR
    assert verdict_text([end]).startswith("node: state: error, gpu-1 [node.state]\n")
