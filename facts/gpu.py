"""GPUs: what nvidia-smi lists, health, MIG, MPS, power limits, and DCGM, which watches them."""

from __future__ import annotations

from gpunode.base.probe import Probe, shell_text
from gpunode.components.dcgm import state as dcgm
from gpunode.components.mig import boot
from gpunode.components.mig import state as mig
from gpunode.components.mig.smi import LISTS, parse_mig
from gpunode.components.mps import plugin
from gpunode.components.mps import state as mps
from gpunode.components.mps.change import APPLY, PATHS
from gpunode.components.mps.daemon import FOLDER
from gpunode.components.mps.daemon import UNITS as FILES
from gpunode.components.power import state as power
from gpunode.facts.base import UNITS, NodeFact, probe_command
from gpunode.facts.packages import PACKAGES
from gpunode.system import gpu, gpu_users, health
from gpunode.system.running_boot import RECORD as REBOOTS
from gpunode.system.smi import SMI


class GpuUsers(NodeFact[gpu_users.GpuUsers]):
    """Read the processes on each GPU, and which running container has which GPU or MIG device.

    Of containerd, docker, podman and CRI-O, from the specification by which each container was started. No part of
    what drift and the verdict read: one asks for it by hand, and `verify.vector_add_pods` does while its pods run.
    """

    parse = staticmethod(gpu_users.parse_gpu_users)

    def command(self, look: int = 0) -> Probe:
        """Return the probe's command; `look` tells one look from the next, each of which is asked anew."""
        specifications = " ".join(gpu_users.SPECIFICATIONS)
        text = shell_text("system/gpu_users", shared=(SMI,), SPECIFICATIONS=specifications, LOOK=str(look))
        return probe_command(text)


class Gpus(NodeFact[gpu.Gpus]):
    """Read nvidia-smi's rows."""

    probe = shell_text("system/gpu", shared=(SMI,))
    parse = staticmethod(gpu.parse_gpus)


class Health(NodeFact[health.Health]):
    """Read what the GPUs say of their memory, and the kernel log's Xids since the boot."""

    probe = shell_text("system/health", shared=(SMI.of("remapped"),))
    parse = staticmethod(health.parse_health)


_LISTS = "\n".join(f"{key} {arguments}" for key, arguments in LISTS.items())


class Mig(NodeFact[mig.Mig]):
    """Read MIG's modes, instances and own lists by nvidia-smi."""

    probe = shell_text("components/mig/smi", shared=(SMI,), LISTS=_LISTS)
    parse = staticmethod(parse_mig)


class MigBoot(NodeFact[boot.MigBoot]):
    """Read gpunode's unit for MIG, its script, and the layout that it brings back."""

    probe = shell_text(
        "components/mig/boot",
        shared=(UNITS.of(boot.NAME),),
        SERVICE=boot.UNIT,
        SCRIPT=boot.SCRIPT,
        RECORD=boot.RECORD,
        REBOOTS=REBOOTS,
        NAME=boot.NAME,
    )
    parse = staticmethod(boot.parse_mig_boot)


# Globs find what systemd has loaded; a name would have it loaded.
_DAEMONS = ("nvidia-mp[s].service", "nvidia-mps@*.service")


class Mps(NodeFact[mps.Mps]):
    """Read the daemons of gpunode's units; whether one lives is told by its answer alone: sockets stay behind."""

    probe = shell_text(
        "components/mps/state", shared=(UNITS.of(*_DAEMONS),), FOLDER=FOLDER, FILES=" ".join((*FILES, APPLY, *PATHS))
    )
    parse = staticmethod(mps.parse_mps)


class PluginMps(NodeFact[plugin.PluginMps]):
    """Read settings, servers and clients of the device plugin's daemons; start no program where there is no daemon."""

    probe = shell_text("components/mps/plugin", shared=(SMI,), ROOT=plugin.ROOT)
    parse = staticmethod(plugin.parse_plugin_mps)


class Power(NodeFact[power.Power]):
    """Read gpunode's unit and script of power limits and clocks, and which clocks were locked."""

    probe = shell_text(
        "components/power/state", shared=(UNITS.of(power.NAME),), SCRIPT=power.SCRIPT, UNIT=power.UNIT, NOTE=power.NOTE
    )
    parse = staticmethod(power.parse_power)


class Dcgm(NodeFact[dcgm.Dcgm]):
    """Read DCGM's packages and units, by what its exporter runs, and the GPUs' health where gpunode has it watched."""

    probe = shell_text(
        "components/dcgm/state",
        shared=(PACKAGES, UNITS.of(dcgm.ENGINE, dcgm.EXPORTER)),
        FILES=" ".join(dcgm.PATHS),
        ENGINE_FILE=dcgm.ENGINE_FILE,
        EXPORTER_FILE=dcgm.EXPORTER_FILE,
        PODS=dcgm.PODS,
    )
    parse = staticmethod(dcgm.parse_dcgm)
