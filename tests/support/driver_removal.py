"""Helpers and data for the tests of driver removal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpunode.components.driver.state import DriverState
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.driver import DriverPackages as PackagesFact
from gpunode.facts.driver import DriverSimulation as SimulationFact
from gpunode.packages.driver_packages.installed import DriverPackages
from gpunode.packages.driver_packages.simulation import Simulation
from tests.support.simulated_host import Host
from tests.support.verify import GOOD

PACKAGED = replace(GOOD.driver, packages=(("nvidia-open", "580.95.05-1"),))


ASKED: dict[str, Any] = {"family": "apt", "rollback": "required", "allowed": True}


GOING = Simulation((), (("nvidia-open", "1"),))


def _node(host: Host, driver: DriverState, simulation: Simulation = GOING) -> None:
    host.readings |= {
        DriverFact: driver, PackagesFact: DriverPackages(driver.packages), SimulationFact: simulation,
    }  # fmt: skip
