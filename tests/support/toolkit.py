"""Helpers and data for the tests of toolkit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpunode.base.template import rendered
from gpunode.components.runtimes.toolkit.configuration import Difference, asked_of, differences, render
from gpunode.components.runtimes.toolkit.state import PACKAGES, CdiSpecification
from gpunode.settings import settings_from
from tests.support.verify import GOOD

LOADED = "580.95.05"


OWN = CdiSpecification("/etc/cdi/nvidia.yaml", LOADED, True)


REFRESHED = CdiSpecification("/var/run/cdi/nvidia.yaml", LOADED)


HELD = replace(
    GOOD.toolkit, held=tuple(sorted(PACKAGES)),
    hold_text=rendered("toolkit-preferences", packages=GOOD.toolkit.to_hold),
)  # fmt: skip


def edited(text: str | None, settings: dict[str, Any]) -> str:
    """Return the text of config.toml as these settings ask for it."""
    return render(text, asked_of(settings_from({"toolkit": settings}).toolkit))


def differing(text: str | None, settings: dict[str, Any]) -> tuple[Difference, ...]:
    """Return how config.toml differs from what these settings ask for."""
    return differences(text, asked_of(settings_from({"toolkit": settings}).toolkit))
