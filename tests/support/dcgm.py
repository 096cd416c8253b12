"""DCGM on a node as it is desired."""

from __future__ import annotations

from typing import Any

from gpunode.components.dcgm.decide import Desired
from gpunode.components.dcgm.state import ENGINE_FILE, PATHS, Dcgm, DcgmHealth, DcgmUnit, variables
from gpunode.settings import Settings, settings_from
from gpunode.system.service import ServiceState
from tests.support.verify import DATA

ASKED: dict[str, Any] = {"enabled": True, "exporter": {"enabled": True, "address": "10.0.0.7"}}
EXPORTER_PACKAGE, VERSION = "datacenter-gpu-manager-exporter", "1:4.5.3-1"
UP = DcgmUnit(active=True, enabled=True, service=ServiceState("running"))
HEALTHY = DcgmHealth("Healthy")


def settings(**own: Any) -> Settings:
    return settings_from({**DATA, "dcgm": {**ASKED, **own}})


def desired(cuda: int = 13, **own: Any) -> Desired:
    return Desired(settings(**own).dcgm, cuda)


def right(of: Desired) -> Dcgm:
    """Return a node as it is desired."""
    exporter = of.settings.exporter
    told = tuple(sorted(variables(exporter).items())) if exporter.enabled else ()
    own = [(name, VERSION) for name in of.packages]
    own += [(EXPORTER_PACKAGE, "4.8.2-1")] if exporter.enabled else []
    return Dcgm(
        packages=tuple(sorted(own)),
        engine=UP,
        exporter=UP if exporter.enabled else None,
        variables=told,
        told=told,
        configured=told,
        files=PATHS if exporter.enabled else (ENGINE_FILE,),
        health=HEALTHY if of.settings.health else None,
    )


RIGHT = right(desired())
