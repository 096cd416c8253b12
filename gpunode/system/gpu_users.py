"""Who uses a node's GPUs: processes as nvidia-smi has them, and containers as their runtimes started them.

A container's GPUs stand in its OCI specification: devices by CDI, or by a hook of NVIDIA's, which hands in what a
variable or mounts name. A variable without either gives nothing: images set it, too.
source: NVIDIA/nvidia-container-toolkit, internal/config/image (VisibleDevices) and cmd/nvidia-container-runtime;
containerd's pkg/cri/annotations; cri-o's internal/annotations
"""

from __future__ import annotations

import base64
import binascii
import csv
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpunode.base.probe_output import cells, number, repeated, values
from gpunode.base.reading import Reading
from gpunode.base.structured_text import load_json
from gpunode.system.gpu import parse_gpus
from gpunode.system.smi import data, parse_list

_VARIABLE = "NVIDIA_VISIBLE_DEVICES="
_MOUNTS = "/var/run/nvidia-container-devices/"
# A mount names a device as CDI does, too: cdi/VENDOR/CLASS/NAME.
_CDI_MOUNT = re.compile(r"cdi/[^/]+/[^/]+/(.+)")
_CDI_ANNOTATION = "cdi.k8s.io/"
_CDI_NAME = re.compile(r"[a-z0-9.-]*nvidia\.com/(?:gpu|mig)=(.+)")
# The variable's own words for nothing.
_NOTHING = ("", "void", "none")
_DEVICE = re.compile(r"/dev/nvidia(\d+)")
_HOOK = re.compile(r"nvidia-container-(?:runtime-hook|toolkit)")


