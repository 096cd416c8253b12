"""The page of a document as text: whole, small, without an address of anybody, and harmless whatever a node said."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
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
from gpunode.base.host_names import folded_first
from gpunode.cli.plan import as_json
from gpunode.fleet.call import Call
from gpunode.fleet.page import groups, html, of_drift, of_plan, of_rollout
from gpunode.fleet.page.html import PAGES, drift_page
from gpunode.fleet.page.view import cleaned, in_words
from gpunode.fleet.reports.document import document
from gpunode.fleet.rollout.document import document as rollout_document
from gpunode.reference import plan as plan_reference
from tests.support import fleet_documents as fleet
from tests.support.messages import unnamed
from tests.support.page import EVIL, rollout

pytestmark = pytest.mark.pure

LIMIT = 3_000_000
TEXT = st.text(st.characters(), max_size=20) | st.sampled_from(EVIL)
FINDINGS = st.builds(
    Finding,
    component=st.sampled_from(["driver", "node", EVIL[0]]),
    finding_class=st.sampled_from(FindingClass),
    what=TEXT,
    actual=st.none() | TEXT,
    desired=st.none() | TEXT,
    cause=st.none() | TEXT,
    remedy=st.none() | TEXT,
    source=st.none() | TEXT,
)


class Tags(HTMLParser):
    """Collect a page's elements: (tag, attributes)."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def page_of(*findings: Finding, name: str = "gpu-1") -> str:
    return drift_page(document((NodeReport(name, findings),), fleet.CALL, "0.1.0", fleet.AT))


@cache
def our_tags() -> frozenset[str]:
    """Return the tags of a page with each kind of trouble, and of one with none."""
    return frozenset(tag for page in (drift_page(fleet.fleet(200)), page_of()) for tag, _ in Tags(page).found)


def data(text: str) -> dict[str, Any]:
    """Return what the page's script reads."""
    (packed,) = re.findall(r'id="data">([A-Za-z0-9+/=]*)<', text)
    unpacked: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed)))
    return unpacked


def every_page() -> dict[str, str]:
    planned = as_json(plan_reference.example(), fleet.CALL, "0.1.0", datetime(2026, 1, 15, tzinfo=UTC))
    return {
        "drift": PAGES["drift"](fleet.fleet(24)),
        "plan": PAGES["plan"](planned),
        "rollout": PAGES["rollout"](rollout_document(rollout(), Path(".rollout/prod"))),
    }


def test_a_thousand_hosts_stay_under_three_megabytes_alike_or_all_different() -> None:
    alike, different = fleet.reports(), fleet.all_different()
    assert len(alike) == len(different) == 1000
    for reports in (alike, different):
        assert len(drift_page(document(reports, fleet.CALL, "0.1.0", fleet.AT)).encode()) < LIMIT
    assert len(groups.rows(of_drift.view(document(different, at=fleet.AT)))) == 1000


