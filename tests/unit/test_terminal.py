"""What a node says reaches no terminal as it came, by whatever way it is printed; and its trouble stays its own."""

from __future__ import annotations

import ast
import base64
import logging
import unicodedata
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from pyinfra import logger
from pyinfra.api import output
from pyinfra.connectors import util

from gpunode import cli
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.base.terminal import logged, printable, printable_in_colour, say
from gpunode.cli.drift import print_reports
from gpunode.components.driver.loading import LOADED_MODULE
from gpunode.fleet import drift, hooks
from gpunode.fleet.drift import contained_report
from gpunode.fleet.nodes import Answer
from tests.support.verify import GOOD, SETTINGS

CLIPBOARD = "\x1b]52;c;cm0gLXJmIC8=\x07"
ATTACK = f"570.1{CLIPBOARD}\x1b[2J\x9b31m\u202etxt.exe\u2066\rok"


def unprinted(text: str) -> set[str]:
    """Return what of a text is no character to look at."""
    return {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n"}


@given(st.text())
def test_nothing_is_left_but_what_is_printed_and_lines(text: str) -> None:
    assert not unprinted(printable(text))
    assert printable(text).count("\n") == text.count("\n")
    assert len(printable(text)) == len(text)


def test_pyinfra_s_colours_stay_and_nothing_else() -> None:
    assert printable_in_colour(f"\x1b[31m{ATTACK}\x1b[0m") == f"\x1b[31m{printable(ATTACK)}\x1b[0m"
    # Text that is hidden, or that blinks, is no colour.
    assert "\x1b" not in printable_in_colour("\x1b[8mhidden\x1b[5m")


def test_whatever_is_printed_is_cleaned(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    say(ATTACK)
    say(ATTACK, err=True)
    line = capsys.readouterr()
    finding = LOADED_MODULE.finding(FindingClass.DRIFT, ATTACK, ATTACK, cause=ATTACK, remedy=ATTACK)
    print_reports((NodeReport("gpu-1", (finding,)),), show_all=True)
    table = capsys.readouterr().out
    (tmp_path / "prod.py").write_text(f"raise ValueError({ATTACK!r})\n")
    refusal = CliRunner().invoke(cli.gpunode, ["check", str(tmp_path / "prod.py")]).output
    for printed, times in ((line.out, 1), (line.err, 1), (table, 3), (refusal, 1)):
        assert printed.count("570.1") >= times and not unprinted(printed)


@pytest.mark.parametrize("file", sorted(Path(cli.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_no_command_prints_by_another_way(file: Path) -> None:
    """What is no text of a node's may: a rendered file is printed to the byte."""
    others = {
        "click.echo(after, nl=False)",
        "click.echo(compressed(text) if packed else text, nl=False)",
        "click.echo(kind(gpunode, {}, 'gpunode', '_GPUNODE_COMPLETE').source())",
        "click.echo(json.dumps(content, indent=2) if is_json() else _yaml(content), nl=is_json())",
    }
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    ways = {"click.echo", "click.secho", "print", "sys.stdout.write", "sys.stderr.write"}
    assert {
        text for call in calls if ast.unparse(call.func) in ways and (text := ast.unparse(call)) not in others
    } == set()


def test_pyinfra_s_own_log_is_cleaned(caplog: pytest.LogCaptureFixture) -> None:
    hooks.install()
    logger.error("[gpu-1] %s", f"\x1b[31m{ATTACK}\x1b[0m")
    logger.log(logging.ERROR, ATTACK)
    coloured, plain = (record.getMessage() for record in caplog.records)
    assert (unprinted(coloured), unprinted(plain)) == ({"\x1b"}, set())
    assert coloured == f"[gpu-1] \x1b[31m{printable(ATTACK)}\x1b[0m"


def test_what_pyinfra_prints_of_a_command_as_it_comes_is_cleaned_and_shows_no_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = base64.b64encode(b'[plugins."io.containerd.grpc.v1.cri".registry]\npassword = "hunter2"\n').decode()
    hooks.install()
    said: list[str] = []
    monkeypatch.setattr(output, "_echo", lambda message=None, **kwargs: said.append(message))
    util.echo(f"[gpu-1] {ATTACK}", err=True)
    util.echo(f"[gpu-1] config={text}", err=True)
    assert said == [f"[gpu-1] {printable(ATTACK)}", f"[gpu-1] config=<{len(text)} characters of base64>"]
    digest = "loaded=" + "0a" * 32
    assert logged(digest) == digest and text not in logged(f"config={text}\nmerged={text}")


@pytest.mark.parametrize(
    ("said", "printed"),
    [
        ("bad [/foo] :smile: [red]x", "cause    bad [/foo] :smile: [red]x\n"),
        ("one\r\x1b[2Ktwo\nthree\a", "cause    one  [2Ktwo three\n"),
    ],
)
def test_what_a_node_said_is_printed_as_text_and_moves_no_cursor(
    capsys: pytest.CaptureFixture[str], said: str, printed: str
) -> None:
    finding = Finding("driver", FindingClass.DRIFT, "loaded module", "575", "580", said, code="driver.loaded-module")
    print_reports((NodeReport("gpu-1", (finding,)),), show_all=False)
    assert printed in capsys.readouterr().out


def test_a_node_that_cannot_be_judged_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def unable(*_: object) -> tuple[Finding, ...]:
        raise ValueError("'1.17.8_custom' is no version")

    good = contained_report(Answer("gpu-2", SETTINGS, GOOD, None))
    assert {item.finding_class for item in good.findings} == {FindingClass.OK}
    monkeypatch.setattr(drift, "judge_apart", unable)
    (found,) = contained_report(Answer("gpu-1", SETTINGS, GOOD, None)).findings
    assert found.finding_class is FindingClass.ERROR and "1.17.8_custom" in (found.cause or "")
