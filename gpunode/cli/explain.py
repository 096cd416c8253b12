"""`gpunode explain`: what a message means, by its code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from gpunode.base.explained import Page, asked, near, pages
from gpunode.base.findings import ExitCode
from gpunode.base.folding import fold
from gpunode.base.messages import with_code
from gpunode.base.terminal import say
from gpunode.cli.errors import UNKNOWN_CODE
from gpunode.cli.output import columns, is_json, output_option, say_document

# Raised when a key of the document goes away or changes its meaning; a new key raises nothing.
SCHEMA = 1
_LABELS = ("seen as", "about", "why", "remedy", "exit code", "source")
_COLUMN = max(map(len, _LABELS)) + 2


@click.command()
@click.argument("words", metavar="[CODE]", nargs=-1)
@output_option("the pages, all of them where no CODE is given (docs/output.md)", "the same text")
def explain(words: tuple[str, ...]) -> None:
    """Say what a message means that ends in [CODE], why it comes, and what to do.

    CODE may also be what a text says (`driver: loaded module`), or a component, whose codes are listed. Without CODE
    all codes are listed. Exits 0; 64 where there is no such code.
    """
    text = " ".join(words)
    found = asked(text) if text else tuple(pages().values())
    if not found:
        meant = f"; did you mean {' or '.join(near(text))}?" if near(text) else ";"
        said = f"there is no message with the code {text!r}{meant} `gpunode explain` lists all"
        raise click.BadParameter(with_code(said, UNKNOWN_CODE), param_hint="CODE")
    if is_json():
        say_document(document(found))
    elif len(found) == 1:
        say(page_text(found[0], columns()))
    else:
        say(list_text(found, columns()))


def document(found: Sequence[Page]) -> dict[str, Any]:
    """Return what --output json prints."""
    from gpunode.base.document import head

    return {**head(SCHEMA, {"pages": len(found)}, ExitCode.GOOD), "pages": [page.to_json() for page in found]}


def page_text(page: Page, columns: int) -> str:
    """Return a code's page: its summary, the detail, and what is known of it in lines with a label."""
    told = {
        "seen as": page.seen,
        "about": (f"the {page.scope}",) if page.scope else (),
        "why": page.causes,
        "remedy": page.remedies,
        "exit code": (page.exit,),
        "source": (page.source,) if page.source else (),
    }
    parts = [fold(f"{page.code}: {page.summary}", columns, "  "), ""]
    if page.detail:
        parts += [fold(page.detail, columns, ""), ""]
    for label, texts in told.items():
        for at, text in enumerate(texts):
            parts.append(fold(f"{'' if at else label:<{_COLUMN}}{text}", columns, " " * _COLUMN))
    return "\n".join(parts)


def list_text(found: Iterable[Page], columns: int) -> str:
    """Return codes with their summaries, a block for each component."""
    blocks: dict[str, list[str]] = {}
    for page in found:
        blocks.setdefault(page.component, []).append(fold(f"{page.code}: {page.summary}", columns, "  "))
    return "\n\n".join("\n".join(block) for block in blocks.values())
