"""Validate the settings of all hosts at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
    problems += _at_odds(found)
    if any(settings.kubernetes.enabled for settings in found.values()):
        from gpunode.settings.cluster.agreement import disagreements

        problems += disagreements(found)
    if problems:
        raise SettingsError(problems)
    return found


def _at_odds(settings: Mapping[str, Settings]) -> Iterator[Problem]:
    """Return the hosts whose limit on parallel disruption is not the first host's: it is one for the whole run."""
    limits = {host: found.disruption.max_parallel for host, found in settings.items()}
    first = next(iter(limits.items()), None)
    for host, limit in limits.items():
        if first is not None and limit != first[1]:
            message = f"must be one number for all hosts of a run; {first[0]} has {first[1]}"
            yield Problem("disruption.max_parallel", str(limit), message, host=host)
