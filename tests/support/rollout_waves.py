"""What several tests share with unit/test_rollout_waves.py."""

from __future__ import annotations

from datetime import UTC, datetime

from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.fleet.rollout.entries import Begun, LeftOut, Outcome, Policy
from gpunode.fleet.rollout.progress import Progress

AT = datetime(2026, 1, 2, tzinfo=UTC)


PASSED = Outcome(finding_class=FindingClass.OK, passed=True)


def rollout(
    nodes: int, canary: int = 1, most: int = 1, budget: int = 0, away: int = 0, canary_names: tuple[str, ...] = ()
) -> Progress:
    names = tuple(f"gpu-{number}" for number in range(1, nodes + 1))
    left = {f"away-{number}": LeftOut(finding_class=FindingClass.UNREACHABLE, reason="") for number in range(away)}
    policy = Policy(canaries=canary_names or names[:canary], max_unavailable=most, failure_budget=budget)
    return Progress(
        Begun(gpunode="1", inventory="x.py", at=AT, hosts=dict.fromkeys((*names, *left), ""), policy=policy,
              nodes=names, left_out=left)
    )  # fmt: skip


def report(name: str, *classes: FindingClass) -> NodeReport:
    return NodeReport(name, tuple(Finding("driver", each, "loaded module", "1", "2") for each in classes))


REPORTS = (
    report("good", FindingClass.OK),
    report("stale", FindingClass.OK, FindingClass.DRIFT),
    report("gone", FindingClass.UNREACHABLE),
    report("refused", FindingClass.UNSUPPORTED),
    report("sick", FindingClass.ERROR, FindingClass.OK),
    report("mendable", FindingClass.ERROR, FindingClass.REBOOT_PENDING),
)
