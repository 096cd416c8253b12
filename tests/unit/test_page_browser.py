"""The page in a real chromium: filters, links, keys, a screen reader's view, both schemes, a phone, hostile values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.base.findings import Finding, NodeReport
from gpunode.base.messages import Scope
from gpunode.fleet.call import Call
from gpunode.fleet.page.html import document_page
from gpunode.fleet.reports.document import document
from tests.support import fleet_documents as fleet
from tests.support.browser import MISSING, Browser, browser, program
from tests.support.page import EVIL
from tests.support.page import page as small_page

pytestmark = [
    pytest.mark.real,
    pytest.mark.tier2,
    pytest.mark.skipif(program() is None, reason=MISSING),
]
SCRIPTS = Path(__file__).parent / "data" / "page_browser"


def one(selector: str, what: str) -> str:
    return f"document.querySelector({selector!r}).{what}"


def every(selector: str, what: str) -> str:
    return f"[...document.querySelectorAll({selector!r})].map(e => e.{what})"


def number(selector: str) -> str:
    return f"document.querySelectorAll({selector!r}).length"


SHOWN = every("#fleet tbody tr:not([hidden]) .names", "textContent")
COUNT = one("#count", "textContent")
PANEL = one("#panel", "innerText")
NAMED = {"shown": SHOWN, "count": COUNT, "focus": "document.activeElement.getAttribute('aria-label')"}
PLAIN, FILTERS = (one(selector, "checkVisibility()") for selector in ("#plain", "#filters"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of the page of a SIMULATED fleet of 1,000 hosts."""
    path = tmp_path_factory.mktemp("page") / "drift.html"
    path.write_text(document_page("drift", fleet.fleet()), encoding="utf-8")
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


@pytest.fixture
def written(chromium: Browser, tmp_path: Path) -> Callable[..., Browser]:
    """Return what opens a page of this text."""

    def opened(text: str, **options: Any) -> Browser:
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        chromium.open(path.as_uri(), **options)
        return chromium

    return opened


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.yaml")), ids=lambda script: script.stem)
def test_what_is_done_on_the_page_and_seen_then(at: Any, script: Path) -> None:
    seen = at()
    seen.call("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"])
    for step in yaml.safe_load(script.read_text()):
        if "sees" in step:
            name, rest = re.fullmatch(r"(\w*)(.*)", step["sees"], re.DOTALL).groups()  # type: ignore[union-attr]
            assert seen.evaluate(NAMED.get(name, name) + rest) == step["is"], step
        else:
            # One of Browser's methods, with what it takes.
            ((does, what),) = step.items()
            getattr(seen, does)(what)


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
    assert again.evaluate(one("[data-kind='drift']", "getAttribute('aria-pressed')")) == "true"
    again.evaluate("void (location.hash = '#host=gpu-0703')")
    again.wait(f"{COUNT}.startsWith('1 of')")


def test_a_screen_reader_is_told_of_map_cells_filters_and_counts(at: Any) -> None:
    told = set(at().spoken())
    assert told >= {
        ("grid", "Hosts by component"),
        ("gridcell", "health: error, 1 difference"),
        ("columnheader", "driver"),
        ("searchbox", "Host"),
        ("combobox", "Component"),
    }
    assert any(role == "heading" and name.startswith("940 of 1,000 ") for role, name in told)
    assert any(role == "rowheader" and "gpu-0703" in name and "error" in name for role, name in told)
    assert at().evaluate(one("#count", "getAttribute('aria-live')")) == "polite"
    assert at().evaluate("document.documentElement.lang") == "en"


CONTRAST = (Path(__file__).parent / "data" / "contrast.js").read_text()
COLOURS = [
    "error", "unreachable", "unsupported", "drift", "reboot", "restart", "not-known", "change", "pending", "caution",
    "ok",
]  # fmt: skip


def arrive(chromium: Browser, url: str) -> None:
    chromium.call("Page.navigate", url=url)
    chromium.wait("document.documentElement?.dataset.ready")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_is_readable_in_both_schemes(at: Any, chromium: Browser, page: str, scheme: str) -> None:
    chromium.new_page()
    chromium.colours(scheme)
    arrive(chromium, f"{page}#show=gpu-0220")
    dark = chromium.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    assert dark == (scheme == "dark")
    assert chromium.evaluate(CONTRAST.replace("KINDS", json.dumps(COLOURS))) == []


def test_on_a_phone_nothing_is_wider_than_the_screen_and_the_map_scrolls_by_itself(
    at: Any, chromium: Browser, page: str
) -> None:
    chromium.new_page()
    chromium.size(390, 844, 2, phone=True)
    arrive(chromium, page)
    assert chromium.evaluate("document.documentElement.scrollWidth") == 390
    assert chromium.evaluate(f"{one('#fleet', 'scrollWidth')} > {one('#fleet', 'clientWidth')}")
    chromium.click("#fleet td.error, #fleet td.drift")
    assert chromium.evaluate("getComputedStyle(document.querySelector('#panel')).position") == "fixed"