@dataclass(frozen=True)
class Asked:
    """Hold by which names a node's GPUs and MIG devices are known.

    by_index and by_minor: number as text -> a GPU's UUID; by_mig: a MIG device's UUID -> its GPU's; by_place: `0:1`,
    the second MIG device of GPU 0 -> its UUID.
    """

    by_index: Mapping[str, str] = field(default_factory=dict)
    by_minor: Mapping[str, str] = field(default_factory=dict)
    by_mig: Mapping[str, str] = field(default_factory=dict)
    by_place: Mapping[str, str] = field(default_factory=dict)

    def found(self, name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the UUIDs of the GPUs, and of the MIG devices, that a name stands for; nothing for an unknown one."""
        if name == "all":
            return tuple(self.by_index.values()), tuple(self.by_mig)
        device = self.by_place.get(name, name)
        if device in self.by_mig:
            return (self.by_mig[device],), (device,)
        uuid = self.by_index.get(name, name)
        return ((uuid,) if uuid in self.by_index.values() else ()), ()


@dataclass(frozen=True)
class Given:
    """Hold the GPUs that a container names, and the UUIDs of the GPUs and MIG devices that it was given."""

    names: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    mig: tuple[str, ...] = ()


def asked(specification: Mapping[str, Any], annotations: Mapping[str, str], known: Asked) -> Given:
    """Return what a specification names and hands in; what in it is of another shape is passed over."""
    # As the toolkit looks: where the first says something, the others say nothing.
    names = tuple(_by_annotations(annotations)) or _by_mounts(specification) or _by_variable(specification)
    minors = [match[1] for path in _devices(specification) if (match := _DEVICE.fullmatch(path))]
    gpus = [known.by_minor[minor] for minor in minors if minor in known.by_minor]
    mig: list[str] = []
    if minors or _has_hook(specification):
        for name in names:
            whole, parts = known.found(name)
            # A device that is there says more than a name: no other GPU was given then.
            gpus += [] if minors else whole
            mig += [part for part in parts if not minors or known.by_mig[part] in gpus]
    return Given(names, tuple(dict.fromkeys(gpus)), tuple(dict.fromkeys(mig)))


def _by_annotations(annotations: Mapping[str, str]) -> Iterator[str]:
    for key, value in annotations.items():
        if key.startswith(_CDI_ANNOTATION):
            yield from (_bare(each) for each in value.split(",") if _CDI_NAME.fullmatch(each.strip()))


def _by_mounts(specification: Mapping[str, Any]) -> tuple[str, ...]:
    places = [str(_mapping(each).get("destination")) for each in _list(specification.get("mounts"))]
    names = [place.removeprefix(_MOUNTS) for place in places if place.startswith(_MOUNTS)]
    return tuple(match[1] if (match := _CDI_MOUNT.fullmatch(name)) else name for name in names)


def _by_variable(specification: Mapping[str, Any]) -> tuple[str, ...]:
    value = ""
    for each in _list(_mapping(specification.get("process")).get("env")):
        if isinstance(each, str) and each.startswith(_VARIABLE):
            value = each.removeprefix(_VARIABLE)
    return tuple(_bare(name) for name in value.split(",") if name.strip() not in _NOTHING)


def _bare(name: str) -> str:
    """Return a device's name without what CDI puts before it."""
    match = _CDI_NAME.fullmatch(name.strip())
    return match[1] if match else name.strip()


def _devices(specification: Mapping[str, Any]) -> Iterator[str]:
    for each in _list(_mapping(specification.get("linux")).get("devices")):
        yield str(_mapping(each).get("path"))


def _has_hook(specification: Mapping[str, Any]) -> bool:
    hooks = _mapping(specification.get("hooks")).values()
    return any(_HOOK.search(str(_mapping(each).get("path"))) for hook in hooks for each in _list(hook))


def _mapping(value: object) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


# Where containerd, docker's own containerd, podman and CRI-O keep what a running container was started with.
SPECIFICATIONS = (
    "/run/containerd/io.containerd.runtime.v[12].*/*/*/config.json",
    "/run/docker/containerd/daemon/io.containerd.runtime.v[12].*/*/*/config.json",
    "/run/containers/storage/*-containers/*/userdata/config.json",
)
_MOST_BYTES = 4 << 20
# The beginnings of the lines that nvidia-smi's answer is in.
_OF_SMI = ("gpu", "absent", "unloaded")
_POD = (
    ("io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.container-name"),
    ("io.kubernetes.pod.namespace", "io.kubernetes.pod.name", "io.kubernetes.container.name"),
)


@dataclass(frozen=True)
class GpuProcess(Reading):
    """Hold a process on a GPU: the GPU's UUID, the node's number of it, its program, MiB that it uses, its container.

    memory_mib is None where nvidia-smi does not tell; container is the ID of one, None where it is in none that has
    GPUs.
    """

    gpu: str
    pid: int
    name: str
    memory_mib: int | None
    container: str | None = None


@dataclass(frozen=True)
class GpuContainer(Reading):
    """Hold a running container that names GPUs.

    runtime: containerd, docker, podman or cri-o; pod: `NAMESPACE/NAME`; asks: the GPUs as it names them; gpus and mig:
    the UUIDs of those that it was given, none where nobody handed any in; is_readable: whether its specification was.
    """

    id: str
    runtime: str
    name: str | None
    pod: str | None
    pid: int | None
    asks: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    mig: tuple[str, ...] = ()
    is_readable: bool = True


@dataclass(frozen=True)
class GpuUsers(Reading):
    """Hold the processes and containers of a node's GPUs; `status` and `message` are nvidia-smi's (system.gpu.Gpus)."""

    status: str
    message: str | None
    gpus: tuple[str, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    containers: tuple[GpuContainer, ...] = ()

    def of_pod(self, pod: str) -> tuple[GpuContainer, ...]:
        """Return a pod's containers that name GPUs."""
        return tuple(each for each in self.containers if each.pod == pod)


def parse_gpu_users(lines: list[str]) -> GpuUsers:
    """Parse the probe's lines (gpunode/system/gpu_users.sh); raise ParseError."""
    gpus, found = parse_gpus([line for line in lines if line.startswith(_OF_SMI)]), values(lines)
    listed = parse_list(repeated(lines, "node"))
    minors = {minor: uuid for uuid, minor in (cells(line, 2) for line in repeated(lines, "minor"))}
    known = Asked(
        by_index={str(gpu.index): gpu.uuid for gpu in gpus.gpus},
        by_minor=minors,
        by_mig={uuid: gpu.uuid for gpu in listed for _, uuid in gpu.mig},
        by_place={f"{gpu.index}:{place}": uuid for gpu in listed for place, (_, uuid) in enumerate(gpu.mig)},
    )
    names = dict(cells(line, 2) for line in repeated(lines, "docker"))
    containers = tuple(_containers(repeated(lines, "container"), names, known))
    groups = [cells(line, 2) for line in repeated(lines, "group")]
    processes = _processes(data(lines, "app"), groups, containers) if found.get("app.rc") == "0" else ()
    return GpuUsers(gpus.status, gpus.message, tuple(gpu.uuid for gpu in gpus.gpus), tuple(processes), containers)


def _processes(
    lines: Iterable[str], groups: Iterable[list[str]], containers: tuple[GpuContainer, ...]
) -> Iterator[GpuProcess]:
    of = {each.pid: each.id for each in containers if each.pid is not None}
    for pid, group in groups:
        of |= {number(pid): each.id for each in containers if each.id in group}
    for row in csv.reader(lines, skipinitialspace=True):
        # Where there is none, the program says so in words.
        if len(row) == 4 and row[0].startswith("GPU-"):
            gpu, pid, name, memory = (cell.strip() for cell in row)
            yield GpuProcess(gpu, number(pid), name, int(memory) if memory.isdecimal() else None, of.get(number(pid)))


def _containers(lines: Iterable[str], names: Mapping[str, str], known: Asked) -> Iterator[GpuContainer]:
    for line in lines:
        pid, file, content = cells(line, 3)
        folder = file.removesuffix("/config.json").removesuffix("/userdata")
        identity = folder.rpartition("/")[2]
        is_docker = f"/moby/{identity}" in folder
        number = int(pid) if pid.isascii() and pid.isdecimal() else None
        specification = _specification(content)
        if specification is None:
            yield GpuContainer(identity, "docker" if is_docker else "unknown", None, None, number, is_readable=False)
            continue
        annotations = {str(key): str(value) for key, value in _mapping(specification.get("annotations")).items()}
        pod, container = next(_pods(annotations), (None, None))
        given = asked(specification, annotations, known)
        if not given.names and not given.gpus:
            # It only mentions a word of NVIDIA's.
            continue
        name = names.get(identity, "").removeprefix("/") or container
        runtime = _runtime(file, is_docker, annotations)
        yield GpuContainer(identity, runtime, name, pod, number, given.names, given.gpus, given.mig)


def _runtime(file: str, is_docker: bool, annotations: Mapping[str, str]) -> str:
    if is_docker:
        return "docker"
    if "/io.containerd." in file:
        return "containerd"
    # Both keep their containers by one library.
    return "cri-o" if any(key.startswith("io.kubernetes.cri-o.") for key in annotations) else "podman"


def _pods(annotations: Mapping[str, str]) -> Iterator[tuple[str, str | None]]:
    for namespace, name, container in _POD:
        if name in annotations:
            yield f"{annotations.get(namespace, '')}/{annotations[name]}", annotations.get(container)


def _specification(content: str) -> dict[str, Any] | None:
    """Return what is in the file; None where a container that comes or goes left half of it."""
    try:
        packed = base64.b64decode(content, validate=True)
        text = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(packed, _MOST_BYTES)
        found = load_json(text)
    except (binascii.Error, zlib.error, ValueError):
        return None
    return found if isinstance(found, dict) else None
