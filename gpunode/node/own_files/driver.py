"""What modprobe and dracut are told of the driver's modules, and what keeps its packages still where nobody asks."""

from __future__ import annotations

from gpunode.base import tables
from gpunode.base.disruption import Disruption
from gpunode.base.template import rendered
from gpunode.components.driver.loading import removal_waits
from gpunode.components.driver.services import MODULE
from gpunode.node.machine import Machine
from gpunode.node.preflight import chosen_flavour
from gpunode.packages.driver_packages.sources import driver_source
from gpunode.settings import Settings

SOFTDEP = "/etc/modprobe.d/gpunode-nvidia-uvm.conf"
# Before the toolkit's rule, which links these devices.
UVM_RULE = "/etc/udev/rules.d/70-gpunode-nvidia-uvm.rules"
PARAMETERS = "/etc/modprobe.d/gpunode-nvidia.conf"
BLACKLIST = "gpunode-nouveau.conf"
NOUVEAU = f"/etc/modprobe.d/{BLACKLIST}"
DRACUT = "/etc/dracut.conf.d/gpunode-nouveau.conf"
UMAD = "/etc/modules-load.d/gpunode-nvlink.conf"
PEERMEM = "/etc/modules-load.d/gpunode-peermem.conf"
PATHS = (SOFTDEP, UVM_RULE, PARAMETERS, NOUVEAU, DRACUT, UMAD, PEERMEM)
# The families whose initial file systems dracut makes: an image for any machine has nothing of /etc/modprobe.d in it.
_BY_DRACUT = ("dnf", "dnf5", "zypper")
UMAD_MODULES = ("ib_umad",)


def changes_source(settings: Settings, machine: Machine) -> bool:
    """Say whether a run brings the driver from its source, or takes it away, and so forgets other sources."""
    desired = settings.driver
    if desired.removes:
        return not _removal_waits(settings, machine)
    return desired.enabled and desired.source != "present"


def files(settings: Settings, machine: Machine) -> dict[str, str | None]:
    """Return the files of modules; the settings are those of `resolve_for_os`."""
    desired, system = settings.driver, machine.operating_system
    if not desired.enabled:
        return {}
    if desired.removes:
        return {} if _removal_waits(settings, machine) else dict.fromkeys(PATHS)
    found: dict[str, str | None] = {}
    modules = module_names(settings, machine)
    if desired.source != "present":
        found[PARAMETERS] = (
            rendered("nvidia-parameters.conf", parameters=settings.module_parameters, modules=modules)
            if settings.module_parameters
            else None
        )
    found[NOUVEAU] = rendered("nouveau.conf")
    distribution = tables.distribution(system.id, system.version_id)
    if distribution is not None and distribution.family in _BY_DRACUT:
        found[DRACUT] = rendered("dracut-nouveau.conf")
    # Else nvidia_uvm would be loaded by a run and be gone after the next boot, or be there without its devices.
    found[SOFTDEP] = rendered("nvidia-uvm.conf", modules=modules)
    found[UVM_RULE] = rendered("nvidia-uvm.rules")
    if machine.has_gpu and machine.pci.switch_managers and desired.source != "present":
        found[UMAD] = rendered("modules-load.conf", modules=UMAD_MODULES)
    asked = desired.peermem and machine.has_gpu
    found[PEERMEM] = rendered("modules-load.conf", modules=(MODULE,)) if asked else None
    return found


def _removal_waits(settings: Settings, machine: Machine) -> bool:
    return removal_waits(Disruption[settings.disruption.allow], machine.driver)


def module_names(settings: Settings, machine: Machine) -> list[str]:
    """Return the names by which modprobe loads the module.

    Debian's own packages have it loaded under another name, to which all has to be said, too.
    """
    system = machine.operating_system
    source = driver_source(settings, system, machine.boot)
    if source is None:
        return ["nvidia"]
    return ["nvidia", *sorted({source.modules[chosen_flavour(settings, machine.pci.gpus, system)]} - {"nvidia"})]
