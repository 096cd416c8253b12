"""The page in a real chromium: filters, links, keys, a screen reader's view, both schemes, a phone, hostile values."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.findings import Finding, NodeReport
from gpunode.cli.plan import as_json
from gpunode.fleet.call import Call
from gpunode.fleet.page.html import PAGES, drift_page
from gpunode.fleet.reports.document import document
from gpunode.fleet.rollout.document import document as rollout_document
from gpunode.reference import plan as plan_reference
from tests.support import fleet_documents as fleet
from tests.support.browser import MISSING, Browser, browser, program
from tests.support.page import EVIL, rollout

pytestmark = [
    pytest.mark.real,
    pytest.mark.tier2,
    pytest.mark.skipif(program() is None, reason=MISSING),
]
SHOWN = "[...document.querySelectorAll('#fleet tbody tr:not([hidden]) .names')].map(e => e.textContent)"
COUNT = "document.querySelector('#count').textContent"
PANEL = "document.querySelector('#panel').innerText"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the page of a SIMULATED fleet of 1,000 hosts."""
    path = tmp_path_factory.mktemp("page") / "drift.html"
    path.write_text(drift_page(fleet.fleet()), encoding="utf-8")
    return path.as_uri()


@pytest.fixture
def at(chromium: Browser, page: str) -> Iterator[Any]:
    """Return what opens the page at an address behind `#`; afterwards nothing was said on the console."""

    def opened(where: str = "", **options: Any) -> Browser:
        chromium.open(page + where, **options)
        return chromium

    yield opened
    assert chromium.console == []
    assert [url for url in chromium.requests if not url.startswith("file:///")] == []


def test_a_thousand_hosts_are_there_as_rows_of_alike_ones_and_as_a_square_each(at: Any) -> None:
    seen = at()
    assert seen.evaluate("document.querySelectorAll('#strip i').length") == 1000
    assert seen.evaluate(COUNT) == "All 1,000 hosts are shown."
    rows = seen.evaluate(SHOWN)
    assert rows[0] == "gpu-0703" and "gpu-0241 to gpu-0264" in rows and len(rows) == 13
    assert not seen.evaluate("document.querySelector('#plain').checkVisibility()")


def test_filters_leave_the_hosts_that_fit_and_say_how_many(at: Any) -> None:
    seen = at()
    seen.click("[data-kind='reboot pending']")
    assert seen.evaluate(SHOWN) == ["gpu-0241 to gpu-0264"]
    assert seen.evaluate(COUNT) == "24 of 1,000 hosts are shown."
    seen.click("#host")
    seen.type("gpu-025*")
    assert seen.evaluate(COUNT) == "10 of 1,000 hosts are shown."
    assert seen.evaluate("document.querySelectorAll('#strip i:not(.out)').length") == 10
    seen.click("#clear")
    assert seen.evaluate(COUNT) == "All 1,000 hosts are shown."
    seen.click("#text")
    seen.type("1G.10GB ×7")
    assert seen.evaluate(COUNT) == "3 of 1,000 hosts are shown."
    seen.click("#clear")
    seen.click("#host")
    seen.type("nowhere")
    assert seen.evaluate(COUNT) == "No host fits these filters."


def test_a_component_is_chosen_by_its_column_and_the_others_are_left_out(at: Any) -> None:
    seen = at()
    seen.click("#fleet thead th[title='containerd']")
    assert seen.evaluate("document.querySelector('#component').value") == "containerd"
    heads = seen.evaluate("[...document.querySelectorAll('#fleet thead th:not([hidden])')].map(e => e.innerText)")
    assert heads == ["Hosts", "containerd"]
    seen.click("[data-kind='drift']")
    assert seen.evaluate(COUNT) == "9 of 1,000 hosts are shown."


def test_a_link_shows_what_its_sender_saw(at: Any) -> None:
    seen = at()
    seen.click("[data-kind='drift']")
    seen.click("#text")
    seen.type("by hand")
    seen.click("#fleet tbody tr:not([hidden]) td.drift")
    address, rows, panel = seen.evaluate("location.hash"), seen.evaluate(SHOWN), seen.evaluate(PANEL)
    assert "verdict=drift" in address and "text=by+hand" in address and "of=containerd" in address
    again = at(address)
    assert (again.evaluate(SHOWN), again.evaluate(PANEL)) == (rows, panel)
    assert again.evaluate("document.querySelector(\"[data-kind='drift']\").getAttribute('aria-pressed')") == "true"
    again.evaluate("void (location.hash = '#host=gpu-0703')")
    again.wait(f"{COUNT}.startsWith('1 of')")