@pytest.mark.parametrize("command", PAGES)
def test_a_page_asks_nothing_of_the_network_and_its_policy_lets_nothing_else_in(command: str) -> None:
    text = every_page()[command]
    for tag, attributes in Tags(text).found:
        assert tag not in ("link", "img", "iframe", "object", "base"), tag
        assert "src" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert attributes.get("style") is None, "the policy would not let it in"
    assert not re.findall(r"url\(|@import|fetch\(|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
    (policy,) = (at["content"] or "" for _, at in Tags(text).found if at.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy and "http" not in policy
    bodies = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", text, re.DOTALL)
    digests = {f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'" for body in bodies}
    assert digests == set(re.findall(r"'sha256-[^']*'", policy))


@given(st.lists(FINDINGS, max_size=4), TEXT)
def test_whatever_a_node_said_the_page_s_elements_are_our_own(findings: list[Finding], name: str) -> None:
    text = page_of(*findings, name=name)
    text.encode()
    tags = {tag for tag, _ in Tags(text).found}
    assert tags <= our_tags()
    assert text.count("<script") == text.count("</script>") == 3
    shown = [item[2] for item in data(text)["items"]]
    assert set(shown) <= {cleaned(item.what) for item in findings}


def test_what_hides_or_turns_text_is_seen_as_its_escape_and_ends_of_lines_stay() -> None:
    assert cleaned({"a\u202e": ["x\x1b\ud800", "one\ntwo", 7, None]}) == {
        "a\\u202e": ["x\\x1b\\ud800", "one\ntwo", 7, None]
    }


def test_hosts_of_which_the_same_is_told_are_one_row_and_the_gravest_come_first() -> None:
    good = Finding("driver", FindingClass.OK, "loaded module", "1", "1")
    bad = Finding("driver", FindingClass.DRIFT, "loaded module", "0", "1")
    other = Finding("driver", FindingClass.OK, "serial number", "a", "a")
    view = of_drift.view(
        document(
            (
                NodeReport("gpu-1", (good,)),
                NodeReport("gpu-2", (good, other)),
                NodeReport("gpu-3", (bad,)),
                NodeReport("gpu-4", (fleet.GONE,)),
            ),
            at=fleet.AT,
        )
    )
    rows = groups.rows(view)
    assert [(row.label, row.kind, row.cells) for row in rows] == [
        ("gpu-4", "unreachable", (None, "unreachable")),
        ("gpu-3", "drift", ("drift", None)),
        ("gpu-1, gpu-2", "ok", ("ok", None)),
    ]


def test_an_error_in_the_last_component_comes_before_drift_in_the_first() -> None:
    good = Finding("driver", FindingClass.OK, "loaded module", "1", "1")
    drifted = replace(good, finding_class=FindingClass.DRIFT)
    well = Finding("node", FindingClass.OK, "GPU 5", "well", "well")
    reports = (NodeReport("gpu-1", (drifted, well)), NodeReport("gpu-2", (good, fleet.SICK)))
    assert [row.label for row in groups.rows(of_drift.view(document(reports, at=fleet.AT)))] == ["gpu-2", "gpu-1"]


def test_of_alike_hosts_the_longest_wait_is_told_and_values_that_differ_are_counted() -> None:
    serials = [Finding("node", FindingClass.OK, "serial number", str(number), "any") for number in range(9)]
    times = [f"2026-01-{number:02}T00:00:00Z" for number in range(20, 11, -1)]
    reports = tuple(
        NodeReport(f"gpu-{at}", (replace(fleet.STALE, since=since), serial))
        for at, (since, serial) in enumerate(zip(times, serials, strict=True))
    )
    (row,) = groups.rows(of_drift.view(document(reports, at=fleet.AT)))
    assert [item.since for item in row.items] == ["2026-01-12 00:00 UTC"]
    assert [item.actual for item in row.good] == ["0", "1", "2", "6 other values"]


def test_each_host_costs_what_its_gravest_difference_costs() -> None:
    reports = (
        NodeReport("gpu-1", (fleet.EDITED, fleet.STALE)),
        NodeReport("gpu-2", (fleet.EDITED,)),
        NodeReport("gpu-3", (fleet.GONE,)),
        NodeReport("gpu-4", (fleet.REMAPPED,)),
    )
    view = of_drift.view(document(reports, at=fleet.AT))
    assert groups.costs(view) == (("boots the node", 1), ("restarts a service", 1), (groups.UNKNOWN_COST, 1))


def test_a_remedy_is_a_command_of_this_inventory_as_a_shell_takes_it() -> None:
    told = document((NodeReport("gpu-1", (fleet.EDITED,)),), Call("my inventories/prod.py"), "0", fleet.AT)
    (item,) = of_drift.view(told).hosts[0].items
    assert dict(item.told)["remedy"] == "run `pyinfra 'my inventories/prod.py' deploys/gpu_node.py`"


def test_a_plan_is_coloured_by_what_it_disturbs_and_a_refused_host_is_told_why() -> None:
    planned = as_json(plan_reference.example())
    view = of_plan.view(planned)
    assert {host.name: host.kind for host in view.hosts} == {
        "gpu-new": "step",
        "gpu-blackwell": "refused",
        "gpu-done": "nothing to do",
        "gpu-gone": "unreachable",
    }
    assert view.said == "1 of 4 hosts can be done; nothing to do: 1; refused: 1; no answer: 1."
    steps = [item for host in view.hosts if host.name == "gpu-new" for item in host.items if item.kind == "step"]
    assert dict(steps[0].told)["order"] == f"step 1 of {len(planned['hosts']['gpu-new']['steps'])}"


def test_a_rollout_tells_of_each_host_what_its_last_wave_came_to() -> None:
    view = of_rollout.view(rollout_document(rollout(), Path(".rollout/prod")))
    assert {host.name: host.kind for host in view.hosts} == {
        "gpu-1": "passed",
        "gpu-2": "passed",
        "gpu-3": "failed",
        "gpu-4": "not touched",
        "gpu-5": "left out",
    }
    assert view.said.startswith("Stopped (1 node failed, where none may): 2 of 5 hosts passed; failed: 1;")
    assert view.at == "2026-01-15T00:00:00+00:00"


@pytest.mark.parametrize("command", PAGES)
def test_a_page_says_of_what_when_and_by_which_version_it_was_read(command: str) -> None:
    text = every_page()[command]
    assert f"<title>{command.capitalize()} of inventories/prod.py</title>" in text
    assert '<time id="at" datetime="2026-01-15T' in text
    assert "by gpunode <bdi>0.1.0</bdi>" in text


def test_without_a_script_each_difference_is_a_row_of_a_table_with_its_hosts_and_its_cost() -> None:
    text = drift_page(fleet.fleet())
    table = text[text.index("<tbody>") : text.index("</tbody>")]
    assert "580.82.07" in table and "580.95.05" in table and "boots the node" in table
    assert "gpu-0241 to gpu-0264" in table
    assert "2026-01-12 09:30 UTC" in table


def test_what_is_too_much_for_the_plain_table_is_counted_there() -> None:
    text = drift_page(document(fleet.all_different(), at=fleet.AT))
    assert re.search(r"[\d,]+ more differences: too many for a plain table", text)


def long_and_short(length: int) -> str:
    """Return the page of two hosts of which the first, and gravest, has said something long."""
    long = Finding("driver", FindingClass.ERROR, "driver", "<x>" + "y" * length, "580.95.05", remedy="z" * length)
    short = Finding("mig", FindingClass.DRIFT, "MIG mode", "off", "on")
    return drift_page(document((NodeReport("gpu-1", (long,)), NodeReport("gpu-2", (short,))), at=fleet.AT))


def test_a_long_text_is_cut_in_the_plain_table_and_the_differences_behind_it_are_there() -> None:
    text = long_and_short(700_000)
    table = text[text.index("<tbody>") : text.index("</tbody>")]
    assert "gpu-1 (1 host)" in table and "MIG mode" in table and "more difference" not in text
    assert table.count("y") < 1_100 and "(cut: it has 700,003 characters)" in table
    assert "(cut: it has 700,000 characters)" in table
    assert "(cut" not in long_and_short(900)


def test_a_difference_without_room_is_counted_and_leaves_its_room_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "PLAIN_ROOM", 1_000)
    text = long_and_short(900)
    assert "MIG mode" in text and "1 more difference: too many for a plain table" in text
    monkeypatch.setattr(html, "PLAIN_ROOM", 10)
    nothing = long_and_short(900)
    assert "<tbody>" not in nothing and "2 differences: too much for a plain table" in nothing
    assert "<p>Nothing.</p>" not in nothing


def test_the_same_document_makes_the_same_page() -> None:
    assert drift_page(fleet.fleet(50)) == drift_page(fleet.fleet(50))


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a-1", "a-2", "a-3", "b"], "a-1 to a-3, b"),
        (["a", "b", "c"], "a, b, c"),
        (["a", "b", "c-1", "c-2", "c-3", "d"], "a, b and 4 more"),
    ],
)
def test_many_names_are_the_first_of_them_and_how_many_more(names: list[str], said: str) -> None:
    assert folded_first(names, 2) == said


