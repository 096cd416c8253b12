"""The page of a document as text: whole, small, without an address of anybody, and harmless whatever a node said."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpunode import cli
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.cli.plan import as_json
from gpunode.components.driver.loading import LOADED_MODULE
from gpunode.components.mig.decide import MODE
from gpunode.fleet import drift
from gpunode.fleet.page import html, views
from gpunode.fleet.page.html import document_page
from gpunode.fleet.page.view import UNKNOWN_COST, View, cleaned, costs, map_rows
from gpunode.fleet.reports.document import document
from tests.reference import plan as plan_reference
from tests.support import fleet_documents as fleet
from tests.support.messages import unnamed
from tests.support.page import EVIL, page, rollout

pytestmark = pytest.mark.pure

LIMIT = 3_000_000
TEXT = st.text(st.characters(), max_size=20) | st.sampled_from(EVIL)
MAYBE = st.none() | TEXT
FINDINGS = st.builds(
    Finding, component=st.sampled_from(["driver", "node", EVIL[0]]), finding_class=st.sampled_from(FindingClass),
    what=TEXT, actual=MAYBE, desired=MAYBE, cause=MAYBE, remedy=MAYBE, source=MAYBE,
)  # fmt: skip
GOOD = Finding("driver", FindingClass.OK, "loaded module", "1", "1", code="driver.loaded-module")
BAD = replace(GOOD, finding_class=FindingClass.DRIFT, actual="0")


class Tags(HTMLParser):
    """Collect a page's elements: (tag, attributes)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def page_of(*findings: Finding, name: str = "gpu-1") -> str:
    return document_page("drift", document((NodeReport(name, findings),), fleet.CALL, "0.1.0", fleet.AT))


@cache
def our_tags() -> frozenset[str]:
    """Return the tags of a page with each kind of trouble, and of one with none."""
    return frozenset(
        tag for page in (document_page("drift", fleet.fleet(200)), page_of()) for tag, _ in Tags(page).found
    )


def view_of(*found: tuple[Finding, ...]) -> View:
    """Return what is shown of gpu-1, gpu-2, and so on."""
    reports = [NodeReport(f"gpu-{number}", findings) for number, findings in enumerate(found, 1)]
    return views.drift_view(document(reports, at=fleet.AT))


def table_of(text: str) -> str:
    """Return the plain table, for browsers that run no script."""
    return text[text.index("<tbody>") : text.index("</tbody>")]


def test_a_thousand_hosts_stay_under_three_megabytes_alike_or_all_different() -> None:
    for reports, rows in ((fleet.reports(), 13), (fleet.all_different(), 1000)):
        told = document(reports, fleet.CALL, "0.1.0", fleet.AT)
        assert len(reports) == 1000 and len(document_page("drift", told).encode()) < LIMIT
        assert len(map_rows(views.drift_view(told))) == rows
        assert document_page("drift", told) == document_page("drift", told)


