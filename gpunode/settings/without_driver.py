"""What cannot be asked for where the driver is to be absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpunode.settings.component import Component
from gpunode.settings.driver import DriverSettings
from gpunode.settings.mig import MigSettings
from gpunode.settings.problems import Problem, written

_NEEDS = ("cuda", "toolkit", "mps")


def contradictions(parts: Mapping[str, Component]) -> Iterator[Problem]:
    """Yield a problem for each component that is asked for and needs the driver that is to be removed."""
    driver, mig = parts.get("driver"), parts.get("mig")
    if not isinstance(driver, DriverSettings) or not driver.removes:
        return
    for name in _NEEDS:
        if getattr(parts.get(name), "enabled", False):
            message = (
                f"needs the driver, which driver.source = 'absent' removes; set {name}.enabled = False (what is there "
                "of it stays), or keep the driver"
            )
            yield Problem(f"{name}.enabled", "True", message)
    if isinstance(mig, MigSettings) and mig.config is not None:
        message = "needs the driver, which driver.source = 'absent' removes; leave it out, or keep the driver"
        yield Problem("mig.config", written(mig.config), message)
    if isinstance(mig, MigSettings) and mig.config_from_label:
        message = "needs the driver, which driver.source = 'absent' removes; leave it out, or keep the driver"
        yield Problem("mig.config_from_label", "True", message)
