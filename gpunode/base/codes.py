"""Codes of messages: short names that stay, by which `gpunode explain` knows a message whatever a node filled in.

The code of a finding has its component and what it is about: `driver.loaded-module`. A name that varies, such as the
path of a file, is no part of it: there are few codes, and a metric may be labelled by them.
"""

from __future__ import annotations

import re

_BEHIND = re.compile(r" \[([a-z0-9-]+\.[a-z0-9-]+)\]$")
_NO_WORD = re.compile(r"[^a-z0-9]+")


def slug(text: str) -> str:
    """Return a text as a part of a code: lower-case words with hyphens between them."""
    return _NO_WORD.sub("-", text.lower().replace("'s", "")).strip("-")


def has_code(text: str) -> bool:
    """Say whether a message has its code behind it already."""
    return _BEHIND.search(text) is not None


def with_code(text: str, code: str) -> str:
    """Return a message with its code at its end, of several lines behind the last: `TEXT [CODE]`.

    It is the one form for all messages: what to do comes first, and what looks it up stands apart. No sentence is
    parted by it, such as `3 mistakes:` with the list below.
    """
    return f"{text.rstrip()} [{code}]"


def parted(text: str) -> tuple[str, str | None]:
    """Return a message and the code that `with_code` put at its end; None where there is none."""
    found = _BEHIND.search(text)
    return (text, None) if found is None else (text[: found.start()], found[1])