@pytest.mark.parametrize("command", ("drift", "plan", "rollout"))
def test_a_page_asks_nothing_of_the_network_and_its_policy_lets_nothing_else_in(command: str) -> None:
    text = page(command)
    for tag, attributes in Tags(text).found:
        assert tag not in ("link", "img", "iframe", "object", "base"), tag
        # The policy would let no style in.
        assert not [name for name in attributes if name in ("src", "style") or name.startswith("on")]
    assert not re.findall(r"url\(|@import|fetch\(|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
    (policy,) = (at["content"] or "" for _, at in Tags(text).found if at.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy and "http" not in policy
    bodies = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", text, re.DOTALL)
    digests = {f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" for body in bodies}
    assert digests == set(re.findall(r"'sha256-[^']*'", policy))
    assert f"<title>{command.capitalize()} of inventories/prod.py</title>" in text
    assert '<time id="at" datetime="2026-01-15T' in text and "<bdi>0.1.0</bdi>" in text


@given(st.lists(FINDINGS, max_size=4), TEXT)
def test_whatever_a_node_said_the_page_s_elements_are_our_own(findings: list[Finding], name: str) -> None:
    text = page_of(*findings, name=name)
    text.encode()
    assert {tag for tag, _ in Tags(text).found} <= our_tags()
    assert text.count("<script") == text.count("</script>") == 3
    (packed,) = re.findall(r'id="data">([A-Za-z0-9+/=]*)<', text)
    items = json.loads(gzip.decompress(base64.b64decode(packed)))["items"]
    assert {item[2] for item in items} <= {cleaned(item.what) for item in findings}


def test_what_hides_or_turns_text_is_seen_as_its_escape_and_ends_of_lines_stay() -> None:
    assert cleaned({"a\u202e": ["x\x1b\ud800", "one\ntwo", 7, None]}) == {
        "a\\u202e": ["x\\x1b\\ud800", "one\ntwo", 7, None]
    }


def test_hosts_of_which_the_same_is_told_are_one_row_and_the_gravest_come_first() -> None:
    other = replace(GOOD, what="serial number")
    rows = map_rows(view_of((GOOD,), (GOOD, other), (BAD,), (fleet.GONE,)))
    assert [(row.label, row.kind, row.cells) for row in rows] == [
        ("gpu-4", "unreachable", (None, "unreachable")),
        ("gpu-3", "drift", ("drift", None)),
        ("gpu-1, gpu-2", "ok", ("ok", None)),
    ]


def test_an_error_in_the_last_component_comes_before_drift_in_the_first() -> None:
    view = view_of((BAD, replace(GOOD, component="node")), (GOOD, fleet.SICK))
    assert [row.label for row in map_rows(view)] == ["gpu-2", "gpu-1"]


def test_of_alike_hosts_the_longest_wait_is_told_and_values_that_differ_are_counted() -> None:
    waiting = (
        (replace(fleet.STALE, since=f"2026-01-{20 - at}T00:00:00Z"), replace(GOOD, component="node", actual=str(at)))
        for at in range(9)
    )
    (row,) = map_rows(view_of(*waiting))
    assert [item.since for item in row.items] == ["2026-01-12 00:00 UTC"]
    assert [item.actual for item in row.good] == ["0", "1", "2", "6 other values"]


def test_each_host_costs_what_its_gravest_difference_costs() -> None:
    view = view_of((fleet.EDITED, fleet.STALE), (fleet.EDITED,), (fleet.GONE,), (fleet.REMAPPED,))
    assert costs(view) == (("boots the node", 1), ("restarts a service", 1), (UNKNOWN_COST, 1))


def test_what_is_not_known_is_hatched_has_a_sign_of_its_own_and_is_no_host_as_desired() -> None:
    view = view_of((GOOD, replace(GOOD, finding_class=FindingClass.NOT_KNOWN, what="library")), (GOOD,))
    assert [(row.kind, row.cells) for row in map_rows(view)] == [("not known", ("not known",)), ("ok", ("ok",))]
    assert re.findall(r"\d+", view.said) == ["1", "2", "1"]
    (rule,) = re.findall(rf"^\.{view.kind('not known').colour} {{(.*)}}$", html._asset("page.css"), re.MULTILINE)
    assert "repeating-linear-gradient" in rule
    for kinds in (views.DRIFT_KINDS, views.PLAN_KINDS):
        assert len({kind.mark for kind in kinds}) == len(kinds) and not view.kind("not known").is_quiet
    # The legend: the sign, the name and its meaning.
    assert view.kind("not known").meaning in html.page(view)


def test_a_plan_is_coloured_by_what_it_disturbs() -> None:
    planned = as_json(plan_reference.example())
    view = views.plan_view(planned)
    kinds = {host.name: host.kind for host in view.hosts}
    assert kinds == {
        "gpu-new": "step", "gpu-blackwell": "refused", "gpu-done": "not known", "gpu-gone": "unreachable",
    }  # fmt: skip
    # Of all, of how many; nothing to do, refused, no answer.
    assert re.findall(r"\d+", view.said) == ["1", "4", "1", "1", "1"]
    steps = [item for host in view.hosts if host.name == "gpu-new" for item in host.items if item.kind == "step"]
    assert dict(steps[0].told)["order"] == f"step 1 of {len(planned['hosts']['gpu-new']['steps'])}"


def test_a_rollout_tells_of_each_host_what_its_last_wave_came_to() -> None:
    view = views.rollout_view(rollout())
    assert [host.kind for host in sorted(view.hosts, key=lambda host: host.name)] == [
        "passed", "passed", "failed", "not touched", "left out",
    ]  # fmt: skip
    assert "2 of 5 hosts passed; failed: 1;" in view.said and view.at == "2026-01-15T00:00:00+00:00"


def test_without_a_script_each_difference_is_a_row_of_a_table_with_its_hosts_and_its_cost() -> None:
    table = table_of(document_page("drift", fleet.fleet()))
    told = ("580.82.07", "580.95.05", "boots the node", "gpu-0241 to gpu-0264", "2026-01-12 09:30 UTC")
    assert unnamed(table, *told) == []
    assert re.search(r"[\d,]+ more differences: ", document_page("drift", document(fleet.all_different(), at=fleet.AT)))


def long_and_short(length: int) -> str:
    """Return the page of two hosts of which the first, and gravest, has said something long."""
    long = LOADED_MODULE.finding(FindingClass.ERROR, "<x>" + "y" * length, "580.95.05", remedy="z" * length)
    short = MODE.finding(FindingClass.DRIFT, "off", "on", of="0")
    return document_page("drift", document((NodeReport("gpu-1", (long,)), NodeReport("gpu-2", (short,))), at=fleet.AT))


def test_a_long_text_is_cut_in_the_plain_table_and_the_differences_after_it_are_there() -> None:
    text = long_and_short(700_000)
    assert unnamed(table_of(text), "gpu-1 (1 host)", "MIG mode", "cut: it has") == []
    assert table_of(text).count("y") < 1_100 and "more difference" not in text and "(cut" not in long_and_short(900)


def test_a_difference_without_room_is_counted_and_leaves_its_room_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "PLAIN_ROOM", 1_000)
    assert unnamed(long_and_short(900), "MIG mode", "1 more difference") == []
    monkeypatch.setattr(html, "PLAIN_ROOM", 10)
    nothing = long_and_short(900)
    assert "<tbody>" not in nothing and "<p>2 differences: " in nothing and "<p>Nothing.</p>" not in nothing


FILES = Path(__file__).parents[2] / "docs" / "examples" / "plan"


def planned_to(target: Path, *options: str) -> Any:
    files = ("--facts", str(FILES / "facts.json"), "--settings", str(FILES / "settings.yaml"))
    return CliRunner().invoke(cli.gpunode, ["plan", *files, "--html", str(target), *options])


def test_the_commands_write_the_page_of_the_document_that_they_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "page.html"
    monkeypatch.setattr(drift, "inspect", lambda *_, **__: (NodeReport("gpu-1", (fleet.EDITED,)),))
    drifted = CliRunner().invoke(cli.gpunode, ["drift", "prod.py", "--json", "--html", str(target)])
    assert target.read_text(encoding="utf-8") == document_page("drift", json.loads(drifted.stdout))
    # Of the documentation's hosts one gave no answer.
    planned = planned_to(target, "--json")
    assert target.read_text(encoding="utf-8") == document_page("plan", json.loads(planned.stdout))
    assert (drifted.exit_code, planned.exit_code) == (2, 1) and list(tmp_path.iterdir()) == [target]


def test_of_a_page_that_cannot_be_written_the_old_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.html"
    path.write_text("old\n")

    def full(descriptor: int, mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fchmod", full)
    done = planned_to(path)
    assert done.exit_code == 1 and unnamed(done.output, path, "No space left") == []
    assert path.read_text() == "old\n" and list(tmp_path.iterdir()) == [path]
