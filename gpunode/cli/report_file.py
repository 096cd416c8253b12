"""Files that a command writes beside what it prints: refused before the work, and told where they could not be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from gpunode.base.findings import ExitCode
from gpunode.cli.errors import NOT_WRITTEN, end

REPORT = click.Path(path_type=Path, dir_okay=False)


def writable(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a report that could not be written, before the nodes are read for it."""
    if path is None:
        return None
    if not path.parent.is_dir():
        raise click.BadParameter(f"there is no folder {path.parent}: make it, or name another file")
    if not path.exists() and not os.access(path.parent, os.W_OK | os.X_OK):
        raise click.BadParameter(f"you may not write into {path.parent}: name another file")
    return path


html_option = click.option(
    "--html", type=REPORT, callback=writable, help="Write a page to look at to this file, too (docs/page.md)."
)


@contextmanager
def written(path: Path) -> Iterator[None]:
    """End the program with 1 where the file cannot be written."""
    try:
        yield
    except OSError as error:
        end(f"{path}: the report was not written: {error.strerror}", NOT_WRITTEN, ExitCode.ERROR)


def write_page(path: Path, command: str, document: dict[str, Any]) -> None:
    """Write the page of a command's JSON document as a whole, or leave the file as it was."""
    # Late, as all that only some calls need.
    from gpunode.fleet.page.html import PAGES
    from gpunode.fleet.reports.whole_file import write_whole

    with written(path):
        write_whole(path, PAGES[command](document))
