"""`gpunode drift`: is every node still what its settings say?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpunode.base.findings import FindingClass, NodeReport, verdict, worst
from gpunode.base.folding import UNBOUND, fold
from gpunode.base.importing import uncollected
from gpunode.base.terminal import say, say_coloured
from gpunode.cli.engine import engine_option, inspected
from gpunode.cli.errors import told
from gpunode.cli.output import Mode, columns, is_json, is_live, is_quiet, mode, no_color, output_option
from gpunode.cli.recording import history_option, recorded, with_since
from gpunode.cli.report_file import REPORT, finish, html_option, unwritten, unwritten_page, writable
from gpunode.cli.selection import called, inventory_argument, limit_option, set_option
from gpunode.fleet.call import SOME_CALL, Call
from gpunode.fleet.reports.findings_text import report_text

if TYPE_CHECKING:
    from gpunode.fleet.nodes import Watch

_WAITS = dict.fromkeys((FindingClass.RESTART_PENDING, FindingClass.REBOOT_PENDING, FindingClass.NOT_KNOWN), "yellow")
_COLOURS = {FindingClass.OK: "green", **_WAITS}


@click.command()
@inventory_argument()
@output_option("every finding (docs/drift.md)", "what is not as desired")
@click.option("--all", "show_all", is_flag=True, help="Show what is as desired, too, and each node's name.")
@click.option("--junit", type=REPORT, callback=writable, help="Write a JUnit report to this file, too.")
@click.option(
    "--prometheus",
    type=REPORT,
    callback=writable,
    help="Write metrics to this file, too, for node_exporter's textfile collector (name it *.prom).",
)
@html_option
@history_option
@click.option(
    "--timeout",
    type=click.IntRange(1),
    default=120,
    show_default=True,
    help="Seconds within which a node has to answer.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=None,
    help="How many processes of this machine read the nodes, which no engine of others does; by default one per "
    "processor and 32 nodes.",
)
@engine_option
@limit_option
@set_option
def drift(
    inventory: Path,
    show_all: bool,
    junit: Path | None,
    prometheus: Path | None,
    html: Path | None,
    timeout: int,
    processes: int | None,
    scheduler: str | None,
    limit: tuple[str, ...],
) -> None:
    """Compare every node of INVENTORY with its settings, read-only, in one round trip per node.

    Exits 0 where all is as desired, 2 on drift, on something pending, or where something desired is not known, 1 where
    a node could not be read, 3 on wrong settings.
    """
    # Imported here: pyinfra patches the process's sockets when it is imported.
    with uncollected():
        from gpunode.fleet import drift as _  # noqa: F401

    began = time.monotonic()
    with told(), watched() as watch:
        reports = inspected(inventory, scheduler, watch, timeout, processes, limit=limit)
    took = time.monotonic() - began
    from gpunode.fleet.reports.document import document
    from gpunode.fleet.reports.junit import write_junit
    from gpunode.fleet.reports.prometheus import metrics
    from gpunode.fleet.reports.whole_file import write_whole

    call = called(inventory, limit)
    told_of = document(reports, call)
    if not is_json():
        print_reports(reports, show_all, call)
    page = with_since(told_of, recorded(told_of, "drift"))
    why_not = (
        *unwritten(junit, lambda file: write_junit(reports, file, "gpunode drift", {"read": took})),
        *unwritten(prometheus, lambda file: write_whole(file, metrics(reports, time.time(), took))),
        *unwritten_page(html, "drift", page),
    )
    finish(told_of, why_not, verdict(item for report in reports for item in report.findings))


@contextmanager
def watched() -> Iterator[Watch]:
    """Show on a terminal how many nodes have answered; the display is gone before anything else is printed."""
    if not is_live():
        yield lambda hosts, done: None
        return
    # Late, as everything of rich's: it takes as long as a node's answer.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True, force_terminal=mode() is Mode.TTY or None, no_color=no_color() or None)
    shown = (TextColumn("Reading nodes"), BarColumn(), MofNCompleteColumn())
    # Refreshed by hand: rich's own thread and pyinfra's gevent do not get along.
    with Progress(*shown, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("", total=None)

        def watch(hosts: int, done: int) -> None:
            progress.update(task, total=hosts, completed=done, refresh=True)

        yield watch


def print_reports(reports: tuple[NodeReport, ...], show_all: bool, call: Call = SOME_CALL) -> None:
    """Print what is not as desired (or all of it), and a line for the nodes that are alike."""
    if text := report_text(reports, show_all, columns(), call, coloured, is_quiet()):
        say_coloured(text)

    # A log has it once, in the documentation; whoever looks at a terminal may never have seen a code.
    is_bad = any(worst(each.findings) is not FindingClass.OK for each in reports)
    if columns() != UNBOUND and is_bad and not is_quiet():
        say(fold("What is in brackets: `gpunode explain CODE` says more", columns(), "  "))


def coloured(finding_class: FindingClass) -> str:
    """Return a class in its colour, which is not printed where colours are not wanted."""
    return click.style(finding_class, fg=_COLOURS.get(finding_class, "red"))
