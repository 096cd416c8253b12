"""Settings of the command line (`--set driver.version=580.95.05`), which count before all that an inventory says.

The environment holds them, so that the children of a command (pyinfra, processes that read nodes) have them, too. With
--limit they are the settings of those hosts alone, but the settings that a run has one of are for all hosts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping
from fnmatch import fnmatch
from functools import cache
from typing import Any

from gpunode.base.errors import CodedError
from gpunode.base.messages import mistake

# The mapping, and the patterns of the hosts that it is for (none: all of them), as JSON.
SET, LIMIT = "GPUNODE_SET", "GPUNODE_SET_LIMIT"
# What a run has one of, whichever hosts it is limited to.
_OF_A_RUN = {"disruption": ("max_parallel",)}


class OverrideError(CodedError, ValueError):
    """Say what is wrong with a word behind --set, and what is allowed."""

    code = mistake(
        "settings.override", "The value of --set is not a setting with a value.",
        "It has the form COMPONENT.SETTING=VALUE; lists and mappings are JSON.",
        remedy="write it as the message says; docs/settings.md lists all settings", exit="64",
    )  # fmt: skip


def given() -> Mapping[str, Any]:
    """Return what --set gave, component -> settings; empty where nothing was given."""
    found: Mapping[str, Any] = _read(SET, os.environ.get(SET), dict)
    return found


def given_for(name: str, groups: Collection[str], every: Collection[str]) -> Mapping[str, Any]:
    """Return what --set gave for a host; where --limit leaves it out, only what a run has one of.

    groups: the host's own; every: all groups of the inventory, for a pattern that names one is no host's
    """
    if not limit() or any(each in groups if each in every else fnmatch(name, each) for each in limit()):
        return given()
    of_a_run = {name: _those(given().get(name), keys) for name, keys in _OF_A_RUN.items()}
    return {name: found for name, found in of_a_run.items() if found}


def _those(settings: Any, keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key in keys} if isinstance(settings, dict) else {}


def limit() -> tuple[str, ...]:
    """Return the patterns of the hosts that --set is for; none: it is for all of them."""
    return tuple(map(str, _read(LIMIT, os.environ.get(LIMIT), list)))


def environment() -> dict[str, str]:
    """Return the variables that have a command on another machine find what was given here."""
    return {name: os.environ[name] for name in (SET, LIMIT) if name in os.environ}


@cache
def _read(variable: str, text: str | None, kind: type[Any]) -> Any:
    try:
        found = json.loads(text) if text else kind()
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, kind):
        what = "mapping" if kind is dict else "list"
        raise OverrideError(f"the environment variable {variable} holds no JSON {what}: unset it, and use --set")
    return found
