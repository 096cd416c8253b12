"""The text of a page: one HTML file with its styles, its script and its data, of which nothing is fetched.

The data are JSON, packed by gzip, in base64: no value of a node's stands in the page as text of HTML or JavaScript, but
in the plain table, where it is escaped. A browser that may run no script shows that table. The page's policy
(Content-Security-Policy) lets this one script and this one style in, by their digests, and nothing else.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpunode.base.folding import folded_first
from gpunode.base.messages import Scope
from gpunode.fleet.page import views
from gpunode.fleet.page.view import (
    COSTS,
    Item,
    View,
    cleaned,
    costs,
    counted,
    counts,
    differences,
    in_words,
    indexed,
    map_rows,
)

_HERE = Path(__file__).parent
# How many rows of names the plain table tells of a difference.
_NAMES = 6
_SCRIPTS = ("data.js", "filters.js", "map.js", "panel.js", "start.js")
# What the plain table may take of the page's 3 MB, in characters.
PLAIN_ROOM = 600_000
# What one text may take there: a node may say anything, at any length.
PLAIN_TEXT = 1_000
_PAGES = Environment(
    loader=FileSystemLoader(_HERE),
    undefined=StrictUndefined,
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


# A command's name -> what makes the view of its JSON document.
_VIEWS = {"drift": views.drift_view, "plan": views.plan_view, "rollout": views.rollout_view}


def document_page(command: str, document: Mapping[str, Any]) -> str:
    """Return the page of the JSON document of `gpunode drift`, `plan` or `rollout`."""
    return page(_VIEWS[command](cleaned(document)))


def page(view: View) -> str:
    """Return the text of the file."""
    by_kind = counts(view)
    style, script = _asset("page.css"), '(() => {\n"use strict";\n' + "".join(map(_asset, _SCRIPTS)) + "})();\n"
    plain, left = _plain(view)
    return _PAGES.get_template("page.html").render(
        view=view,
        heading=f"{view.title} of {view.subject}" if view.subject else view.title,
        at=_time(view.at),
        counts=[(kind, by_kind.get(kind.name, 0)) for kind in view.kinds],
        costs=costs(view) if view.costs else (),
        plain=plain,
        left=left,
        counted=counted,
        COSTS=COSTS,
        style=style,
        script=script,
        style_digest=_digest(style),
        script_digest=_digest(script),
        early=_asset("early.js"),
        early_digest=_digest(_asset("early.js")),
        data=_packed(_data(view)),
    )


def _data(view: View) -> dict[str, Any]:
    """Return what the script reads: numbers stand for kinds, columns and items, each of which is told once."""
    known: dict[tuple[Item, str | None], int] = {}
    rows = [
        {
            "label": row.label,
            "hosts": row.hosts,
            "scope": row.scope,
            "kind": view.ranks[row.kind],
            "cells": [-1 if kind is None else view.ranks[kind] for kind in row.cells],
            "items": indexed(row.items, known),
            "good": indexed(row.good, known),
        }
        for row in map_rows(view)
    ]
    return {
        "kinds": [[kind.name, kind.mark, kind.colour, kind.meaning, kind.is_quiet] for kind in view.kinds],
        "columns": view.columns,
        "costs": COSTS,
        "heal": view.heal,
        "heal_all": view.heal_all,
        "order": [host.name for host in view.hosts if host.scope is Scope.NODE],
        "items": [
            [item.component, view.ranks[item.kind], item.what, item.actual, item.desired, item.cost, since, item.told]
            for item, since in known
        ],
        "commands": [item.commands for item, _ in known],
        "rows": rows,
    }


def _packed(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # No time in it: the same document makes the same page.
    return base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()


def _plain(view: View) -> tuple[list[tuple[Item, str, str]], int]:
    """Return (item, sign, hosts) of each difference that there is room for, and how many are left out."""
    found, room = [], PLAIN_ROOM
    every = differences(view)
    for whole, names, scope in every:
        item, named = _cut(whole), folded_first(names, _NAMES)
        takes = len(named) + sum(len(text or "") for text in (item.what, item.actual, item.desired))
        takes += sum(len(text) for _, text in item.told) + 300
        # One that is too much by itself leaves its room to those behind it.
        if takes > room:
            continue
        room -= takes
        many = f" ({counted(len(names), 'host')})" if scope is Scope.NODE else ""
        found.append((item, view.kind(item.kind).mark, f"{named}{many}"))
    return found, len(every) - len(found)


def _cut(item: Item) -> Item:
    """Return an item whose texts are short enough for the plain table, each with how long it is where it was cut."""

    def cut(text: str) -> str:
        return text if len(text) <= PLAIN_TEXT else f"{text[:PLAIN_TEXT]}… (cut: it has {len(text):,} characters)"

    return replace(
        item,
        what=cut(item.what),
        actual=item.actual and cut(item.actual),
        desired=item.desired and cut(item.desired),
        told=tuple((label, cut(text)) for label, text in item.told),
    )


def _time(at: str | None) -> tuple[str, str] | None:
    """Return a time as a machine reads it, and as a person does; None where none is told."""
    if at is None:
        return None
    return datetime.fromisoformat(at).astimezone(UTC).isoformat(timespec="seconds"), in_words(at)


@cache
def _asset(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return what the policy names a script or a style by."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
