"""Can the node's GPUs be shared as the device plugin is asked to share them?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpunode.base.verdicts import Refusal
from gpunode.components.driver.flavour import named
from gpunode.settings import Settings
from gpunode.settings.cluster.features import mps_clients_before_turing
from gpunode.system.pci import PciGpu

# Compute capability below 7.5.
_BEFORE_TURING = frozenset({"fermi", "kepler", "maxwell", "pascal", "volta"})


def device_plugin_refusals(settings: Settings, gpus: Sequence[PciGpu]) -> Iterator[Refusal]:
    """Refuse more MPS replicas than the plugin grants an old GPU: its pods would not start."""
    sharing = settings.sharing
    if not settings.kubernetes.enabled or sharing.strategy != "mps":
        return
    most, source = mps_clients_before_turing()
    desired = max(sharing.replicated.values(), default=0)
    old = next((gpu for gpu in gpus if gpu.generation in _BEFORE_TURING), None)
    if old is not None and desired > most:
        yield Refusal(
            "device_plugin",
            f"sharing asks for {desired} MPS replicas, and the device plugin grants {named(old)} {most} at most",
            f"{source} (gpunode/data/device_plugin.yaml)",
            f"set sharing.replicas to {most} or less, or sharing.strategy to 'time-slicing'",
        )
