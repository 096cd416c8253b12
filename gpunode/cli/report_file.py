"""Files that a command writes beside what it prints: refused before the work, and told where they could not be.

The one document of JSON comes behind them, so that it says, and counts in its exit code, which could not be written.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from gpunode.base.findings import ExitCode
from gpunode.cli.errors import NOT_WRITTEN, complain
from gpunode.cli.output import is_json, say_document

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


def unwritten(path: Path | None, write: Callable[[Path], None]) -> tuple[str, ...]:
    """Write a report where its file is asked for; return why it could not be written, nothing where it was."""
    if path is None:
        return ()
    try:
        write(path)
    except OSError as error:
        return (f"{path}: the report was not written: {error.strerror or error}",)
    return ()


def unwritten_page(path: Path | None, command: str, document: Mapping[str, Any]) -> tuple[str, ...]:
    """Write the page of a command's JSON document as a whole, or leave the file as it was; return as above."""
    # Late, as all that only some calls need.
    from gpunode.fleet.page.html import document_page
    from gpunode.fleet.reports.whole_file import write_whole

    return unwritten(path, lambda file: write_whole(file, document_page(command, document)))


def finish(
    document: Mapping[str, Any], why_not: Sequence[str], status: ExitCode, indent: int | None = None
) -> NoReturn:
    """Print the document where JSON is asked for, say which reports could not be written, and end the program.

    It ends with `status`, and with 1 where one could not; indent: of the document, None where it is one line
    """
    status = ExitCode.ERROR if why_not else status
    if is_json():
        errors = [{"error": text, "code": NOT_WRITTEN} for text in why_not]
        say_document({**document, "exit_code": int(status), "errors": errors}, indent)
    for text in why_not:
        complain(text, NOT_WRITTEN)
    sys.exit(status)
