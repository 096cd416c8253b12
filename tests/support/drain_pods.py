"""Why a pod holds up the drain of its node, by the settings and budgets that are named."""

from __future__ import annotations

import json
from typing import Any

from gpunode.kubernetes.drain.commands import blocking, parse_budgets, parse_pods
from gpunode.settings.kubernetes import DrainSettings
from tests.support.simulated_node import BUDGET, pod

NAMES = ("kubernetes.drain.force", "delete_emptydir_data", "has not ended", "several", "budget web")


def why(
    fields: dict[str, Any], budgets: tuple[dict[str, Any], ...] = (), force: bool = False, emptydir: bool = False
) -> list[str] | None:
    """Return what is named of a pod with these fields, beside budgets with those; None where it blocks nothing."""
    pods = parse_pods(json.dumps({"items": [pod("a", **fields)]}))
    found = parse_budgets(json.dumps({"items": [{**BUDGET, **each} for each in budgets]}))
    desired = DrainSettings.model_validate({"force": force, "delete_emptydir_data": emptydir})
    text = "".join(blocking(pods, found, desired))
    return [each for each in NAMES if each in text] if text else None
