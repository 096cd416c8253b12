"""What nvidia-smi prints of MIG, as gpunode/components/mig/smi.sh hands it on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from gpunode.base.probe_output import cells, number, repeated, values
from gpunode.base.reading import ParseError
from gpunode.components.mig.state import (
    ComputeInstance,
    GpuInstance,
    Holder,
    Mig,
    MigGpu,
    OwnProfile,
    parse_placements,
    parse_profile_rows,
)
from gpunode.system.smi import ANSWERED, STATUS, address, data, exit_code_of, parse_answer

# What is asked where MIG mode is on: key in the probe's answer -> arguments of nvidia-smi.
LISTS = {"devices": "-L", "lgip": "mig -lgip", "lgipp": "mig -lgipp", "lgi": "mig -lgi", "lci": "mig -lci"}
# Exit code 6 of -lgi and -lci: there are none.
_NONE = ("No GPU instances found", "No compute instances found")
_GPU_INSTANCE = re.compile(
    r"\|\s+(?P<gpu>\d+)\s+MIG (?P<name>\S+)\s+(?P<profile>\d+)\s+(?P<id>\d+)\s+(?P<start>\d+):(?P<size>\d+)\s*\|",
    re.ASCII,
)
_COMPUTE_INSTANCE = re.compile(
    r"\|\s+(?P<gpu>\d+)\s+(?P<gi>\d+)\s+MIG (?P<name>\S+)\s+(?P<profile>\d+)\s+(?P<id>\d+)\s+"
    r"(?P<start>\d+):(?P<size>\d+)\s*\|",
    re.ASCII,
)
_GPU = re.compile(r"GPU (?P<gpu>\d+): .*\(UUID: GPU-[0-9A-Fa-f-]+\)", re.ASCII)
# Nobody recorded a name that fills its column (1c.2g.12gb+me): it may leave no blank behind it.
_DEVICE = re.compile(r"MIG (?P<name>\S+?)\s*Device\s+\d+: \(UUID: (?P<uuid>MIG-[0-9A-Za-z/-]+)\)", re.ASCII)

_CAPABILITY = re.compile(r"/gpu(?P<gpu>\d+)/mig/gi(?P<instance>\d+)/", re.ASCII)
_CONTAINER = re.compile(r"[0-9a-f]{64}")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._@:\\-]")


def parse_mig(lines: list[str]) -> Mig:
    """Parse nvidia-smi's answer (gpunode.system.smi.parse_answer), and for each of LISTS `KEY.rc=N` with `KEY=` lines.

    What holds the GPUs is in `minor=`, `capability=` and `holder=` lines. `lost=ADDRESS` names a GPU that does not
    answer for itself.
    """
    found = values(lines)
    answer = parse_answer(lines)
    if answer.status != "ok":
        gone = ", ".join(repeated(lines, "lost"))
        return Mig(answer.status, f"GPU {gone} does not answer; a boot may bring it back" if gone else answer.message)
    if answer.message is not None:
        return Mig("ok", answer.message)
    gpus = tuple(map(_gpu, answer.rows))
    holders = tuple(dict.fromkeys(_holders(lines)))
    if not any(gpu.enabled for gpu in gpus):
        return Mig("ok", None, gpus, holders)
    if trouble := _trouble(lines, found):
        unread = tuple(replace(gpu, instances=None) if gpu.enabled else gpu for gpu in gpus)
        return Mig("unreadable", trouble, unread)
    compute = list(_compute_instances(data(lines, "lci")))
    instances = list(_gpu_instances(data(lines, "lgi"), compute))
    profiles = _profiles(data(lines, "lgip"), data(lines, "lgipp"))
    devices = _devices(data(lines, "devices"))
    every = []
    for gpu in gpus:
        if not gpu.enabled:
            every.append(gpu)
            continue
        if gpu.index not in profiles:
            raise ParseError(f"nvidia-smi mig -lgip lists no profile of GPU {gpu.index}, which is in MIG mode")
        own = sorted((instance for index, instance in instances if index == gpu.index), key=lambda each: each.start)
        named = _with_uuids(own, devices.get(gpu.index, []))
        every.append(replace(gpu, instances=named, profiles=profiles[gpu.index]))
    return Mig("ok", None, tuple(every), holders)


def _holders(lines: list[str]) -> Iterator[Holder]:
    """Yield the processes that have a GPU or an instance open; a device of no GPU that is known is left out."""
    uuids = {f"/dev/nvidia{minor}": uuid for uuid, minor in (cells(line, 2) for line in repeated(lines, "minor"))}
    devices: dict[str, tuple[str, int | None]] = {device: (uuid, None) for device, uuid in uuids.items()}
    for file, minor in (cells(line, 2) for line in repeated(lines, "capability")):
        match = _CAPABILITY.search(file)
        if match and (uuid := uuids.get(f"/dev/nvidia{match['gpu']}")):
            devices[f"/dev/nvidia-caps/nvidia-cap{minor}"] = uuid, int(match["instance"])
    for line in repeated(lines, "holder"):
        pid, user, device, group, program = (*line.split("\t", 4), *[""] * 5)[:5]
        if device not in devices:
            continue
        parts = group.split("/")
        units = [_NOT_PLAIN.sub("", part) for part in parts if part.endswith((".service", ".scope"))]
        container = next((each[:12] for each in _CONTAINER.findall(parts[-1])), None)
        name, owner = _NOT_PLAIN.sub("", program), _NOT_PLAIN.sub("", user)
        unit, in_pod = units[-1] if units else None, "kubepods" in group
        yield Holder(devices[device][0], number(pid), name, owner, devices[device][1], unit, container, in_pod)


def _trouble(lines: list[str], found: dict[str, str]) -> str | None:
    """Return which list could not be read and why; None: all of them were."""
    for key, arguments in LISTS.items():
        exit_code = exit_code_of(found, key)
        said = data(lines, key)
        none = exit_code == 6 and key in ("lgi", "lci") and bool(said) and said[0].startswith(_NONE)
        if exit_code not in ANSWERED and not none:
            text = said[-1] if said else STATUS.get(exit_code, "it said nothing")
            return f"nvidia-smi {arguments} failed with exit code {exit_code}: {text}"
    return None


def _gpu(row: dict[str, str]) -> MigGpu:
    return MigGpu(
        index=int(row["index"]),
        uuid=row["uuid"],
        pci_address=address(row["pci.bus_id"]),
        device_id=row["pci.device_id"].removeprefix("0x").upper()[:4],
        name=row["name"],
        current=row["mig.mode.current"],
        pending=row["mig.mode.pending"],
    )


def _rows(lines: list[str], form: re.Pattern[str], title: str) -> Iterator[re.Match[str]]:
    """Yield the rows of a table of nvidia-smi; raise ParseError where a row between two rules is not of its form."""
    body = False
    for line in lines:
        if line.startswith(_NONE):
            continue
        if line[0] not in "|+":
            raise ParseError(f"not a line of {title}: {line[:120]!r}")
        if line.startswith("|="):
            body = True
        elif body and line[0] == "|":
            match = form.fullmatch(line)
            if match is None:
                raise ParseError(f"not a row of {title}: {line[:120]!r}")
            yield match


def _compute_instances(lines: list[str]) -> Iterator[tuple[int, int, ComputeInstance]]:
    for row in _rows(lines, _COMPUTE_INSTANCE, "nvidia-smi mig -lci"):
        instance = ComputeInstance(
            int(row["id"]), int(row["profile"]), row["name"], int(row["start"]), int(row["size"])
        )
        yield int(row["gpu"]), int(row["gi"]), instance


def _gpu_instances(
    lines: list[str], compute: list[tuple[int, int, ComputeInstance]]
) -> Iterator[tuple[int, GpuInstance]]:
    known = set()
    for row in _rows(lines, _GPU_INSTANCE, "nvidia-smi mig -lgi"):
        gpu, number = int(row["gpu"]), int(row["id"])
        known.add((gpu, number))
        own = sorted((each for on, of, each in compute if (on, of) == (gpu, number)), key=lambda each: each.id)
        place = int(row["start"]), int(row["size"])
        yield gpu, GpuInstance(number, int(row["profile"]), row["name"], *place, tuple(own))
    if strangers := {(gpu, number) for gpu, number, _ in compute} - known:
        # It came or went between two questions.
        raise ParseError(f"a compute instance of GPU instance {min(strangers)}, which -lgi does not list")


def _profiles(lgip: list[str], lgipp: list[str]) -> dict[int, tuple[OwnProfile, ...]]:
    rows, places = parse_profile_rows(lgip), parse_placements(lgipp)
    if {gpu: set(of) for gpu, of in rows.items()} != {gpu: set(of) for gpu, of in places.items()}:
        raise ParseError("nvidia-smi mig -lgip and -lgipp do not speak of the same profiles")
    return {
        gpu: tuple(OwnProfile(number, *row, *places[gpu][number]) for number, row in of.items())
        for gpu, of in rows.items()
    }


def _devices(lines: list[str]) -> dict[int, list[tuple[str, str]]]:
    """Return GPU index -> (name, UUID) of its MIG devices, in order."""
    found: dict[int, list[tuple[str, str]]] = {}
    index = None
    for line in lines:
        if match := _GPU.fullmatch(line):
            index = int(match["gpu"])
        elif (match := _DEVICE.fullmatch(line)) and index is not None:
            found.setdefault(index, []).append((match["name"], match["uuid"]))
        else:
            raise ParseError(f"not a line of nvidia-smi -L: {line[:120]!r}")
    return found


def _with_uuids(instances: list[GpuInstance], devices: list[tuple[str, str]]) -> tuple[GpuInstance, ...]:
    """Give each compute instance its MIG device's UUID.

    nvidia-smi -L does not say which device is which instance: they come in the order of the ids of GPU instance and
    compute instance. Where the profiles in that order are not the devices', no UUID is given.
    """
    order = [(gi, ci) for gi in sorted(instances, key=lambda each: each.id) for ci in gi.compute]
    if [ci.profile for _, ci in order] != [name for name, _ in devices]:
        return tuple(instances)
    uuids = {(gi.id, ci.id): uuid for (gi, ci), (_, uuid) in zip(order, devices, strict=True)}
    return tuple(
        replace(gi, compute=tuple(replace(ci, uuid=uuids[gi.id, ci.id]) for ci in gi.compute)) for gi in instances
    )
