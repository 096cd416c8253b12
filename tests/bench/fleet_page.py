"""How soon does a page of 1,000 SIMULATED hosts open, and how large is it? `python -m tests.bench.fleet_page`

Opens two pages in a real chromium, several times each: a fleet with the usual trouble, and one in which no two hosts
are alike. Writes its part of docs/performance.md.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from gpunode.fleet.page.html import document_page
from gpunode.fleet.reports.document import document
from tests.bench import page
from tests.support import fleet_documents as fleet
from tests.support.browser import Browser, BrowserError, browser

HOSTS = 1000
# Noted by the page's own clock, from the start of its loading.
_OPENED = """new PerformanceObserver(() => {}).observe({entryTypes: ["paint"]});
new MutationObserver((_, seen) => { if (document.documentElement.dataset.ready) {
  seen.disconnect(); requestAnimationFrame(() => setTimeout(() => { window.opened = performance.now(); })); } })
  .observe(document, {subtree: true, attributes: true, childList: true});"""


@dataclass(frozen=True)
class Figure:
    """Hold a fleet's page: bytes, seconds to make it, and of each opening the seconds until all rows are drawn."""

    name: str
    size: int
    made: float
    opened: tuple[float, ...]


def measure(seen: Browser, name: str, text: str, made: float, path: Path, rounds: int) -> Figure:
    """Open the page `rounds` times."""
    path.write_text(text, encoding="utf-8")
    opened = []
    for _ in range(rounds):
        seen.new_page()
        seen.call("Page.addScriptToEvaluateOnNewDocument", source=_OPENED)
        seen.call("Page.navigate", url=path.as_uri())
        opened.append(seen.wait("window.opened") / 1000)
    return Figure(name, len(text.encode()), made, tuple(opened))


def as_markdown(figures: tuple[Figure, ...]) -> str:
    """Return the part of docs/performance.md."""
    lines = [
        "## A page of 1,000 hosts",
        "",
        f"`gpunode drift --html` of {HOSTS:,} SIMULATED hosts, opened from a file in Debian's chromium: from the start "
        "of loading until every row of the map is drawn, by the page's own clock; the first rows are there before. "
        "`python -m tests.bench.fleet_page` measures it.",
        "",
        "| fleet | size | made in | opened in (median) | slowest |",
        "|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {each.name} | {each.size / 1e6:.2f} MB | {each.made:.1f} s | {statistics.median(each.opened):.2f} s "
        f"| {max(each.opened):.2f} s |"
        for each in figures
    ]
    here, load = page.machine(), os.getloadavg()[0]
    lines += ["", f"Taken on {time.strftime('%Y-%m-%d')} on {here['cores']} cores ({here['device']}), load {load:.1f}."]
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option("--rounds", type=click.IntRange(1), default=7, show_default=True)
def main(rounds: int) -> None:
    """Measure both fleets."""
    fleets = {"as most are: 60 hosts differ": fleet.reports(HOSTS), "no two hosts alike": fleet.all_different(HOSTS)}
    figures = []
    try:
        with tempfile.TemporaryDirectory() as folder, browser() as seen:
            for name, reports in fleets.items():
                page.say(name)
                told = document(reports, fleet.CALL, fleet.VERSION, fleet.AT)
                begun = time.monotonic()
                text = document_page("drift", told)
                made = time.monotonic() - begun
                figures.append(measure(seen, name, text, made, Path(folder) / "page.html", rounds))
    except BrowserError as error:
        raise click.ClickException(str(error)) from None
    text = as_markdown(tuple(figures))
    page.put("a page of 1,000 hosts", text)
    click.echo(text)


if __name__ == "__main__":
    main()
