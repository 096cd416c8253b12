"""Can the GPUs serve the desired MPS clients, of the host's daemons or of the device plugin's?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpunode.base.verdicts import Caution, CautionMessage, Refusal, RefusalMessage
from gpunode.components.driver.flavour import named
from gpunode.components.mig.target import chosen
from gpunode.components.mps.change import VARIABLE
from gpunode.components.mps.decide import without_room
from gpunode.settings import Settings
from gpunode.settings.chart import known
from gpunode.settings.cluster.contradictions import declarations
from gpunode.settings.mig_parted.declaration import Declaration
from gpunode.settings.mig_parted.document import DeclarationError
from gpunode.settings.sharing import MOST_CLIENTS
from gpunode.system.pci import PciGpu

# Compute capability 7.0 is Volta's.
_BEFORE_VOLTA = frozenset({"fermi", "kepler", "maxwell", "pascal"})
_MOST_BEFORE_VOLTA = 16
# Of 7.5 Turing's.
_BEFORE_TURING = _BEFORE_VOLTA | {"volta"}
_MPS = "NVIDIA's Multi-Process Service documentation, limitations; nvidia-cuda-mps-control(1)"


TOO_MANY_REPLICAS = RefusalMessage(
    "plugin-too-many-mps",
    "Sharing is set to more MPS replicas than the device plugin grants for a GPU of the node.",
    component="device_plugin",
    reason="sharing is set to {desired} MPS replicas, and the device plugin grants {named} {most} at most",
    source="{source} (gpunode/data/device_plugin.yaml)",
    remedy="set sharing.replicas to {most} or less, or sharing.strategy to 'time-slicing'",
)


def device_plugin_refusals(settings: Settings, gpus: Sequence[PciGpu]) -> Iterator[Refusal]:
    """Refuse more MPS replicas than the plugin grants an old GPU: its pods would not start."""
    sharing = settings.sharing
    if not settings.kubernetes.enabled or sharing.strategy != "mps":
        return
    grants = known().mps_clients_before_turing
    desired = max(sharing.replicated.values(), default=0)
    old = next((gpu for gpu in gpus if gpu.generation in _BEFORE_TURING), None)
    if old is not None and desired > grants.most:
        yield TOO_MANY_REPLICAS(desired=desired, named=named(old), most=grants.most, source=grants.source)


WITH_MIG = RefusalMessage(
    "mps-beside-mig",
    "The host's MPS daemons and MIG are enabled for the same GPUs.",
    reason="mig.config {config!r} divides GPUs, and the MPS daemons serve whole ones: a client would find none, and "
    "under Kubernetes the two exclude each other",
    source=_MPS,
    remedy="leave mps.enabled or mig.config out, or set mig.config to 'all-disabled'",
)


def refused_anywhere(settings: Settings) -> Iterator[Refusal]:
    """Refuse MPS with a configuration that divides the first GPU of any node; of another one a node's GPUs decide."""
    found = declarations(settings) if settings.mps.enabled and settings.mig.config is not None else ()
    if found and all(_divides_first(each, settings.mig.config or "") for each in found):
        yield WITH_MIG(config=settings.mig.config)


def _divides_first(declaration: Declaration, name: str) -> bool:
    divided = False
    # Of several entries for a GPU the last one counts, where its filter matches.
    for each in (entry for entry in declaration.configs[name] if entry.has_index(0)):
        divided = each.mig_enabled and (divided or not each.device_filter)
    return divided


BEYOND = RefusalMessage(
    "mps-beyond",
    "A memory limit of MPS is set for a GPU that the node does not have.",
    reason="mps.memory_limits names GPU {beyond}, and the node has {count}",
    source="the PCI bus",
    remedy="take it out, or correct the host's data",
)
NO_ROOM = RefusalMessage(
    "mps-no-room",
    "The MPS clients' memory limits do not fit into a GPU's memory.",
    source="the GPU's name in pci.ids",
    remedies=("lower mps.clients or mps.memory_limit",),
)


