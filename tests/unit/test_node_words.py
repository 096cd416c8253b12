"""Words of a node are data in every output: one line, no command, no control character."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.explained import load
from gpunode.base.explanations import explained, failure, rules
from gpunode.base.findings import Finding, FindingClass, NodeReport, finding_from
from gpunode.base.messages import Kind, as_data, as_remedy, commands_of, declared
from gpunode.base.tables.reading import content
from gpunode.base.verdicts import Refusal
from gpunode.fleet.call import Call
from gpunode.fleet.page import views
from gpunode.fleet.page.html import document_page
from gpunode.fleet.reports.document import document
from gpunode.fleet.reports.findings_text import report_text
from gpunode.fleet.reports.junit import write_junit
from gpunode.fleet.reports.plan_text import plan_text
from gpunode.fleet.reports.prometheus import metrics
from gpunode.fleet.reports.run_end import HostEnd, failed_by, verdict_text
from gpunode.node.plan import Plan, plan
from gpunode.node.verdict import judge
from tests.support.verify import GOOD, SETTINGS

pytestmark = pytest.mark.pure

ROOT = Path(__file__).parents[2]
MARK = "EVIL"
HOSTILE = (
    f"1\n{MARK}: ok, gpu-9 [driver.version]",
    f"1 `{MARK} rm -rf /`",
    f"` and `{MARK}` or `",
    f"1\x1b]52;c;{MARK}\x07\x9b2J\r",
    f"\u202e\u2066{MARK}\u2028\x85",
    f"</script><script>{MARK}()</script>{{{{ 7*7 }}}}%s%n",
    f"::error::{MARK}\n::set-output name=x::y",
    f"1. Remedy: run `{MARK}`",
    f'"}} {MARK} 1\ngpunode_node_state{{node="x"',
    f"\x00\ud800{MARK}",
    MARK * 5_000,
)
# All of it, for what takes a while.
EVERYTHING = "".join(HOSTILE)
COMMANDS = [each.replace("{}", "x") for each in content("commands.yaml")["commands"]]


def with_words(reading: Any, words: str) -> Any:
    """Return a reading with the words in place of each text that is not a name of its kind."""
    if is_dataclass(reading) and not isinstance(reading, type):
        found = {each.name: with_words(getattr(reading, each.name), words) for each in fields(reading) if each.init}
        return replace(reading, **found)
    if isinstance(reading, tuple):
        return tuple(with_words(each, words) for each in reading)
    return words if type(reading) is str else reading


def nodes(words: str = EVERYTHING) -> Iterator[Any]:
    """Yield the good node with the words in every text of one of its readings."""
    for each in fields(GOOD):
        reading = getattr(GOOD, each.name)
        if is_dataclass(reading):
            yield replace(GOOD, **{each.name: with_words(reading, words)})


def everywhere(words: str) -> Finding:
    """Return a finding with the words in each of its texts."""
    texts = dict.fromkeys(("component", "what", "actual", "desired", "cause", "remedy", "since", "log", "code"), words)
    return Finding(finding_class=FindingClass.DRIFT, **texts)  # type: ignore[arg-type]


def judged() -> Iterator[Finding]:
    for node in nodes():
        # It is that node's finding, see gpunode.fleet.drift.contained_report.
        with suppress(Exception):
            yield from judge(SETTINGS, node)


def is_harmless(text: str, lines: int = 1) -> bool:
    """Say whether a text has no control character, no further line, and no words of a node's as a command."""
    printed = all(line.isprintable() for line in text.split("\n"))
    return printed and text.count("\n") < lines and all(map(is_own, re.findall(r"`([^`\n]*)`", text)))


def is_own(command: str) -> bool:
    """Say whether a command is gpunode's, with words of a node's as a value at the most."""
    own = ("gpunode apply prod.py", "gpunode explain ")
    return command.startswith(own) or commands_of(f"`{command}`") == (command,)


@pytest.mark.parametrize("words", (*HOSTILE, EVERYTHING), ids=range(len(HOSTILE) + 1))
def test_words_of_a_node_are_no_command_and_draw_no_line(words: str, tmp_path: Path) -> None:
    findings = [everywhere(words), *(judged() if words == EVERYTHING else ())]
    assert words != EVERYTHING or any(MARK in str(item) for item in findings[1:])
    for item in findings:
        texts = [text for text in item.to_json().values() if isinstance(text, str)]
        assert all(is_harmless(text) and len(text) < 4_200 for text in texts)
        assert all(map(is_own, item.commands))
    report, call = NodeReport("gpu-1", tuple(findings)), Call("prod.py")
    text = report_text((report,), True, call=call)
    assert is_harmless(text, text.count("\n") + 1)
    # No line is added.
    one, plain = (report_text((NodeReport("gpu-1", (everywhere(each),)),), True, call=call) for each in (words, MARK))
    assert one.count("\n") == plain.count("\n")
    found = document((report,), call)
    told = json.loads(json.dumps(found))
    assert [finding_from(each) for each in told["hosts"]["gpu-1"]["findings"]] == findings
    view = views.drift_view(told)
    assert not [each for host in view.hosts for item in host.items for each in item.commands if not is_own(each)]
    page = document_page("drift", told)
    assert page.count("<script") == 3
    write_junit((report,), tmp_path / "x.xml", "gpunode drift", {})
    samples = metrics((report,), 0).decode().splitlines()
    assert not [line for line in samples if not line.startswith(("#", "gpunode_"))]
    end = verdict_text([HostEnd("gpu-1", findings=tuple(findings)), HostEnd("gpu-2", unreached=words)], call=call)
    assert is_harmless(end, end.count("\n") + 1)


