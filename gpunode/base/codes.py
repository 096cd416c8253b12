"""Codes of messages: short names that stay, by which `gpunode explain` knows a message whatever a node filled in.

A finding's code follows from its component and from what it is about: `driver.loaded-module`. What varies behind that,
the path of a file say, is no part of it: there are few codes, and a metric may be labelled by them.
"""

from __future__ import annotations

import re
from functools import cache

from gpunode.base.subject import Subject

# Of a finding whose subject has no name of its own; no judge makes one, which a test shows.
OTHER = "other"
# Where the words that people read make a poor name.
_SHORT = {
    Subject.KUBELET: "setting",
    Subject.MPS_DAEMON: "mps-daemon",
    Subject.MIG_MANAGER: "mig-manager",
    Subject.OWN_OBJECTS: "own-objects",
    Subject.CUDA_DEFAULT: "default-version",
    Subject.AT_BOOT: "starts-at-boot",
}
_BEHIND = re.compile(r" \[([a-z0-9-]+\.[a-z0-9-]+)\]$")
_NO_WORD = re.compile(r"[^a-z0-9]+")
# What only leads to the name behind it: `SystemdCgroup of runc`.
_LEADS = re.compile(r"-(of|in)$")


def slug(text: str) -> str:
    """Return a text as a part of a code: lower-case words with hyphens between them."""
    return _NO_WORD.sub("-", text.lower().replace("'s", "")).strip("-")


@cache
def _names() -> tuple[tuple[str, str], ...]:
    """Return (subject, its part of a code), the longest subject first: `CDI specification` is no `CDI`."""
    longest = sorted(Subject, key=len, reverse=True)
    return tuple((str(each), _SHORT.get(each) or _LEADS.sub("", slug(each))) for each in longest)


@cache
def subject_of(what: str) -> str:
    """Return the part of a code that stands for what a finding is about."""
    return next((name for subject, name in _names() if what == subject or what.startswith(f"{subject} ")), OTHER)


def code_of(component: str, what: str) -> str:
    """Return a finding's code: `driver.loaded-module` of `driver` and `loaded module`."""
    return f"{slug(component)}.{subject_of(what)}"


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
