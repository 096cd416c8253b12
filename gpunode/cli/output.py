"""How a command prints: the modes that --output names, and what each of them does to results, talk and colours.

Results go to standard output. Talk is what happens on the way (progress, where a log is, what comes next). An error is
told in every mode, on standard error.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from typing import Any, TextIO, TypeVar

import click
from click.core import ParameterSource

from gpunode.base.folding import NARROWEST, UNBOUND
from gpunode.base.terminal import say

VARIABLE = "GPUNODE_OUTPUT"
# Where the mode stands in click's context, and whether the document is printed: that of the command line, which
# outlives the command's own.
_MODE, _SHORT, _SAID = "gpunode.output", "gpunode.output.json", "gpunode.output.said"
F = TypeVar("F", bound=Callable[..., Any])


class Mode(StrEnum):
    """Name a way of printing; auto is tty at a terminal, and plain elsewhere."""

    AUTO = "auto"
    TTY = "tty"
    PLAIN = "plain"
    QUIET = "quiet"
    JSON = "json"


def output_option(json: str, quiet: str) -> Callable[[F], F]:
    """Give a command the option --output, and --json, which is short for one of its modes.

    json, quiet: what the command prints then, as its help says it
    """
    told = (
        "How to print. auto: tty at a terminal, else plain; tty: colours, folded lines, a live display; plain: none of "
        f"these, one line per step; quiet: {quiet}, and errors; json: {json}, all talk on standard error."
    )
    # Eager: what is wrong with another option is told as these say.
    modes = click.option(
        "--output", type=click.Choice([each.value for each in Mode]), default=Mode.AUTO.value, show_default=True,
        envvar=VARIABLE, show_envvar=True, expose_value=False, callback=_set, is_eager=True, help=told,
    )  # fmt: skip
    alone = click.option(
        "--json", is_flag=True, expose_value=False, callback=_set, is_eager=True,
        help="The same as --output json.",
    )  # fmt: skip
    return lambda command: modes(alone(command))


def _set(context: click.Context, option: click.Parameter, value: str | bool) -> None:
    """Take the mode of --output, or --json; refuse two modes at once, and have click write colours or none."""
    context.meta.update({_SHORT: value} if isinstance(value, bool) else {_MODE: Mode(value)})
    named = context.meta.get(_MODE, Mode.AUTO)
    by_hand = context.get_parameter_source("output") is ParameterSource.COMMANDLINE
    if context.meta.get(_SHORT) and by_hand and named is not Mode.JSON:
        raise click.UsageError(f"--json and --output {named} are two ways of printing: leave one out", context)
    found = Mode.JSON if context.meta.get(_SHORT) else named
    # None: as the stream is, a terminal or none.
    of_mode = {Mode.TTY: True, Mode.PLAIN: False}
    context.color = False if no_color() else of_mode.get(found)


def has_output(command: click.Command) -> bool:
    """Say whether a command knows the modes; of a group, one of its commands may."""
    return isinstance(command, click.Group) or any(option.name == "output" for option in command.params)


def take_mode_of_words(context: click.Context, words: Sequence[str]) -> None:
    """Have JSON printed where a command line asks for it that click could not read, by words or by the variable."""
    named = os.environ.get(VARIABLE)
    options = words[: words.index("--")] if "--" in words else words
    for word, behind in zip(options, [*options[1:], ""], strict=True):
        name, given, value = word.partition("=")
        if name == "--output":
            named = value if given else behind
    if "--json" in options or named == Mode.JSON:
        context.meta[_SHORT] = True


def no_color() -> bool:
    """Say whether colours are unwanted everywhere: NO_COLOR is set and not empty (no-color.org)."""
    return bool(os.environ.get("NO_COLOR"))


def mode() -> Mode:
    """Return the mode of the command that is at work; auto where there is none."""
    context = click.get_current_context(silent=True)
    if context is None:
        return Mode.AUTO
    return Mode.JSON if context.meta.get(_SHORT) else Mode(context.meta.get(_MODE, Mode.AUTO))


def is_json() -> bool:
    """Say whether the result is one JSON document, and no text."""
    return mode() is Mode.JSON


def is_quiet() -> bool:
    """Say whether what is as desired, and all talk, is left out."""
    return mode() is Mode.QUIET


def is_live() -> bool:
    """Say whether a display on standard error may be drawn anew."""
    if mode() in (Mode.PLAIN, Mode.QUIET):
        return False
    return mode() is Mode.TTY or is_terminal(sys.stderr)


def columns() -> int:
    """Return how many columns there are for the result; nobody folds what no terminal shows."""
    return width() if mode() is Mode.TTY or (mode() is not Mode.PLAIN and is_terminal(sys.stdout)) else UNBOUND


def is_terminal(stream: TextIO | None) -> bool:
    """Say whether somebody reads a stream at a terminal; None: it was closed when the program began."""
    return stream is not None and stream.isatty()


def error_columns() -> int:
    """Return how many columns there are for an error, which goes to standard error."""
    return width() if mode() is Mode.TTY or (mode() is not Mode.PLAIN and is_terminal(sys.stderr)) else UNBOUND


def width() -> int:
    """Return how wide the terminal is (or COLUMNS), 100 columns where nobody knows."""
    return max(NARROWEST, shutil.get_terminal_size((100, 24)).columns)


def talk(text: str, err: bool = False) -> None:
    """Print what is no result; err: to standard error in each mode, not in that of JSON alone."""
    if not is_quiet():
        say(text, err=err or is_json())


def say_document(document: Mapping[str, Any], indent: int | None = 2) -> None:
    """Print the one document of the mode json; indent: None where it is one line.

    Its last value may be an iterator of rows with two levels at most: they are printed as they come.
    """
    key = list(document)[-1]
    rows = document[key]
    is_long = isinstance(rows, Iterator)
    text = json.dumps({**document, key: []} if is_long else document, indent=indent)
    # Before it is written: what fails in the middle of it is not to print another one.
    if (context := click.get_current_context(silent=True)) is not None:
        context.meta[_SAID] = True
    if is_long and (first := next(rows, None)) is not None:
        begin, text = text.removesuffix("]\n}"), "\n  ]\n}"
        say(f"{begin}\n    {_indented(first)}", nl=False)
        while some := "".join(f",\n    {_indented(row)}" for row in islice(rows, 1_000)):
            say(some, nl=False)
    say(text)


# json.dumps of a thousand times as many texts takes a tenth of the time, for most are the same.
_text = lru_cache(maxsize=10_000, typed=True)(json.dumps)


def _indented(row: Mapping[str, Any], lead: str = "\n    ") -> str:
    """Return a row as json.dumps writes it with an indent of 2, which it does in C for documents of one line alone."""
    inner = f"{lead}  "
    texts = ((key, _indented(each, inner) if isinstance(each, dict) else _text(each)) for key, each in row.items())
    return "{" + ",".join([f'{inner}"{key}": {text}' for key, text in texts]) + lead + "}"


def is_said() -> bool:
    """Say whether the one document has been printed."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(_SAID))
