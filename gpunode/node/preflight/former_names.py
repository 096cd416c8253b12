"""Which settings have their former names?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.verdicts import Caution, CautionMessage
from gpunode.settings import Settings, component_models

FORMER_NAME = CautionMessage(
    "former-name",
    "A setting is given by its former name.",
    component="{component}",
    reason="{component}.{former} is now called {component}.{now}, and the next release does not know the old name",
    source="CHANGELOG.md",
    remedy="write {component}.{now} in the host's data",
    detail="The old name still counts in this release.",
)


def former_names(settings: Settings) -> Iterator[Caution]:
    """Warn of each setting that host data gives by a name that goes with the next release."""
    for name in component_models():
        for former, now in getattr(settings, name).by_former_name:
            yield FORMER_NAME(component=name, former=former, now=now)
