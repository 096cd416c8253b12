"""What drift, the plan and a run report of one node, as plain data for the files of tests/cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpunode.base.comparison import RUN
from gpunode.base.findings import PENDING, Finding, FindingClass, verdict
from gpunode.base.verdicts import Refusal
from gpunode.cli.plan import planned
from gpunode.fleet.drift import contained_report
from gpunode.fleet.nodes import Answer
from gpunode.fleet.reports.run_end import not_run, report_of
from gpunode.node import Node, components
from gpunode.node.components import COMPONENTS
from gpunode.node.own_files import decide
from gpunode.settings import settings_from
from tests.support.verify import DATA


def reported(
    data: dict[str, Any], node: Node, finds: list[list[str]], refusal: Refusal | None = None
) -> dict[str, Any]:
    """Return what drift, the plan and the end of `gpunode apply` report of a node that is refused.

    finds: code, class and actual side of findings that are expected; `lacks`: those that are not reported
    refusal: the cluster's
    `run`: the codes of what a run is said to remove; `good`: whether anything is as desired; `same`: whether the plan
    and the end of the run have the same findings as drift
    """
    settings = settings_from({**DATA, **data})
    found = contained_report(Answer("gpu-1", settings, node, None, refusal))
    end = not_run("gpu-1", planned(settings, node, refusal))
    told = [[item.code, item.finding_class.value, item.actual] for item in found.findings]
    differs = [item for item in found.findings if item.finding_class is not FindingClass.OK]
    return {
        "refused": [item.code for item in differs if item.finding_class is FindingClass.UNSUPPORTED],
        "lacks": [each for each in finds if each not in told],
        "run": [item.code for item in differs if _is_run_s(item)],
        "good": len(found.findings) > len(differs),
        "exit": int(verdict(found.findings)),
        "driver": None if found.summary is None else found.summary.driver,
        "same": end is not None and report_of(end) == replace(found, summary=None),
        "mig": [item.code for item in found.findings if item.component == "mig"],
    }


def _is_run_s(item: Finding) -> bool:
    """Say whether a run is said to remove it."""
    return item.finding_class in (FindingClass.DRIFT, *PENDING) and (not item.by_person or item.remedy == RUN)


def apart(broken: list[str], data: dict[str, Any], node: Node) -> dict[str, Any]:
    """Return what drift reports where the judges of these components raise an error.

    errors: (component, code) of these; `lacks`: components of which a whole node has findings, and this one none
    """

    def unable(*_: Any) -> Any:
        raise KeyError("odd")

    answer = Answer("gpu-1", settings_from({**DATA, **data}), node, None)
    whole = {item.component for item in contained_report(answer).findings}
    with pytest.MonkeyPatch.context() as patch:
        every = {each.name: replace(each, decide=unable) if each.name in broken else each for each in COMPONENTS}
        patch.setattr(components, "_BY_NAME", every)
        if "own files" in broken:
            patch.setattr(decide, "decide", unable)
        found = contained_report(answer)
    errors = [item for item in found.findings if item.finding_class is FindingClass.ERROR]
    return {
        "errors": [[item.component, item.code] for item in errors],
        "run": [item.code for item in found.findings if _is_run_s(item)],
        "lacks": sorted(whole - {item.component for item in found.findings} - {*broken}),
        "exit": int(verdict(found.findings)),
        "summary": found.summary is not None,
    }
