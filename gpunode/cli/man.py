"""`gpunode man`: the manual pages of all commands, made from what `--help` says."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from gpunode.base.findings import ExitCode
from gpunode.base.terminal import say
from gpunode.cli.errors import NOT_WRITTEN, end


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
def man(directory: Path) -> None:
    """Write a manual page for each command into DIRECTORY, which is made where it is not there.

    \b
      gpunode man ~/.local/share/man/man1
      man gpunode-drift

    `man` finds them where the folder above DIRECTORY is one of those that `manpath` prints; `man -l FILE` reads one
    wherever it is. Pages of the same names are written anew: do so after an upgrade.

    There is no --output: the pages are files.

    Exit status: 0 written, 1 they could not be written, 64 usage.
    """
    from gpunode.cli import gpunode, man_page

    pages = man_page.pages(gpunode, datetime.now(UTC).date().isoformat())
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            (directory / name).write_text(text, encoding="ascii")
    except OSError as error:
        where = error.filename or directory
        said = f"cannot write {where}: {error.strerror}; name a DIRECTORY that you may write into"
        end(said, NOT_WRITTEN, ExitCode.ERROR)
    say(f"{len(pages)} pages in {directory}; begin with: man -l {directory / 'gpunode.1'}")