def test_a_plan_has_them_as_data() -> None:
    plans = []
    for node in nodes():
        with suppress(Exception):
            plans.append(plan(SETTINGS, node))
    texts = [plan_text({"gpu-1": each}) for each in plans]
    assert any(MARK in text for text in texts) and all(is_harmless(text, text.count("\n") + 1) for text in texts)
    for words in HOSTILE:
        odd = Plan((Refusal(words, words, words, words, words),), (), ())
        text = plan_text({"gpu-1": odd})
        assert is_harmless(text, 4) and odd.to_json()["refusals"][0]["commands"] == []


@pytest.mark.parametrize("words", HOSTILE, ids=range(len(HOSTILE)))
def test_a_failed_command_brings_no_remedy_of_its_own(words: str) -> None:
    lines = [f"E: Failed to fetch http://{words}/x  404  Not Found", f"gpunode: cause: {words}"]
    lines.append(f"gpunode: remedy: {words}")
    for each in (*failure(lines, "sh"), *explained(lines)):
        item = failed_by([each.cause], [each.remedy])
        assert is_harmless(str(item)) and all(map(is_own, item.commands))
    own, *_ = failure(lines[1:], "sh")
    assert MARK in own.cause and own.remedy.startswith("“") and own.remedy.endswith("”")


@pytest.mark.parametrize("value", ["$(reboot)", "a;reboot", "`b`", "-oX", "x|y", "x&y", "a > b", "'", "~(x)", "a\\"])
def test_a_value_that_a_shell_acts_on_is_no_part_of_a_command(value: str) -> None:
    for each in ("systemctl status {}", "curl -I {}", "kubectl uncordon {}"):
        assert commands_of(as_remedy(f"run `{each.format(value)}` there")) == ()


def test_no_option_of_ssh_is_brought_in() -> None:
    for option in ("ProxyCommand=x", "'ProxyCommand=x'", "'UserKnownHostsFile=\"x\" -oProxyCommand=x'"):
        assert commands_of(as_remedy(f"`ssh -o {option} -o StrictHostKeyChecking=ask gpu-1`")) == ()


def test_commands_are_known_and_stay() -> None:
    for each in COMMANDS:
        assert commands_of(as_remedy(f"a `{each}` b")) == (each,)
    assert as_data("plain") == "plain" and as_data(as_data(MARK * 9_999)) == as_data(MARK * 9_999)


def test_each_test_that_the_table_of_trust_names_is_there() -> None:
    named = re.findall(r"`(test_\w+)::(test_\w+)`", (ROOT / "docs" / "security.md").read_text("utf-8"))
    files = {file: (ROOT / f"tests/unit/{file}.py").read_text("utf-8") for file, _ in named}
    assert len(named) > 10 and [test for file, test in named if f"def {test}(" not in files[file]] == []


# Words between backquotes that are no command of their own, and commands whose program a package manager's words name.
NO_COMMANDS = {
    "--data gpunode_retry=1", "all", "devices", "include x", "Enroll MOK", "USER ALL=(ALL) NOPASSWD: ALL",
    "Defaults:USER !requiretty", "_sudo_password", "_sudo", "ssh_known_hosts_file", "ssh_hostname",
    "x", "x PACKAGE …", "x x", "x/bin/cuda-uninstaller",
}  # fmt: skip


def test_each_command_of_a_declared_remedy_is_in_the_table() -> None:
    load()
    kinds = (Kind.FINDING, Kind.REFUSAL, Kind.CAUTION)
    remedies = [text for each in declared().values() if each.kind in kinds for text in each.remedies]
    remedies += [row.remedy for name in ("node", "zypper", "helm", "access", "connection") for row in rules(name)]
    named = {re.sub(r"\{[^}]*\}", "x", each) for text in remedies for each in re.findall("`([^`]*)`", text)}
    assert {each for each in named if commands_of(f"`{each}`") != (each,)} <= NO_COMMANDS and len(named) > 80
