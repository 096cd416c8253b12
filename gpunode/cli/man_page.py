"""A tree of commands as manual pages: groff's man macros, which mandoc reads as well.

What a page says is what `--help` says. click-man makes such pages as well, but is one more package on every controller.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import metadata

import click

# How long a line of the source is; the reader's width is the terminal's.
_WIDTH = 78
_NAMES = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}


def pages(root: click.Group, date: str) -> dict[str, str]:
    """Return file name -> text of the manual page of each command, within groups too, but for hidden ones.

    date: the pages' own, as 2026-11-26
    """
    contexts = _contexts(click.Context(root, info_name="gpunode", **root.context_settings))
    return {f"{_name(context)}.1": _page(context, date) for context in contexts}


def _contexts(context: click.Context) -> Iterator[click.Context]:
    yield context
    for inner in _inner(context):
        yield from _contexts(inner)


def _inner(context: click.Context) -> Iterator[click.Context]:
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is not None and not command.hidden:
            yield click.Context(command, info_name=name, parent=context, **command.context_settings)


def _name(context: click.Context) -> str:
    return context.command_path.replace(" ", "-")


def _page(context: click.Context, date: str) -> str:
    command, inner = context.command, list(_inner(context))
    told = inspect.cleandoc(command.help or "").partition("\f")[0]
    summary = told.partition("\n\n")[0]
    short = " ".join(summary.split()).rstrip(".:")
    version = metadata.version("gpunode")
    lines = [
        f'.TH {_escaped(_name(context).upper())} 1 "{date}" "gpunode {version}" "gpunode"',
        ".SH NAME",
        f"{_escaped(_name(context))} \\- {_escaped(short)}",
        ".SH SYNOPSIS",
        f".B {_escaped(context.command_path)}",
        *_filled(" ".join(command.collect_usage_pieces(context))),
        ".SH DESCRIPTION",
        *_description(told),
    ]
    options = [record for each in command.get_params(context) if (record := each.get_help_record(context))]
    lines += [".SH OPTIONS"] if options else []
    for names, text in options:
        # An argument has no help of its own: the description says what it is.
        if not text:
            continue
        lines += [".TP", f".B {_escaped(names)}", *_filled(text)]
    lines += [".SH COMMANDS"] if inner else []
    for each in inner:
        lines += [".TP", f".BR {_escaped(_name(each))} (1)", *_filled(each.command.get_short_help_str(200))]
    others = inner or [context.parent] if context.parent else []
    named = [f".BR {_escaped(_name(each))} (1)" for each in others if each is not None]
    lines += [".SH SEE ALSO", *named] if named and not inner else []
    return "\n".join(lines) + "\n"


def _description(help_text: str) -> Iterator[str]:
    """Yield a command's help: paragraphs filled, those behind `\\b` as they stand."""
    is_first = True
    for paragraph in re.split(r"\n{2,}", help_text):
        if not paragraph.strip():
            continue
        if not is_first:
            yield ".PP"
        is_first = False
        if paragraph.startswith("\b\n"):
            kept = textwrap.dedent(paragraph.removeprefix("\b\n"))
            yield from (".nf", ".RS 2", *map(_line, map(_escaped, kept.splitlines())), ".RE", ".fi")
        else:
            yield from _filled(paragraph)


def _filled(text: str) -> list[str]:
    """Return a paragraph as lines of the source, `commands` in bold."""
    bold = re.sub(r"\\\(ga(.+?)\\\(ga", r"\\fB\1\\fR", _escaped(" ".join(text.split())))
    return [_line(line) for line in textwrap.wrap(bold, _WIDTH, break_long_words=False, break_on_hyphens=False)]


def _line(text: str) -> str:
    # A line that begins so is a request.
    return f"\\&{text}" if text.startswith((".", "'")) else text


def _escaped(text: str) -> str:
    """Return text as it is printed, in ASCII: a hyphen is one that can be pasted."""
    found = "".join(_NAMES.get(letter, letter) for letter in text)
    return "".join(letter if letter.isascii() else f"\\[u{ord(letter):04X}]" for letter in found)
