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


@pytest.mark.parametrize(
    ("item", "kind", "code"),
    [
        (no_answer.unreached("timed out. Remedy: wait"), "no answer", "node.connection"),
        (no_answer.unreadable("sudo asks"), "unreadable", "node.state"),
        (no_answer.unjudged(KeyError("x")), "cannot be judged", "node.state"),
    ],
)
def test_a_node_without_a_plan_is_told_with_reason_remedy_and_code(item: Finding, kind: str, code: str) -> None:
    plans: dict[str, Plan | Finding] = {"gpu-1": item, "gpu-2": Plan((), (), ())}
    assert plan_text(plans).splitlines()[:2] == [
        f"gpu-1: {kind}: {item.cause} [{code}]", f"  remedy: {item.remedy}",
    ]  # fmt: skip
    host = as_json(plans)["hosts"]["gpu-1"]
    assert host == {"verdict": "unreachable", "reason": item.cause, "remedy": item.remedy, "code": code}
    end, _ = ends_of(plans, Progress(0), 0)
    report = report_of(end)
    assert report is not None and report.findings == (item,) and status_of([end]) is ExitCode.ERROR
    assert verdict_text([end]).splitlines()[0].endswith(f"{item.finding_class}, gpu-1 [{code}]")
