"""Validate the settings of all hosts at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from gpunode.settings.model import Settings, settings_from
from gpunode.settings.problems import Problem, SettingsError


def check_hosts(hosts: Mapping[str, Mapping[str, Any]], foreign: Collection[str] = ()) -> dict[str, Settings]:
    """Return host -> settings; raise one SettingsError that lists every mistake of every host.

    `hosts` maps a host's name to its data, `foreign` are the names in it that are pyinfra's own.
    """
    found: dict[str, Settings] = {}
    problems: list[Problem] = []
    for host, data in hosts.items():
        try:
            found[host] = settings_from(data, foreign)
        except SettingsError as error:
            problems += (replace(problem, host=host) for problem in error.problems)
    if problems:
        raise SettingsError(problems)
    return found
