"""Gpunode's reading of a node beside what NVIDIA's programs say of it, or were told: each fact that both have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpunode.components.mps.plugin import CLIENT, PROGRAM, SERVER, PluginMps
from gpunode.kubernetes.device_plugin.decide_labels import expected_labels
from gpunode.kubernetes.device_plugin.judge_mps import limits, percentage
from gpunode.node import Node
from gpunode.settings.sharing import WHOLE_GPU, SharingSettings
from tests.hardware.log import Log

# As machine.sh tells the programs.
_REPLICAS = 10
_SHARING = {
    "none": SharingSettings(replicas=None),
    "time-slicing": SharingSettings(strategy="time-slicing", replicas=4),
    "mps": SharingSettings(strategy="mps", replicas=_REPLICAS),
}


@dataclass(frozen=True)
class Comparison:
    """Hold one fact: what it is, what gpunode says, and what NVIDIA's program says or was told."""

    what: str
    by_gpunode: str
    by_nvidia: str

    @property
    def agrees(self) -> bool:
        """Say whether both sides say the same."""
        return self.by_gpunode == self.by_nvidia


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
        # A page that others read names no single card.
        same = ours.uuid == theirs.uuid
        yield _compare(f"{of}: UUID", "the same" if same else ours.uuid, "the same" if same else theirs.uuid)
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


def of_daemon(node: Node, plugin: PluginMps | None) -> Iterator[Comparison]:
    """Yield what gpunode reads of an MPS daemon with one client, which was told what the plugin tells its own."""
    if plugin is None:
        return
    daemon = plugin.daemon(WHOLE_GPU)
    if daemon is None or not daemon.answers:
        yield _compare("plugin's MPS daemon: answers", "no", "yes")
        return
    yield _compare("plugin's MPS daemon: threads of a client", daemon.percentage, percentage(_REPLICAS))
    of = dict(daemon.limits)
    for gpu in node.gpus.gpus:
        right = limits(gpu.memory_mib or 0, _REPLICAS)
        yield _compare(
            f"plugin's MPS daemon: memory of a client on GPU {gpu.index}",
            of.get(gpu.index),
            of[gpu.index] if of.get(gpu.index) in right else right[0],
        )
    yield _compare("plugin's MPS daemon: servers", [each.state for each in daemon.servers], ["ACTIVE"])
    yield _compare("plugin's MPS daemon: clients", len(daemon.clients), 1)
    yield _compare("plugin's MPS daemon: failures in its log", daemon.errors, 0)
    # Others may use a GPU that is not in a mode of one process.
    ours = {(each.pid, each.type) for each in plugin.processes if each.type == CLIENT or each.name.endswith(SERVER)}
    kinds = sorted(kind for _, kind in ours)
    yield _compare("plugin's MPS daemon: types of server and client on GPUs", kinds, [PROGRAM, CLIENT])


def of_discovery(node: Node, labels: Mapping[str, Mapping[str, str]]) -> Iterator[Comparison]:
    """Yield the labels that gpunode expects of GPU feature discovery, beside what that program writes, by sharing."""
    for way, actual in labels.items():
        expected = expected_labels(_SHARING[way], node.gpus, node.mig)
        if not expected:
            yield _compare(f"labels, sharing {way}", "nobody can say", f"{len(actual)} labels")
            continue
        ours = {
            name: actual.get(name) if actual.get(name) in values else values[0] for name, values in expected.items()
        }
        yield _compare(f"labels, sharing {way}", _listed(ours), _listed({name: actual.get(name) for name in ours}))


def _listed(labels: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name.partition('/')[2]}={value}" for name, value in sorted(labels.items()) if value is not None)


def _plain(mode: str) -> str:
    return "N/A" if mode == "[N/A]" else mode


def _compare(what: str, ours: object, theirs: object) -> Comparison:
    return Comparison(what, str(ours), str(theirs))
