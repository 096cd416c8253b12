"""Gpunode's reading of a node beside nvidia-smi's own log: each fact that both have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpunode.node import Node
from tests.hardware.log import Log


@dataclass(frozen=True)
class Comparison:
    """Hold one fact: what it is, and what either side says."""

    what: str
    by_gpunode: str
    by_nvidia_smi: str

    @property
    def agrees(self) -> bool:
        """Say whether both sides say the same."""
        return self.by_gpunode == self.by_nvidia_smi


def comparisons(node: Node, log: Log) -> Iterator[Comparison]:
    """Yield each fact of the node that nvidia-smi's log has, too."""
    yield _compare("GPUs by nvidia-smi", len(node.gpus.gpus), len(log.gpus))
    yield _compare(
        "GPUs on the bus", [gpu.address for gpu in node.pci.gpus], sorted(gpu.pci_address for gpu in log.gpus)
    )
    yield _compare("loaded driver", node.driver.loaded_version, log.driver_version)
    yield _compare("driver's library", node.driver.library_version, log.driver_version)
    by_address = {gpu.address: gpu for gpu in node.pci.gpus}
    health = {gpu.pci_address: gpu for gpu in node.health.gpus}
    layout = {gpu.uuid: gpu for gpu in node.mig.gpus}
    for index, theirs in enumerate(log.gpus):
        of = f"GPU {index}"
        ours = next((gpu for gpu in node.gpus.gpus if gpu.index == index), None)
        if ours is None:
            yield _compare(f"{of}: there", "no", "yes")
            continue
        yield _compare(f"{of}: UUID", ours.uuid, theirs.uuid)
        yield _compare(f"{of}: name", ours.name, theirs.name)
        yield _compare(f"{of}: PCI address", ours.pci_address, theirs.pci_address)
        device = by_address.get(theirs.pci_address)
        yield _compare(f"{of}: PCI device", None if device is None else device.device_id, theirs.device_id)
        yield _compare(f"{of}: driver", ours.driver_version, log.driver_version)
        yield _compare(f"{of}: memory in MiB", ours.memory_mib, theirs.memory_mib)
        yield _compare(f"{of}: MIG mode", _plain(ours.mig_mode.current), theirs.mig_current)
        yield _compare(f"{of}: MIG mode to come", _plain(ours.mig_mode.pending), theirs.mig_pending)
        yield _compare(f"{of}: compute mode", ours.compute_mode, theirs.compute_mode)
        yield _compare(f"{of}: persistence mode", ours.persistence_mode, theirs.persistence_mode)
        if memory := health.get(theirs.pci_address):
            yield _compare(f"{of}: uncorrected errors", memory.uncorrected_errors, theirs.uncorrected_errors)
            ever = memory.uncorrected_errors_ever
            yield _compare(f"{of}: uncorrected errors ever", ever, theirs.uncorrected_errors_ever)
            yield _compare(f"{of}: remapping pending", memory.remap_pending, theirs.remap_pending)
            yield _compare(f"{of}: remapping failed", memory.remap_failed, theirs.remap_failed)
        if (divided := layout.get(theirs.uuid)) and divided.instances is not None:
            there = sorted((each.id, compute.id) for each in divided.instances for compute in each.compute)
            yield _compare(f"{of}: MIG devices", there, list(theirs.instances))


def _plain(mode: str) -> str:
    return "N/A" if mode == "[N/A]" else mode


def _compare(what: str, ours: object, theirs: object) -> Comparison:
    return Comparison(what, str(ours), str(theirs))