def test_a_cell_shows_both_sides_the_reason_the_command_and_the_cost(at: Any) -> None:
    seen = at()
    seen.click("#fleet td.drift")
    said = seen.evaluate(PANEL)
    for text in (
        "SystemdCgroup of runtime nvidia",
        "desired",
        "true",
        "actual",
        "false",
        "was edited by hand",
        "restarts a service",
    ):
        assert text in said
    commands = seen.evaluate("[...document.querySelectorAll('#panel .command code')].map(e => e.textContent)")
    assert commands == [
        "pyinfra inventories/prod.py deploys/gpu_node.py",
        "gpunode explain containerd.systemdcgroup",
        "pyinfra inventories/prod.py deploys/gpu_node.py --limit gpu-0220",
    ]


def test_the_command_is_copied_as_it_stands_there(at: Any) -> None:
    seen = at("#show=gpu-0220&of=containerd")
    seen.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    seen.click("#panel .heal .copy")
    seen.wait("document.querySelector('#panel .heal .copy').textContent === 'Copied'")
    said = seen.evaluate("navigator.clipboard.readText()")
    assert said == "pyinfra inventories/prod.py deploys/gpu_node.py --limit gpu-0220"


def test_the_map_is_walked_by_keys_opened_by_enter_and_left_by_escape(at: Any) -> None:
    seen = at()
    seen.evaluate("document.querySelector('#fleet [tabindex]').focus()")
    for key in ("ArrowDown", "ArrowRight", "End", "Home", "ArrowUp", "ArrowRight"):
        seen.press(key)
    focus = "document.activeElement.getAttribute('aria-label')"
    assert seen.evaluate(focus) == "repositories: ok"
    assert seen.evaluate("document.querySelectorAll('#fleet [tabindex]').length") == 1, "one stop for Tab"
    seen.press("Enter")
    assert seen.evaluate("document.activeElement.id") == "panel-title"
    assert seen.evaluate("document.querySelector('#panel-title').textContent") == "gpu-0703repositories"
    seen.press("Escape")
    assert seen.evaluate(focus) == "repositories: ok"


def test_a_screen_reader_is_told_of_map_cells_filters_and_counts(at: Any) -> None:
    told = set(at().spoken())
    for role, name in (
        ("grid", "Hosts by component"),
        ("gridcell", "node: error, 1 difference"),
        ("columnheader", "driver"),
        ("heading", "940 of 1,000 hosts are as desired."),
        ("searchbox", "Host"),
        ("combobox", "Component"),
    ):
        assert (role, name) in told
    assert any(role == "rowheader" and "gpu-0703" in name and "error" in name for role, name in told)
    assert at().evaluate("document.querySelector('#count').getAttribute('aria-live')") == "polite"
    assert at().evaluate("document.documentElement.lang") == "en"


CONTRAST = """(() => {
  const parsed = (text) => { const c = document.createElement('canvas').getContext('2d');
    c.fillStyle = text; c.fillRect(0, 0, 1, 1); return [...c.getImageData(0, 0, 1, 1).data]; };
  const light = (text) => { const [r, g, b] = parsed(text).map((x) => x / 255).map((x) =>
    x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (parsed(c)[3] === 255) return c; } return 'white'; };
  const kinds = %s;
  for (const kind of kinds) { const e = document.createElement('span'); e.className = 'cell ' + kind;
    e.textContent = 'x'; document.querySelector('#panel-body').append(e); }
  const wrong = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility()) continue;
    if (e.closest('.unseen, script, style, option')) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) wrong.push([e.tagName, e.className, e.textContent.slice(0, 30), ratio]);
  }
  return wrong; })()"""
