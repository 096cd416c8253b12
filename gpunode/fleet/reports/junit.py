"""JUnit reports of `gpunode drift` and `gpunode ci`: a suite per node and one for the cluster, a case per finding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.base.messages import Scope, as_data
from gpunode.fleet.reports.whole_file import write_whole

# An answer that never came says nothing about the node: JUnit calls that an error.
_ERRORS = (FindingClass.ERROR, FindingClass.UNREACHABLE)


def write_junit(reports: Iterable[NodeReport], path: Path, command: str, steps: Mapping[str, float]) -> None:
    """Write the report as a whole, or leave the file as it was; raise OSError.

    command: as the report is named; steps: what the command has just done, on all nodes at once -> seconds: the tests
    of a component, or `read`, which all others take together
    """
    took = round(sum(steps.values()), 3)
    began = datetime.now(UTC) - timedelta(seconds=took)
    xml = JUnitXml(command)
    for report in reports:
        suite, left = TestSuite(report.title), dict(steps)
        suite.add_testcases([_case(item, left.pop(item.component, None)) for item in report.findings])
        if report.scope is Scope.NODE:
            suite.hostname = as_data(report.name)
        suite.timestamp = began.strftime("%Y-%m-%dT%H:%M:%S")
        xml.add_testsuite(suite)
    xml.update_statistics()  # type: ignore[no-untyped-call]
    for each in (xml, *xml):
        each.time = took
    # Jenkins' schema does not have it here.
    del xml._elem.attrib["skipped"]
    write_whole(path, xml.tostring())  # type: ignore[no-untyped-call]


def _case(item: Finding, seconds: float | None) -> TestCase:
    case = TestCase(item.what, classname=item.component, time=seconds and round(seconds, 3))
    if item.finding_class is not FindingClass.OK:
        # What no setting asks for fails no test, and does not count as passed while it is not known.
        kind = Error if item.finding_class in _ERRORS else Failure if item.is_negative else Skipped
        sides = f"actual {item.actual or 'nothing'}, desired {item.desired or 'nothing'}"
        said = sides if item.desired or not item.cause else item.cause
        result = kind(said, item.finding_class)
        told = item.to_json()
        names = ("code", "cause", "remedy", "source", "log", "disruption")
        result.text = "\n".join(f"{name}: {told[name]}" for name in names if told.get(name))
        case.result = [result]
    return case
