"""The devices that runtimes find in CDI specifications, and those that the node has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gpunode.components.mig.state import ENABLED, Mig
from gpunode.components.runtimes.toolkit.cdi import FOLDERS, CdiSpecification
from gpunode.components.runtimes.toolkit.state import ContainerToolkit

# Name of a device -> its device nodes.
Devices = Mapping[str, frozenset[str]]


def resolved(specifications: Iterable[CdiSpecification]) -> tuple[Devices | None, Mapping[str, frozenset[str]]]:
    """Return the devices that runtimes find, and those that they do not find because several files have them.

    As pkg/cdi/cache.go of the CDI library does: the later folder counts, and what two files of one folder have is lost.
    The devices are None where those of a file are not known.
    """
    found: dict[str, tuple[int, str, frozenset[str]]] = {}
    twice: dict[str, frozenset[str]] = {}
    known = True
    for item in sorted(specifications, key=lambda item: (FOLDERS.get(item.folder, -1), item.path)):
        rank = FOLDERS.get(item.folder)
        if rank is None or item.unreadable:
            continue
        known = known and item.devices is not None
        for name, nodes in item.devices or ():
            other = found.get(name)
            if other is not None and other[0] == rank:
                twice[name] = twice.get(name, frozenset({other[1]})) | {item.path}
            else:
                found[name] = rank, item.path, frozenset(nodes)
    return {name: each[2] for name, each in found.items() if name not in twice} if known else None, twice


def lacking(devices: Devices, expected: Devices) -> list[str]:
    """Return the GPUs and MIG devices that no device consists of, or that `all` lacks."""
    every = devices.get("all")
    return [
        name
        for name, nodes in expected.items()
        if not any(nodes <= each for each in devices.values()) or (every is not None and not nodes <= every)
    ]


def shadowing(specifications: Iterable[CdiSpecification], expected: Devices) -> list[str]:
    """Return the files whose device `all` lacks a GPU or MIG device, and replaces the one of an earlier folder."""
    every = ((item.path, dict(item.devices or ()).get("all")) for item in specifications if not item.unreadable)
    return [path for path, nodes in every if nodes is not None and lacking({"all": frozenset(nodes)}, expected)]


def expected(actual: ContainerToolkit, mig: Mig | None) -> Devices:
    """Return the GPUs and MIG devices of the node with their device nodes, as far as they are known.

    A GPU in MIG mode is no device of its own: nvidia-ctk leaves it out from 1.18 on.
    """
    minors, capabilities = dict(actual.minors), dict(actual.capabilities)
    found: dict[str, frozenset[str]] = {}
    for gpu in mig.gpus if mig is not None and mig.status == "ok" else ():
        minor = minors.get(gpu.uuid)
        if minor is None:
            continue
        if gpu.current != ENABLED:
            found[f"GPU {gpu.index}"] = frozenset({f"/dev/nvidia{minor}"})
            continue
        for instance in gpu.instances or ():
            place = f"gpu{minor}/mig/gi{instance.id}"
            for compute in instance.compute:
                numbers = capabilities.get(place), capabilities.get(f"{place}/ci{compute.id}")
                if None not in numbers:
                    caps = (f"/dev/nvidia-caps/nvidia-cap{each}" for each in numbers)
                    name = f"the MIG device {gpu.index}/{instance.id}/{compute.id}"
                    found[name] = frozenset({f"/dev/nvidia{minor}", *caps})
    return found


def uuids(mig: Mig | None) -> Iterator[str]:
    """Yield the UUIDs of GPUs and MIG devices; of one of the two kinds none where one of them is not known."""
    if mig is None or mig.status != "ok":
        return
    yield from (gpu.uuid for gpu in mig.gpus)
    enabled = [gpu for gpu in mig.gpus if gpu.current == ENABLED]
    devices = [each.uuid for gpu in enabled for instance in gpu.instances or () for each in instance.compute]
    if all(gpu.instances is not None for gpu in enabled) and None not in devices:
        yield from filter(None, devices)