def test_without_javascript_and_on_paper_the_plain_table_is_there(at: Any) -> None:
    seen = at("", scripts=False)
    seen.call("Emulation.setScriptExecutionDisabled", value=False)
    said = seen.evaluate(one("#plain", "innerText"))
    assert fleet.EDITED.what in said and "gpu-0241 to gpu-0264" in said
    assert not seen.evaluate(FILTERS)
    printed = at()
    printed.call("Emulation.setEmulatedMedia", media="print")
    assert printed.evaluate(PLAIN) and not printed.evaluate(FILTERS)


def everywhere(evil: str) -> Finding:
    """Return a finding with a value in each of its places."""
    sides = dict.fromkeys(("component", "what", "actual", "desired", "cause", "source"), evil)
    return replace(fleet.EDITED, remedy=f"`a {evil}`", **sides)  # type: ignore[arg-type]


def test_hostile_values_are_shown_as_text_and_do_nothing(written: Any) -> None:
    values = (*EVIL, "__proto__", "constructor", 'https://example.org/" onclick=alert(1)')
    reports = [NodeReport(f"{evil}-{number}", (everywhere(f"{evil}{number}"),)) for number, evil in enumerate(values)]
    seen = written(document_page("drift", document(reports, Call(EVIL[0]), EVIL[0], fleet.AT)))
    seen.evaluate("void (window.alert = () => console.log('ALERT'))")
    for row in range(len(reports)):
        seen.click(f"#fleet tbody tr:nth-child({row + 1}) th")
        assert seen.evaluate(number("#panel .card")) == 1
    assert seen.evaluate(number("img, svg, iframe, [onclick], [onerror], [onload]")) == 0
    assert seen.evaluate(number("script")) == 3
    assert seen.evaluate(every("a[href]", "protocol + e.className")) == ["file:skip"]
    assert seen.console == [] and [url[:8] for url in seen.requests] == ["file:///"]


def test_only_commands_of_gpunode_can_be_copied(written: Any) -> None:
    words = dict.fromkeys(("actual", "desired", "cause", "source"), "see `rm -rf /` there")
    told = document([NodeReport("gpu-1", (fleet.EDITED,))], fleet.CALL, fleet.VERSION, fleet.AT)
    told["hosts"]["gpu-1"]["findings"][0] |= {**words, "remedy": "run `rm -rf /`, then `dkms status`"}
    seen = written(document_page("drift", told))
    seen.click("#fleet tbody tr:nth-child(1) th")
    copied = seen.evaluate(every("#panel .card .command code", "textContent"))
    assert copied == ["dkms status", f"gpunode explain {fleet.EDITED.code}"]


def test_the_cluster_has_the_first_row_and_is_no_host(written: Any) -> None:
    reports = [NodeReport(name, fleet.good()) for name in ("gpu-1", "gpu-2")]
    reports.append(NodeReport("admin@prod", (fleet.EDITED,), scope=Scope.CLUSTER))
    seen = written(document_page("drift", document(reports, fleet.CALL, fleet.VERSION, fleet.AT)))
    assert seen.evaluate(SHOWN) == ["the cluster admin@prod", "gpu-1, gpu-2"]
    assert (seen.evaluate(number("#strip i")), seen.evaluate(COUNT)) == (2, "All 2 hosts are shown.")
    seen.click("#fleet tbody tr:nth-child(1) th")
    assert fleet.CALL.run in seen.evaluate(PANEL) and "--limit" not in seen.evaluate(PANEL)
    assert seen.console == []


def test_a_script_that_somebody_brings_in_is_not_run(written: Any) -> None:
    seen = written(small_page("drift").replace("<main>", "<main><script>window.broken = 1</script>"))
    assert seen.evaluate("window.broken") is None
    assert any("Content Security Policy" in line for line in seen.console)


def test_data_that_cannot_be_read_leave_the_plain_table_and_say_why(written: Any) -> None:
    text = small_page("drift")
    start = text.index('id="data">') + len('id="data">')
    seen = written(text[:start] + text[start + 400 :], ready="document.querySelector('#plain')?.checkVisibility()")
    assert "drawn" in seen.evaluate(one("#why-plain", "textContent"))


@pytest.mark.parametrize("command", ["plan", "rollout"])
def test_plan_and_rollout_have_theirs(written: Any, command: str) -> None:
    seen = written(small_page(command))
    assert seen.console == []
    seen.click("#fleet tbody tr th")
    assert len(seen.evaluate(PANEL)) > 20
