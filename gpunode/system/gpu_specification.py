"""Which GPUs an OCI specification names, and which it hands in: pure, by what the node knows of its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

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