def test_a_time_that_is_none_is_shown_as_it_is() -> None:
    assert (in_words("2026-01-12T10:30:00+01:00"), in_words("soon")) == ("2026-01-12 09:30 UTC", "soon")


FILES = Path(__file__).parents[2] / "docs" / "examples" / "plan"


def planned_to(target: Path, *options: str) -> Any:
    files = ("--facts", str(FILES / "facts.json"), "--settings", str(FILES / "settings.yaml"))
    return CliRunner().invoke(cli.gpunode, ["plan", *files, "--html", str(target), *options])


def test_the_command_writes_the_page_beside_what_it_prints(tmp_path: Path) -> None:
    done = planned_to(tmp_path / "plan.html", "--json")
    assert done.exit_code == 1, "one host gave no answer"
    printed = json.loads(done.stdout)
    assert (tmp_path / "plan.html").read_text(encoding="utf-8") == PAGES["plan"](printed)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.html"]


def test_a_page_for_a_folder_that_is_not_there_is_refused_before_the_work(tmp_path: Path) -> None:
    done = planned_to(tmp_path / "nowhere" / "plan.html")
    assert done.exit_code == 64 or done.exit_code == 2
    assert unnamed(done.output, f"no folder {tmp_path / 'nowhere'}") == []
    assert "gpu-new" not in done.output


def test_a_page_that_cannot_be_written_is_said_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plan.html"
    path.write_text("old\n")

    def full(descriptor: int, mode: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fchmod", full)
    done = planned_to(path)
    assert done.exit_code == 1
    assert f"{path}: " in done.output and "No space left" in done.output
    assert path.read_text() == "old\n"
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.html"]


def test_drift_writes_the_page_of_its_own_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpunode.fleet import drift

    monkeypatch.setattr(drift, "inspect", lambda *arguments, **options: (NodeReport("gpu-1", (fleet.EDITED,)),))
    target = tmp_path / "drift.html"
    done = CliRunner().invoke(cli.gpunode, ["drift", "inventories/prod.py", "--json", "--html", str(target)])
    assert done.exit_code == 2, done.output
    told = json.loads(done.stdout)
    assert told["inventory"] == "inventories/prod.py"
    assert target.read_text(encoding="utf-8") == drift_page(told)