COLOURS = ["error", "unreachable", "unsupported", "drift", "reboot", "restart", "change", "pending", "caution", "ok"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_is_readable_in_both_schemes(at: Any, chromium: Browser, page: str, scheme: str) -> None:
    chromium.new_page()
    chromium.colours(scheme)
    chromium.call("Page.navigate", url=f"{page}#show=gpu-0220")
    chromium.wait("document.documentElement?.dataset.ready")
    dark = chromium.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert dark == (scheme == "dark")
    assert chromium.evaluate(CONTRAST % json.dumps(COLOURS)) == []


def test_on_a_phone_nothing_is_wider_than_the_screen_and_the_map_scrolls_by_itself(
    at: Any, chromium: Browser, page: str
) -> None:
    chromium.new_page()
    chromium.size(390, 844, 2, phone=True)
    chromium.call("Page.navigate", url=page)
    chromium.wait("document.documentElement?.dataset.ready")
    assert chromium.evaluate("document.documentElement.scrollWidth") == 390
    fleet_map = "document.querySelector('#fleet')"
    assert chromium.evaluate(f"{fleet_map}.scrollWidth > {fleet_map}.clientWidth")
    chromium.click("#fleet td.error, #fleet td.drift")
    assert chromium.evaluate("getComputedStyle(document.querySelector('#panel')).position") == "fixed"


def test_without_javascript_the_plain_table_is_there(at: Any) -> None:
    seen = at("", scripts=False)
    seen.call("Emulation.setScriptExecutionDisabled", value=False)
    said = seen.evaluate("document.querySelector('#plain').innerText")
    assert "SystemdCgroup of runtime nvidia" in said and "gpu-0241 to gpu-0264" in said
    assert not seen.evaluate("document.querySelector('#filters').checkVisibility()")


def test_on_paper_the_differences_stand_below_the_map(at: Any) -> None:
    seen = at()
    seen.call("Emulation.setEmulatedMedia", media="print")
    assert seen.evaluate("document.querySelector('#plain').checkVisibility()")
    assert not seen.evaluate("document.querySelector('#filters').checkVisibility()")


def everywhere(evil: str) -> Finding:
    """Return a finding with a value in each of its places."""
    sides: dict[str, Any] = {
        "component": evil,
        "what": evil,
        "actual": evil,
        "desired": evil,
        "cause": evil,
        "source": evil,
    }
    return replace(fleet.EDITED, remedy=f"`a {evil}`", **sides)


def test_hostile_values_are_shown_as_text_and_do_nothing(chromium: Browser, tmp_path: Path) -> None:
    values = (*EVIL, "__proto__", "constructor", 'https://example.org/" onclick=alert(1)')
    reports = [NodeReport(f"{evil}-{number}", (everywhere(evil),)) for number, evil in enumerate(values)]
    path = tmp_path / "evil.html"
    path.write_text(drift_page(document(reports, Call(EVIL[0]), EVIL[0], fleet.AT)), encoding="utf-8")
    chromium.open(path.as_uri())
    chromium.evaluate("void (window.alert = () => console.log('ALERT'))")
    for number in range(len(reports)):
        chromium.click(f"#fleet tbody tr:nth-child({number + 1}) th")
        assert chromium.evaluate("document.querySelectorAll('#panel .card').length") == 1
    assert (
        chromium.evaluate("document.querySelectorAll('img, svg, iframe, [onclick], [onerror], [onload]').length") == 0
    )
    assert chromium.evaluate("document.querySelectorAll('script').length") == 3
    assert chromium.evaluate("[...document.querySelectorAll('a[href]')].map(e => e.protocol + e.className)") == [
        "file:skip"
    ]
    assert chromium.console == []
    assert chromium.requests == [path.as_uri()]


def test_a_script_that_somebody_brings_in_is_not_run(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "changed.html"
    text = drift_page(fleet.fleet(24)).replace("<main>", "<main><script>window.broken = 1</script>")
    path.write_text(text, encoding="utf-8")
    chromium.open(path.as_uri())
    assert chromium.evaluate("window.broken") is None
    assert any("Content Security Policy" in line for line in chromium.console)


def test_data_that_cannot_be_read_leave_the_plain_table_and_say_why(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "cut.html"
    text = drift_page(fleet.fleet(24))
    start = text.index('id="data">') + len('id="data">')
    path.write_text(text[:start] + text[start + 400 :], encoding="utf-8")
    chromium.open(path.as_uri(), ready="document.querySelector('#plain')?.checkVisibility()")
    assert "could not be drawn" in chromium.evaluate("document.querySelector('#why-plain').textContent")


def test_a_thousand_hosts_of_which_no_two_are_alike_all_come_in_time(chromium: Browser, tmp_path: Path) -> None:
    path = tmp_path / "different.html"
    path.write_text(drift_page(document(fleet.all_different(), at=fleet.AT)), encoding="utf-8")
    begun = time.monotonic()
    chromium.open(path.as_uri())
    # No figure of a busy machine: tests/bench/fleet_page.py has these.
    assert time.monotonic() - begun < 60
    assert chromium.evaluate("document.querySelectorAll('#fleet tbody tr').length") == 1000


@pytest.mark.parametrize("command", ["plan", "rollout"])
def test_plan_and_rollout_have_theirs(chromium: Browser, tmp_path: Path, command: str) -> None:
    told = {
        "plan": as_json(plan_reference.example(), fleet.CALL, "0.1.0", datetime(2026, 1, 15, tzinfo=UTC)),
        "rollout": rollout_document(rollout(), Path(".rollout/prod")),
    }
    path = tmp_path / f"{command}.html"
    path.write_text(PAGES[command](told[command]), encoding="utf-8")
    chromium.open(path.as_uri())
    assert chromium.console == []
    chromium.click("#fleet tbody tr th")
    assert len(chromium.evaluate(PANEL)) > 20
