"""The two sides of the driver's decision: what the settings come to on this node, and what the node is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpunode.base.decision import target_digest
from gpunode.base.disruption import Disruption
from gpunode.base.tables import DriverSource
from gpunode.components.driver.flavour import chosen_flavour
from gpunode.components.driver.state import DriverState
from gpunode.packages.driver_packages.names import belongs
from gpunode.packages.driver_packages.sources import driver_source, further_groups, holds_kernels, package_set
from gpunode.settings.driver import DriverSettings
from gpunode.system.boot import Boot
from gpunode.system.gpu import Gpus
from gpunode.system.health import Health
from gpunode.system.operating_system import OperatingSystem
from gpunode.system.pci import PciGpus

if TYPE_CHECKING:
    from gpunode.settings import Settings


@dataclass(frozen=True)
class Desired:
    """Hold what the driver is to be on a node, and what a change of it may disturb.

    settings: the driver's own, with what they leave to the distribution
    flavour: open or proprietary
    source: where its packages come from; None where gpunode installs none
    packages: package -> rule (branch or version; None: any) of that source
    holds_kernels: whether kernels are held with it
    parameters: what the module is to be loaded with; of a driver that is only verified, nothing
    """

    settings: DriverSettings
    flavour: str
    source: DriverSource | None = None
    packages: Mapping[str, str | None] = field(default_factory=dict)
    holds_kernels: bool = False
    allowed: Disruption = Disruption.restart
    parameters: Mapping[str, str] = field(default_factory=dict)

    @property
    def rule(self) -> str | None:
        """Return the version, else the branch; None where any will do."""
        return self.settings.version or self.settings.branch

    def target(self, boot: Boot, driver: DriverState) -> str:
        """Return the digest of what a change of the driver is to reach, with what decides whether that can work.

        Another kernel, its headers, what builds the module, a GPU that nouveau gave up, or a key are a new try.
        """
        settings, kernel = self.settings, boot.next_kernel
        lacks_headers = kernel is not None and not kernel.headers
        lacking = (lacks_headers, boot.build_tools) if settings.kernel_headers != "install" else ()
        unknown_key = bool(boot.secure_boot) and not boot.key_enrolled
        asked = (self.rule, self.flavour, sorted(self.packages.items()), settings.runfile_sha256, settings.dkms)
        node = (boot.next_release, boot.compiler, lacking, unknown_key, driver.nouveau_bound)
        return target_digest(repr((asked, node)))

    def lacks(self, actual: DriverState) -> bool:
        """Say whether a package of the driver's is missing, by its name, so that a run brings it."""
        names = dict(actual.packages)
        beside = self.source.beside if self.source is not None else ()
        return any(belongs(name) and name not in (*names, *beside) for name in self.packages)


@dataclass(frozen=True)
class Actual:
    """Hold what the driver's decision goes by, of a node."""

    driver: DriverState
    boot: Boot
    pci: PciGpus
    gpus: Gpus
    health: Health
    system: OperatingSystem

    @property
    def has_gpu(self) -> bool:
        """Say whether there is a GPU, as Machine does."""
        return bool(self.pci.gpus) or self.system.tegra

    @property
    def is_image(self) -> bool:
        """Say whether this is an image that is being made: no GPU, no kernel, and nothing that a module were for."""
        return not self.has_gpu and self.driver.module_version is None and self.boot.next_kernel is None


def desired(settings: Settings, system: OperatingSystem, boot: Boot, pci: PciGpus) -> Desired:
    """Return what the driver is to be on a machine; the settings are those of `resolve_for_os`."""
    desired = settings.driver
    flavour, source = chosen_flavour(settings, pci.gpus, system), driver_source(settings, system, boot)
    further = further_groups(settings, pci.groups)
    # Of a system that gpunode does not know nobody has said a branch.
    rule = desired.version or desired.branch
    return Desired(
        settings=desired,
        flavour=flavour,
        source=source,
        packages=package_set(desired, source, flavour, further, boot) if source is not None and rule else {},
        holds_kernels=holds_kernels(settings, system, boot),
        allowed=Disruption[settings.disruption.allow],
        parameters=settings.module_parameters if desired.installs else {},
    )
