"""What `gpunode drift` prints, and that one node's trouble stays its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.cli.drift import print_reports
from gpunode.fleet import drift
from gpunode.fleet.drift import contained_report
from gpunode.fleet.nodes import Answer
from gpunode.node import Node
from gpunode.node.verdict import judge
from gpunode.settings import Settings, settings_from
from tests.support.verify import GOOD, SETTINGS

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("said", "printed"),
    [
        ("bad [/foo] :smile: [red]x", "cause    bad [/foo] :smile: [red]x\n"),
        ("one\r\x1b[2Ktwo\nthree\a", "cause    one  [2Ktwo\n           three\n"),
    ],
)
def test_what_a_node_said_is_printed_as_text_and_moves_no_cursor(
    capsys: pytest.CaptureFixture[str], said: str, printed: str
) -> None:
    finding = Finding("driver", FindingClass.DRIFT, "loaded module", "575", "580", said)
    print_reports((NodeReport("gpu-1", (finding,)),), show_all=False)
    assert printed in capsys.readouterr().out


def test_a_node_that_cannot_be_judged_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge_but_for_one(settings: Settings, node: Node) -> tuple[Finding, ...]:
        if node is odd:
            raise ValueError("'1.17.8_custom' is no version")
        return judge(settings, node)

    odd = replace(GOOD)
    monkeypatch.setattr(drift, "judge", judge_but_for_one)
    report = contained_report(Answer("gpu-1", SETTINGS, odd, None))
    assert [item.finding_class for item in report.findings] == [FindingClass.ERROR]
    assert "1.17.8_custom" in (report.findings[0].cause or "")
    good = contained_report(Answer("gpu-2", SETTINGS, GOOD, None))
    assert {item.finding_class for item in good.findings} == {FindingClass.OK}


def test_a_node_that_cannot_become_what_is_asked_is_unsupported() -> None:
    settings = settings_from({"driver": {"branch": "570"}, "cuda": {"version": "13.0"}})
    report = contained_report(Answer("gpu-1", settings, GOOD, None))
    assert {item.finding_class for item in report.findings} == {FindingClass.UNSUPPORTED}
