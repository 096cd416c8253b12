"""A configuration of NVIDIA's device plugin as the plugin reads it: what ends the plugin, and what it ignores.

Its answers, recorded by running it, are in tests/recorded/device_plugin.yaml. A key that it does not know is ignored
without a word; keys outside `sharing` are known in any case.
source: NVIDIA/k8s-device-plugin, v0.15.0 to v0.20.0: api/config/v1 (config.go, flags.go, replicas.go, resources.go) and
cmd/nvidia-device-plugin/main.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpunode.base.folding import in_one_line
from gpunode.base.structured_text import TextError, load_documents

_VERSION = "v1"
_VENDOR = "nvidia.com/"
_LONGEST_NAME = 63
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE = re.compile(rf"\d+(:\d+)?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+", re.ASCII)
_FLAGS = ("failOnInitError", "gdrcopyEnabled", "gdsEnabled", "mofedEnabled")
_MIG = ("none", "single", "mixed")
_LISTS = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
_IDS = ("uuid", "index")
_WAYS = ("timeSlicing", "mps")


class _EndsError(Exception):
    """Say why the plugin ends."""


def ends(text: str) -> str | None:
    """Return why the plugin ends with this configuration; None where it takes it."""
    try:
        # Of several documents the plugin reads the first.
        documents = load_documents(text)
        _check(documents[0][1] if documents else None)
    except TextError as error:
        return f"it cannot be read as YAML: {in_one_line(error)}"
    except _EndsError as error:
        return str(error)
    return None


def ignored_fields(text: str) -> tuple[str, ...]:
    """Return what a configuration says that the plugin warns of and ignores, by its keys; of no mapping, none."""
    try:
        documents = load_documents(text)
    except TextError:
        return ()
    content = documents[0][1] if documents else None
    return tuple(_ignored(content)) if isinstance(content, dict) else ()


def _check(content: Any) -> None:
    top = _mapping(content, "it")
    version = _of(top, "version")
    if version not in (None, "", _VERSION):
        raise _EndsError(f"it has version {str(version)[:40]!r}, and the plugin knows {_VERSION!r} alone")
    flags, sharing = _mapping(_of(top, "flags"), "flags"), _mapping(_of(top, "sharing"), "sharing")
    _check_flags(flags)
    _check_resources(_mapping(_of(top, "resources"), "resources"))
    for way in _WAYS:
        there = next((name for name in sharing if str(name).casefold() == way.casefold()), None)
        # Of MPS alone a null is nothing.
        if there is not None and (way == "timeSlicing" or sharing[there] is not None):
            _check_way(f"sharing.{way}", sharing[there])
    if _of(sharing, "mps") is not None and _of(flags, "migStrategy") == "mixed":
        raise _EndsError("flags.migStrategy 'mixed' and sharing.mps exclude each other")


def _check_flags(flags: Mapping[Any, Any]) -> None:
    plugin = _mapping(_of(flags, "plugin"), "flags.plugin")
    for name in _FLAGS:
        _check_bool(f"flags.{name}", _of(flags, name))
    _check_bool("flags.plugin.passDeviceSpecs", _of(plugin, "passDeviceSpecs"))
    _check_choice("flags.migStrategy", _of(flags, "migStrategy"), _MIG)
    _check_choice("flags.plugin.deviceIDStrategy", _of(plugin, "deviceIDStrategy"), _IDS)
    lists = _of(plugin, "deviceListStrategy")
    for each in lists if isinstance(lists, list) else str(lists).split(",") if lists is not None else ():
        _check_choice("flags.plugin.deviceListStrategy", each, _LISTS)


def _check_resources(resources: Mapping[Any, Any]) -> None:
    for name in ("gpus", "mig"):
        for row in _list(_of(resources, name) or [], f"resources.{name}"):
            found = _mapping(row, f"each of resources.{name}")
            for key in ("pattern", "name"):
                if not isinstance(found.get(key), str):
                    raise _EndsError(f"each of resources.{name} must have a {key}")
            _check_name(f"resources.{name}", found["name"])


def _check_way(where: str, content: Any) -> None:
    shared = _mapping(content, where)
    for name in ("renameByDefault", "failRequestsGreaterThanOne"):
        _check_bool(f"{where}.{name}", shared.get(name))
    rows = _list(shared.get("resources") or [], f"{where}.resources")
    if not rows:
        raise _EndsError(f"{where} has no resources")
    for row in rows:
        found = _mapping(row, f"each of {where}.resources")
        _check_name(f"{where}.resources", found.get("name"))
        if found.get("rename") is not None:
            _check_name(f"{where}.resources", found["rename"])
        if "devices" in found:
            _check_devices(f"{where}.resources", found["devices"])
        replicas = found.get("replicas")
        if isinstance(replicas, bool) or not isinstance(replicas, int | float) or replicas != int(replicas):
            raise _EndsError(f"each of {where}.resources must have replicas, a whole number")
        if replicas < 2:
            raise _EndsError(f"{where}.resources has {int(replicas)} replicas, and the plugin takes 2 or more")


def _check_devices(where: str, devices: Any) -> None:
    if isinstance(devices, list):
        wrong = any(_DEVICE.fullmatch(str(each)) is None for each in devices)
    else:
        wrong = isinstance(devices, bool) or not (devices == "all" or (isinstance(devices, int) and devices > 0))
    if wrong:
        raise _EndsError(f"devices of {where} must be 'all', a count, or a list of indexes and UUIDs")


def _check_name(where: str, name: Any) -> None:
    if not isinstance(name, str):
        raise _EndsError(f"each of {where} must have a name")
    full = _full_name(name)
    if len(full) > _LONGEST_NAME or _NAME.fullmatch(full.removeprefix(_VENDOR)) is None:
        raise _EndsError(f"{name[:80]!r} of {where} is no name of a resource of {_VENDOR.rstrip('/')}")


def _check_bool(where: str, value: Any) -> None:
    if not isinstance(value, bool | None):
        raise _EndsError(f"{where} must be true or false")


def _check_choice(where: str, value: Any, choices: Sequence[str]) -> None:
    if value is not None and value not in choices:
        raise _EndsError(f"{where} must be one of {', '.join(choices)}")


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(value, dict | None):
        raise _EndsError(f"{where} must be a mapping")
    return value or {}


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _EndsError(f"{where} must be a list")
    return value


def _of(content: Mapping[Any, Any], name: str) -> Any:
    """Return the value of a key that is known in any case."""
    if name in content:
        return content[name]
    return next((value for key, value in content.items() if str(key).casefold() == name.casefold()), None)


def _full_name(name: str) -> str:
    return name if name.startswith(_VENDOR) else f"{_VENDOR}{name}"


def _ignored(content: Mapping[Any, Any]) -> Iterator[str]:
    resources = _of(content, "resources")
    if isinstance(resources, dict) and (_of(resources, "gpus") or _of(resources, "mig")):
        yield "resources"
    sharing = _of(content, "sharing")
    for way in _WAYS:
        shared = _of(sharing, way) if isinstance(sharing, dict) else None
        if not isinstance(shared, dict) or not isinstance(shared.get("resources"), list):
            continue
        for row in (each for each in shared["resources"] if isinstance(each, dict)):
            if row.get("devices", "all") != "all":
                yield f"sharing.{way}.resources[{row.get('name')}].devices"
            renamed = shared.get("renameByDefault") is True
            by_default = renamed and _full_name(f"{row.get('rename')}") == _full_name(f"{row.get('name')}.shared")
            if row.get("rename") and not by_default:
                yield f"sharing.{way}.resources[{row.get('name')}].rename"
