"""The JUnit report of `gpunode drift --junit`: a suite per node and one for the cluster, a case per finding."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite

from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.fleet.reports.whole_file import write_whole

# XML 1.0 knows no other control characters, and what a node said may hold any.
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# An answer that never came says nothing about the node: JUnit calls that an error.
_ERRORS = (FindingClass.ERROR, FindingClass.UNREACHABLE)


def write_junit(reports: Iterable[NodeReport], path: Path) -> None:
    """Write the report as a whole, or leave the file as it was; raise OSError."""
    xml = JUnitXml("gpunode drift")
    for report in reports:
        suite = TestSuite(_text(report.title))
        for item in report.findings:
            suite.add_testcase(_case(item))
        xml.add_testsuite(suite)
    xml.update_statistics()  # type: ignore[no-untyped-call]
    write_whole(path, xml.tostring())  # type: ignore[no-untyped-call]


def _case(item: Finding) -> TestCase:
    case = TestCase(_text(item.what), classname=_text(item.component))
    if item.finding_class is not FindingClass.OK:
        # What no setting asks for fails no test, and does not count as passed while it is not known.
        kind = Error if item.finding_class in _ERRORS else Failure if item.is_negative else Skipped
        result = kind(
            _text(f"actual {item.actual or 'nothing'}, desired {item.desired or 'nothing'}"), item.finding_class
        )
        disruption = None if item.disruption is None else item.disruption.name
        told = {
            "code": item.code,
            "cause": item.cause,
            "remedy": item.remedy,
            "source": item.source,
            "log": item.log,
            "disruption": disruption,
        }
        result.text = _text("\n".join(f"{name}: {value}" for name, value in told.items() if value))
        case.result = [result]
    return case


def _text(said: str) -> str:
    return _NO_XML.sub("\ufffd", said)
