"""How a command prints: the modes that --output names, and what each of them does to results, talk and colours.

Results go to standard output. Talk is what happens on the way (progress, where a log is, what comes next). An error is
told in every mode, on standard error.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from gpunode.base.findings import ExitCode
from gpunode.base.folding import NARROWEST, UNBOUND
from gpunode.base.terminal import say

VARIABLE = "GPUNODE_OUTPUT"
# Where the mode stands in click's context, which ends with the command.
_MODE, _SHORT = "gpunode.output", "gpunode.output.json"
F = TypeVar("F", bound=Callable[..., Any])


class Mode(StrEnum):
    """Name a way of printing; auto is tty at a terminal, and plain elsewhere."""

    AUTO = "auto"
    TTY = "tty"
    PLAIN = "plain"
    QUIET = "quiet"
    JSON = "json"


def output_option(json: str, quiet: str, short: bool = False) -> Callable[[F], F]:
    """Give a command the option --output, and `--json` where that is `short` for one of its modes.

    json, quiet: what the command prints then, as its help says it
    """
    told = (
        "How to print. auto: tty at a terminal, else plain; tty: colours, folded lines, a live display; plain: none of "
        f"these, one line per step; quiet: {quiet}, and errors; json: {json}, all talk on standard error."
    )
    modes = click.option(
        "--output", type=click.Choice([each.value for each in Mode]), default=Mode.AUTO.value, show_default=True,
        envvar=VARIABLE, show_envvar=True, expose_value=False, callback=_set_mode, help=told,
    )  # fmt: skip
    alone = click.option(
        "--json", is_flag=True, expose_value=False, callback=_set_short, help="The same as --output json."
    )

    def give(command: F) -> F:
        return modes(alone(command) if short else command)

    return give


def _set_mode(context: click.Context, option: click.Parameter, value: str) -> None:
    context.meta[_MODE] = Mode(value)
    _settle(context)


def _set_short(context: click.Context, option: click.Parameter, given: bool) -> None:
    context.meta[_SHORT] = given
    _settle(context)


def _settle(context: click.Context) -> None:
    """Refuse two modes at once, and have click write colours or none; called for each of the options."""
    named = context.meta.get(_MODE, Mode.AUTO)
    by_hand = context.get_parameter_source("output") is ParameterSource.COMMANDLINE
    if context.meta.get(_SHORT) and by_hand and named is not Mode.JSON:
        raise click.UsageError(f"--json and --output {named} are two ways of printing: leave one out", context)
    found = Mode.JSON if context.meta.get(_SHORT) else named
    # None: as the stream is, a terminal or none.
    of_mode = {Mode.TTY: True, Mode.PLAIN: False}
    context.color = False if no_color() else of_mode.get(found)


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
    return mode() is Mode.TTY or sys.stderr.isatty()


def columns() -> int:
    """Return how many columns there are for the result; nobody folds what no terminal shows."""
    return width() if mode() is Mode.TTY or (mode() is not Mode.PLAIN and sys.stdout.isatty()) else UNBOUND


def width() -> int:
    """Return how wide the terminal is (or COLUMNS), 100 columns where nobody knows."""
    return max(NARROWEST, shutil.get_terminal_size((100, 24)).columns)


def talk(text: str, err: bool = False) -> None:
    """Print what is no result; err: to standard error in each mode, not in that of JSON alone."""
    if not is_quiet():
        say(text, err=err or is_json())


def say_document(document: Mapping[str, Any], indent: int | None = 2) -> None:
    """Print the one document of the mode json; indent: None where it is one line."""
    say(json.dumps(document, indent=indent))


def say_error(message: str, code: str, status: ExitCode, **more: Any) -> None:
    """Print the document of an error, where JSON is asked for; whoever calls ends the command.

    code: what `gpunode explain` knows it by; more: what the document says besides
    """
    from gpunode.base.document import error_document

    if is_json():
        say_document({**error_document(message, code, status), **more})
