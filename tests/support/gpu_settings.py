"""What is wrong with settings of GPUs."""

from __future__ import annotations

from typing import Any

from gpunode.settings import Problem, SettingsError, settings_from


def problems(data: dict[str, Any]) -> tuple[Problem, ...]:
    """Return the mistakes in a host's settings."""
    try:
        settings_from(data)
    except SettingsError as error:
        return tuple(error.problems)
    return ()
