"""The GPUs and MIG devices of a node as resources of Slurm's: their types, files and cores, and both files' texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpunode.components.mig.state import Mig, MigGpu
from gpunode.components.slurm.state import GRES, NODES, Slurm, SlurmGpu, near_cores, ranges
from gpunode.settings.slurm import SlurmSettings

OURS = "# Written by gpunode; changes are overwritten."
# What a product's name says of its maker and line, not of its kind.
_LINES = ("nvidia", "tesla", "geforce", "quadro", "graphics", "device")
_NOT_KINDS = re.compile(r"\d+gb|pcie|sxm\d*|hbm\w*|nvl|generation|ada|blackwell|workstation|server|edition", re.ASCII)
_HARDWARE = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore", "RealMemory")


class Untold(Exception):
    """Say why nobody can tell which devices a node has."""


@dataclass(frozen=True)
class Device:
    """Hold one resource: its type, its device files, and the cores near it where there is a choice."""

    type: str
    files: tuple[str, ...]
    cores: str | None = None


def type_of(product: str) -> str:
    """Return the type of a product: `NVIDIA H100 80GB HBM3` is h100, `NVIDIA GeForce RTX 4090` rtx_4090."""
    words = [word for word in re.split(r"[\s-]+", product.lower()) if word and word not in _LINES]
    kinds = [word for number, word in enumerate(words) if number == 0 or not _NOT_KINDS.fullmatch(word)]
    # Behind a name such as h100 nothing is of the kind; behind one without digits it goes on.
    end = next((number for number, word in enumerate(kinds) if any(map(str.isdigit, word))), len(kinds) - 1)
    while kinds[end + 1 : end + 2] in (["ti"], ["super"]):
        end += 1
    return re.sub(r"[^a-z0-9_.]", "", "_".join(kinds[: end + 1])) or "gpu"


def devices(settings: SlurmSettings, actual: Slurm, mig: Mig) -> tuple[Device, ...]:
    """Return the node's devices in the order of their PCI addresses, which is Slurm's; raise Untold."""
    if not actual.gpus:
        raise Untold("the driver shows no GPU (/proc/driver/nvidia/gpus): load it first")
    every = sorted(actual.gpus, key=lambda each: each.pci_address)
    return tuple(device for gpu in every for device in _of_gpu(gpu, settings, actual, mig))


def _of_gpu(gpu: SlurmGpu, settings: SlurmSettings, actual: Slurm, mig: Mig) -> Iterator[Device]:
    own = next((each for each in mig.gpus if each.pci_address == gpu.pci_address), None)
    cores = near_cores(actual.cores, gpu.near) if settings.cores else None
    path = f"/dev/nvidia{gpu.minor}"
    if own is None or not own.enabled:
        if any(each.gpu == gpu.minor for each in actual.capabilities):
            raise Untold(f"GPU {gpu.pci_address} has MIG instances, and nvidia-smi does not tell which: {mig.status}")
        yield Device(settings.type or type_of(gpu.name), (path,), cores)
        return
    for profile, instance, compute in _instances(own):
        yield Device(profile, (path, *_capabilities(gpu, actual, instance, compute)), cores)


def _instances(own: MigGpu) -> list[tuple[str, int, int]]:
    if own.instances is None:
        raise Untold(f"the MIG instances of GPU {own.pci_address} cannot be read")
    return sorted(
        ((compute.profile, each.id, compute.id) for each in own.instances for compute in each.compute),
        key=lambda row: row[1:],
    )


def _capabilities(gpu: SlurmGpu, actual: Slurm, instance: int, compute: int) -> Iterator[str]:
    for part in (None, compute):
        wanted = (gpu.minor, instance, part)
        found = [each for each in actual.capabilities if (each.gpu, each.instance, each.compute) == wanted]
        if not found:
            raise Untold(f"the driver shows no device of instance {instance} of GPU {gpu.pci_address}")
        yield f"/dev/nvidia-caps/nvidia-cap{found[0].minor}"


def gres_of(every: Sequence[Device]) -> str:
    """Return what a NodeName line says of devices: `gpu:h100:8`; empty without any."""
    counts = Counter(device.type for device in every)
    return ",".join(f"gpu:{kind}:{count}" for kind, count in counts.items())


def node_name(settings: SlurmSettings, actual: Slurm) -> str:
    """Return the node's name; raise Untold."""
    name = settings.node_name or actual.host_name
    if name is None:
        raise Untold("`slurmd -C` does not print the node's name: set slurm.node_name")
    return name


def texts(settings: SlurmSettings, actual: Slurm, mig: Mig) -> dict[str, str]:
    """Return path -> text of the files that are to be there; raise Untold."""
    name, every = node_name(settings, actual), devices(settings, actual, mig)
    lines = [f"NodeName={name} AutoDetect=nvml"] if settings.autodetect == "nvml" else list(_lines(name, every))
    found = {GRES: "\n".join([f"{OURS} gres.conf is to have the line: include {GRES}", *lines]) + "\n"}
    if settings.node_line:
        hardware = [
            f"{key}={value}"
            for key in (_HARDWARE if settings.node_hardware else ())
            if (value := actual.told_of(actual.hardware, key))
        ]
        gres = gres_of(every)
        line = " ".join([f"NodeName={name}", *hardware, *([f"Gres={gres}"] if gres else [])])
        head = f"{OURS} slurm.conf is to have the line: include {NODES}"
        found[NODES] = f"{head}\n{line}\n"
    return found


def _lines(name: str, every: Sequence[Device]) -> Iterator[str]:
    """Yield the devices as gres.conf has them; whole GPUs of one type and place that follow each other in one line."""
    if not every:
        yield f"NodeName={name} AutoDetect=off"
    groups: list[tuple[Device, list[int]]] = []
    for device in every:
        minor = int(device.files[0].removeprefix("/dev/nvidia"))
        last, minors = groups[-1] if groups else (None, [])
        # Slurm counts devices by the order of files, and a range has one order alone.
        if last is not None and _is_alike(last, device) and minor > minors[-1]:
            minors.append(minor)
            continue
        groups.append((device, [minor]))
    for device, minors in groups:
        which = ranges(minors)
        several = f"[{which}]" if len(minors) > 1 else which
        single = len(device.files) == 1
        files = f"File=/dev/nvidia{several}" if single else f"MultipleFiles={','.join(device.files)}"
        cores = f" Cores={device.cores}" if device.cores else ""
        yield f"NodeName={name} AutoDetect=off Name=gpu Type={device.type} {files}{cores}"


def _is_alike(one: Device, other: Device) -> bool:
    return len(one.files) == len(other.files) == 1 and (one.type, one.cores) == (other.type, other.cores)
