"""Findings: one vocabulary of classes and exit codes."""

import pytest

from gpunode.base.findings import ExitCode, Finding, FindingClass, verdict, worst

pytestmark = pytest.mark.pure


def _findings(*classes: FindingClass) -> list[Finding]:
    return [Finding("driver", found, "loaded module") for found in classes]


@pytest.mark.parametrize(
    ("classes", "code"),
    [
        ((), 0),
        ((FindingClass.OK, FindingClass.OK), 0),
        ((FindingClass.OK, FindingClass.DRIFT), 2),
        ((FindingClass.REBOOT_PENDING,), 2),
        ((FindingClass.RESTART_PENDING,), 2),
        ((FindingClass.UNSUPPORTED,), 2),
        ((FindingClass.DRIFT, FindingClass.UNREACHABLE), 1),
        ((FindingClass.ERROR, FindingClass.OK), 1),
    ],
)
def test_the_exit_code_is_that_of_the_gravest_finding(classes: tuple[FindingClass, ...], code: int) -> None:
    assert verdict(_findings(*classes)) == code


def test_drift_is_graver_than_a_pending_restart() -> None:
    assert worst(_findings(FindingClass.RESTART_PENDING, FindingClass.DRIFT)) is FindingClass.DRIFT


def test_json_uses_the_word_class() -> None:
    assert _findings(FindingClass.REBOOT_PENDING)[0].to_json()["class"] == "reboot pending"


def test_exit_codes_are_the_documented_ones() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "GOOD": 0, "ERROR": 1, "NEGATIVE": 2, "INPUT_REFUSED": 3, "USAGE": 64,
    }  # fmt: skip