def mps_refusals(settings: Settings, gpus: Sequence[PciGpu]) -> Iterator[Refusal]:
    """Refuse clients beyond what a GPU serves or has memory for, and MPS with MIG."""
    desired = settings.mps
    if not desired.enabled:
        return
    if _divided(settings, gpus):
        yield WITH_MIG(config=settings.mig.config)
    for gpu in gpus:
        if gpu.generation in _BEFORE_VOLTA:
            yield from _old(settings, gpu)
            break
    memory = {index: _memory(gpu) for index, gpu in enumerate(gpus)}
    beyond = [index for index in sorted(map(int, desired.memory_limits)) if index >= len(gpus)]
    if beyond:
        yield BEYOND(beyond=", ".join(map(str, beyond)), count=len(gpus))
    if lacking := without_room(desired, memory):
        reason, _, remedy = lacking.partition(": ")
        yield NO_ROOM(reason=reason, remedy=remedy)


EXPERIMENTAL = CautionMessage(
    "mps-experimental",
    component="device_plugin",
    reason="the device plugin calls MPS experimental since 0.15.0, and does not support it on GPUs with MIG enabled",
    source="k8s-device-plugin, README.md, With CUDA MPS (v0.17.0 to v0.20.0)",
    remedy="test it (docs/troubleshooting.md has what makes clients hang), or set sharing.strategy = 'time-slicing'",
)
PASSED_BY = CautionMessage(
    "mps-passed-by",
    reason=f"a program without {VARIABLE} takes a GPU as if no MPS daemon ran, or is refused it",
    source=_MPS,
    remedy=f"set {VARIABLE}={{folder}} for each program{{login}}",
)


def mps_cautions(settings: Settings) -> Iterator[Caution]:
    """Warn of programs that do not use the host's daemon, and of the device plugin's experimental sharing."""
    if settings.kubernetes.enabled and settings.sharing.strategy == "mps":
        yield EXPERIMENTAL()
    if settings.mps.enabled and not settings.mps.environment:
        login = ", or mps.environment = True, which sets it for login shells and users' services"
        folder = "/run/nvidia-mps/INDEX" if settings.mps.daemons == "gpu" else "/run/nvidia-mps"
        yield PASSED_BY(folder=folder, login=login if settings.mps.daemons == "node" else "")


def _divided(settings: Settings, gpus: Sequence[PciGpu]) -> bool:
    if settings.mig.config is None:
        return False
    try:
        return any(each.entry is not None and each.entry.mig_enabled for each in chosen(settings.mig, gpus))
    except DeclarationError:
        # preflight/mig.py refuses it.
        return False


TOO_MANY_CLIENTS = RefusalMessage(
    "mps-too-many-for-old",
    "mps.clients is more than a GPU before Volta serves.",
    reason="mps.clients is {desired}, and {named}, which is older than Volta, serves {most} (newer ones {newer})",
    source=_MPS,
    remedy="set mps.clients to {most} or less",
)
NO_LIMITS = RefusalMessage(
    "mps-no-limits-on-old",
    "MPS clients have limits, and a GPU before Volta has none.",
    reason="{named} is older than Volta, and has no limits of threads and memory for MPS clients",
    source=_MPS,
    remedy="leave mps.active_thread_percentage, mps.memory_limit and mps.memory_limits out",
)


def _old(settings: Settings, gpu: PciGpu) -> Iterator[Refusal]:
    desired = settings.mps
    if desired.clients is not None and desired.clients > _MOST_BEFORE_VOLTA:
        yield TOO_MANY_CLIENTS(desired=desired.clients, named=named(gpu), most=_MOST_BEFORE_VOLTA, newer=MOST_CLIENTS)
    limits = desired.memory_limit is not None or desired.memory_limits or float(desired.active_thread_percentage) != 100
    if limits:
        yield NO_LIMITS(named=named(gpu))


def _memory(gpu: PciGpu) -> int | None:
    """Return a GPU's memory in MiB by its name; None where the name does not have it."""
    match = re.search(r"(\d+)\s?GB\b", gpu.name or "")
    return int(match[1]) * 1024 if match else None
