"""`gpunode drift`: is every node still what its settings say?"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpunode.cli.errors import told
from gpunode.findings import FindingClass, verdict, worst

if TYPE_CHECKING:
    from gpunode.drift import NodeReport

_STYLES = {FindingClass.OK: "green", FindingClass.RESTART_PENDING: "yellow", FindingClass.REBOOT_PENDING: "yellow"}


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print every finding as JSON.")
@click.option("--all", "show_all", is_flag=True, help="Show what is as asked, too.")
def drift(inventory: Path, as_json: bool, show_all: bool) -> None:
    """Compare every node of INVENTORY with its settings, read-only, in one round trip per node.

    Exits 0 where all is as asked, 2 on drift or something pending, 1 where a node could not be read, 3 on wrong
    settings.
    """
    # Imported here: pyinfra patches the process's sockets when it is imported.
    from gpunode.drift import inspect

    with told():
        reports = inspect(inventory)
    if as_json:
        click.echo(json.dumps({report.name: [item.to_json() for item in report.findings] for report in reports}))
    else:
        _print(reports, show_all)
    sys.exit(verdict(item for report in reports for item in report.findings))


def _print(reports: tuple[NodeReport, ...], show_all: bool) -> None:
    # What a node said is text, never markup; where nobody looks at a terminal, lines are not cut to one.
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 200
    table = Table("Node", "Component", "What", "Found", "Wanted", "Verdict", title="Asked and found")
    for report in reports:
        for item in report.findings:
            if show_all or item.finding_class is not FindingClass.OK:
                cells = (report.name, item.component, item.what, item.found or "", item.wanted or "")
                verdict_text = Text(item.finding_class, style=_STYLES.get(item.finding_class, "red"))
                table.add_row(*(Text(cell) for cell in cells), verdict_text)
        table.add_section()
    if table.row_count:
        console.print(table)
    for report in reports:
        bad = [item for item in report.findings if item.finding_class is not FindingClass.OK]
        count = f"{len(report.findings) - len(bad)} of {len(report.findings)} as asked"
        console.print(f"{report.name}: {worst(report.findings)}, {count}")
        for item in bad:
            why = f"  {item.component}: {item.what}: {item.cause or item.finding_class}"
            remedy = f". Remedy: {item.remedy}" if item.remedy else ""
            console.print(why + remedy + (f". Disturbs: {item.disturbs.name}" if item.disturbs is not None else ""))
