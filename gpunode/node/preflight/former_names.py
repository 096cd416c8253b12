"""Which settings have their former names?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.codes import preflight
from gpunode.base.verdicts import Caution
from gpunode.settings import Settings, component_models


def former_names(settings: Settings) -> Iterator[Caution]:
    """Tell of each setting that host data gives by a name that goes with the next release."""
    for name in component_models():
        for former, now in getattr(settings, name).by_former_name:
            reason = f"{name}.{former} is called {name}.{now} now, and the next release does not know the old name"
            remedy = f"write {name}.{now} in the host's data"
            yield Caution(name, reason, "CHANGELOG.md", remedy, preflight("former-name"))
