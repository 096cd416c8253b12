"""The packages that make up the driver: which a node shall have, which are there, and what apt would do to them."""

from __future__ import annotations

from gpunode.packages.driver_packages.behind import ModuleBehind, module_behind
from gpunode.packages.driver_packages.choice import (
    NotInstallable,
    Offers,
    chosen,
    come_along,
    parse_offers,
    pin_text,
    retained_packages,
)
from gpunode.packages.driver_packages.installed import DriverPackages, parse_driver_packages, pinned_by_apt
from gpunode.packages.driver_packages.names import (
    COMPANIONS,
    FOREIGN,
    GLOBS,
    KERNEL_GLOBS,
    OWN,
    belongs,
    brings_kernels,
    driver_branch,
    is_fabric_manager,
    is_imex,
)
from gpunode.packages.driver_packages.simulation import Simulation, gate, left_behind, parse_simulation
from gpunode.packages.driver_packages.sources import (
    archive_components,
    driver_source,
    further_groups,
    holds_kernels,
    leftovers,
    module_stream,
    of_another_source,
    package_set,
    resolve_for_os,
    unversioned_packages,
)
from gpunode.packages.driver_packages.taken_away import taken_away

__all__ = [
    "COMPANIONS",
    "FOREIGN",
    "GLOBS",
    "KERNEL_GLOBS",
    "OWN",
    "DriverPackages",
    "ModuleBehind",
    "NotInstallable",
    "Offers",
    "Simulation",
    "archive_components",
    "belongs",
    "brings_kernels",
    "chosen",
    "come_along",
    "driver_branch",
    "driver_source",
    "further_groups",
    "gate",
    "holds_kernels",
    "is_fabric_manager",
    "is_imex",
    "left_behind",
    "leftovers",
    "module_behind",
    "module_stream",
    "of_another_source",
    "package_set",
    "parse_driver_packages",
    "parse_offers",
    "parse_simulation",
    "pin_text",
    "pinned_by_apt",
    "resolve_for_os",
    "retained_packages",
    "taken_away",
    "unversioned_packages",
]
