"""Write to a terminal: what a node prints moves no cursor, rings no bell, and turns no line around.

Escape sequences can write to the clipboard of whoever reads them (OSC 52) or hide what stands before them; marks of
direction make a line read as another one. Files that a node holds are kept as they are: only what is shown is cleaned.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

# A file's text as a probe prints it: base64 hides no password. A digest is no text.
_ENCODED = re.compile(r"(?<=\w=)(?![0-9a-f]{64}\b)[A-Za-z0-9+/]{60,}={0,2}(?=\s|$)")
# User and password in an address: what a node prints is recorded.
CREDENTIALS = re.compile(r"://[^/@\s]+@")
# The colours that click writes, of which pyinfra's own lines have some.
_COLOUR = re.compile(r"(\x1b\[(?:0|1|3[0-7]|9[0-7])m)")


def printable(text: str) -> str:
    """Return `text` with a space in place of each character that is not printed; lines stay."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else " " for letter in text)


def printable_in_colour(text: str) -> str:
    """Return `text` as `printable` does, but leave click's colours."""
    parts = _COLOUR.split(text)
    # What was split at stands at each second place.
    return "".join(part if at % 2 else printable(part) for at, part in enumerate(parts))


def logged(text: str) -> str:
    """Return what may stand in pyinfra's log: `text` with its colours, without the files that a probe has read."""
    return printable_in_colour(_ENCODED.sub(lambda found: f"<{len(found[0])} characters of base64>", text))


def say(text: str, err: bool = False, nl: bool = True) -> None:
    """Print `text`, cleaned; `err`: to standard error, `nl`: with an end of line."""
    # Late: nodes have no click, and a simulated nvidia-smi there imports this module.
    import click

    click.echo(printable(text), err=err, nl=nl)


def say_coloured(text: str) -> None:
    """Print `text`, in which the colours are our own: what a node said was cleaned before they came."""
    import click

    click.echo(printable_in_colour(text))


# Standard output is for results: `gpunode drift --json INVENTORY | jq` reads one document there, and nothing else.
_OUTPUT, _ERRORS = 1, 2
_has_results = True


def has_no_results() -> None:
    """Say that this process prints no result: its standard output is anybody's, and what others print stays there."""
    global _has_results
    _has_results = False


@contextmanager
def kept_for_results() -> Iterator[None]:
    """Send to standard error what somebody else's code prints meanwhile, and what the programs print that it starts."""
    if not _has_results:
        yield
        return
    with redirect_stdout(sys.stderr), _descriptor_redirected():
        yield


@contextmanager
def _descriptor_redirected() -> Iterator[None]:
    # Where a stream is closed when Python begins, its descriptor may be any other file's by now.
    if sys.__stdout__ is None:
        yield
        return
    # What was printed before goes where it belongs.
    sys.__stdout__.flush()
    kept = os.dup(_OUTPUT)
    try:
        if sys.__stderr__ is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, _OUTPUT)
            os.close(nowhere)
        else:
            os.dup2(_ERRORS, _OUTPUT)
        yield
    finally:
        # What was written to Python's own stream meanwhile is not to come to the results later.
        sys.__stdout__.flush()
        os.dup2(kept, _OUTPUT)
        os.close(kept)
