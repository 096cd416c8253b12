"""Settings of a cluster that cannot be had together: what is refused, for tests/cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpunode.settings import SettingsError, check_hosts
from tests.support.messages import unnamed


def refused(data: dict[str, Any], names: Sequence[str] = ()) -> list[str]:
    """Return the keys of a cluster's node that are refused, and behind them what no message names of `names`."""
    try:
        check_hosts({"gpu-1": {**data, "kubernetes": {"enabled": True, **data.get("kubernetes", {})}}})
    except SettingsError as error:
        messages = "\n".join(str(problem) for problem in error.problems)
        return [*(problem.key for problem in error.problems), *unnamed(messages, *names)]
    return []
