"""A node with one GPU beside what nvidia-smi's log and the plugin's MPS daemon say of it, for tests and cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpunode.components.mig.state import ComputeInstance, GpuInstance, Mig, MigGpu
from gpunode.components.mps.plugin import parse_plugin_mps
from gpunode.system.health import Health
from tests.hardware.compared import Comparison, comparisons, of_daemon
from tests.hardware.log import Log, LoggedGpu
from tests.support.verify import GOOD, GPU

LOGGED = LoggedGpu(
    GPU.uuid, GPU.name, GPU.pci_address, "2330", GPU.memory_mib, "Disabled", "Disabled", GPU.compute_mode,
    GPU.persistence_mode, 0, 0, False, False,
)  # fmt: skip
SECOND = replace(LOGGED, uuid="GPU-2", pci_address="0000:2a:00.0")
LOG = Log("580.95.05", "13.0", (LOGGED,))
WHOLE = MigGpu(0, GPU.uuid, GPU.pci_address, "2330", GPU.name, "Disabled", "Disabled", ())
NODE = replace(
    GOOD, health=Health(0, (replace(GOOD.health.gpus[0], uncorrected_errors_ever=0),), (), log_read=True),
    mig=Mig("ok", None, (WHOLE,)),
)  # fmt: skip
_DAEMON = Path(__file__).parents[1] / "unit/data/hardware-mps"
_DIVIDED = replace(WHOLE, instances=(GpuInstance(3, 0, "1g.10gb", 0, 1, (ComputeInstance(0, 0, "1g.10gb", 0, 1),)),))


def differing(log: Log = LOG, divided: bool = False) -> list[Comparison]:
    """Return on what gpunode and nvidia-smi's log do not agree; each of the 19 facts is looked at."""
    node = replace(NODE, mig=Mig("ok", None, (_DIVIDED,))) if divided else NODE
    assert len([*comparisons(NODE, LOG)]) == 19
    return [each for each in comparisons(node, log) if not each.agrees]


def of_plugin(old: str = "", new: str = "") -> list[str]:
    """Return in what the plugin's daemon is not as it was told, its server on one GPU and on two; a text is changed."""
    one, second = (path.read_text() for path in sorted(_DAEMON.iterdir()))
    readings = [parse_plugin_mps(text.splitlines()) for text in (one.replace(old, new), one.replace(old, new) + second)]
    found = [[each.what for each in of_daemon(NODE, reading) if not each.agrees] for reading in readings]
    assert found[0] == found[1]
    return found[0]
