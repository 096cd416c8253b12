"""A configuration of NVIDIA's device plugin as the plugin reads it: what ends the plugin, and what it ignores.

Its answers, recorded by running it, are in tests/recorded/device_plugin.yaml. A key that it does not know is ignored
without a word; keys outside `sharing` are known in any case. It reads YAML as nvidia-mig-parted does.
source: NVIDIA/k8s-device-plugin, v0.15.0 to v0.20.0: api/config/v1 (config.go, flags.go, duration.go, imex.go,
replicas.go, resources.go) and cmd/nvidia-device-plugin/main.go
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpunode.base.folding import in_one_line
from gpunode.base.structured_text import TextError, check_yaml
from gpunode.settings.mig_parted.document import DeclarationError, read_document

_VERSION = "v1"
_VENDOR = "nvidia.com/"
_LONGEST_NAME = 63
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DEVICE = re.compile(rf"\d+(:\d+)?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/\d+/\d+", re.ASCII)
_DURATION = re.compile(r"infinite|[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
_LARGEST, _LARGEST_INDEX = 2**63 - 1, 2**64 - 1
_FLAGS = ("failOnInitError", "gdrcopyEnabled", "gdsEnabled", "mofedEnabled", "useNodeFeatureAPI")
_TEXTS = ("mpsRoot", "nvidiaDriverRoot", "nvidiaDevRoot")
_TEXTS_OF_PLUGIN = ("cdiAnnotationPrefix", "nvidiaCTKPath", "containerDriverRoot")
_DISCOVERY = ("auto", "nvml", "tegra")
_MIG = ("none", "single", "mixed")
_LISTS = ("envvar", "volume-mounts", "cdi-annotations", "cdi-cri")
_IDS = ("uuid", "index")
_POLICIES = ("distributed", "packed")
_WAYS = ("timeSlicing", "mps")


class _EndsError(Exception):
    """Say why the plugin ends."""


def ends(text: str) -> str | None:
    """Return why the plugin ends with this configuration; None where it takes it."""
    try:
        _check(_read(text))
    except _EndsError as error:
        return str(error)
    return None


def ignored_fields(text: str) -> tuple[str, ...]:
    """Return what a configuration says that the plugin warns of and ignores, by its keys; of no mapping, none."""
    try:
        content = _read(text)
        return tuple(_ignored(content)) if isinstance(content, dict) else ()
    except _EndsError:
        return ()


def _read(text: str) -> Any:
    """Return the first document, which is the one that the plugin reads."""
    try:
        check_yaml(text)
        return read_document(text, "", unique=False)
    except TextError as error:
        raise _EndsError(f"it cannot be read as YAML: {in_one_line(error)}") from None
    except DeclarationError as error:
        raise _EndsError(f"it cannot be read as YAML: {in_one_line(error.mistakes[0])}") from None


def _check(content: Any) -> None:
    top = _mapping(content, "it")
    version = _of(top, "version")
    if version not in (None, "", _VERSION):
        raise _EndsError(f"it has version {str(version)[:40]!r}, and the plugin knows {_VERSION!r} alone")
    flags, sharing = _mapping(_of(top, "flags"), "flags"), _mapping(_of(top, "sharing"), "sharing")
    _check_flags(flags)
    _check_resources(_mapping(_of(top, "resources"), "resources"))
    _check_imex(_mapping(_of(top, "imex"), "imex"))
    for way in _WAYS:
        there = any(name.casefold() == way.casefold() for name in sharing)
        shared = _of(sharing, way)
        # Of MPS alone a null is nothing.
        if there and (way == "timeSlicing" or shared is not None):
            _check_way(f"sharing.{way}", shared)
    if _of(sharing, "mps") is not None and _of(flags, "migStrategy") == "mixed":
        raise _EndsError("flags.migStrategy 'mixed' and sharing.mps exclude each other")


def _check_flags(flags: Mapping[Any, Any]) -> None:
    for name in _FLAGS:
        _check_bool(f"flags.{name}", _of(flags, name))
    for name in _TEXTS:
        _check_text(f"flags.{name}", _of(flags, name))
    _check_choice("flags.migStrategy", _of(flags, "migStrategy"), _MIG)
    _check_choice("flags.deviceDiscoveryStrategy", _of(flags, "deviceDiscoveryStrategy"), _DISCOVERY)
    _check_plugin_flags(_mapping(_of(flags, "plugin"), "flags.plugin"))
    _check_discovery_flags(_mapping(_of(flags, "gfd"), "flags.gfd"))


def _check_plugin_flags(plugin: Mapping[Any, Any]) -> None:
    _check_bool("flags.plugin.passDeviceSpecs", _of(plugin, "passDeviceSpecs"))
    for name in _TEXTS_OF_PLUGIN:
        _check_text(f"flags.plugin.{name}", _of(plugin, name))
    _check_choice("flags.plugin.deviceIDStrategy", _of(plugin, "deviceIDStrategy"), _IDS)
    # Before 0.20.0 the plugin does not know it.
    _check_choice("flags.plugin.sharedDevicesAllocationPolicy", _of(plugin, "sharedDevicesAllocationPolicy"), _POLICIES)
    lists = _of(plugin, "deviceListStrategy")
    # A text with commas is one strategy, and unknown.
    for each in lists if isinstance(lists, list) else () if lists is None else [lists]:
        _check_choice("flags.plugin.deviceListStrategy", "" if each is None else each, _LISTS)


def _check_discovery_flags(discovery: Mapping[Any, Any]) -> None:
    for name in ("oneshot", "noTimestamp"):
        _check_bool(f"flags.gfd.{name}", _of(discovery, name))
    for name in ("outputFile", "machineTypeFile"):
        _check_text(f"flags.gfd.{name}", _of(discovery, name))
    interval = _of(discovery, "sleepInterval")
    is_number = isinstance(interval, int | float | None) and not isinstance(interval, bool)
    if not is_number and not (isinstance(interval, str) and _DURATION.fullmatch(interval)):
        raise _EndsError("flags.gfd.sleepInterval must be a duration such as 60s")


def _check_imex(imex: Mapping[Any, Any]) -> None:
    _check_bool("imex.required", _of(imex, "required"))
    channels = _list(_or_empty(_of(imex, "channelIDs")), "imex.channelIDs")
    if channels and not (len(channels) == 1 and (channels[0] is None or _whole(channels[0]) == 0)):
        raise _EndsError("imex.channelIDs must be [] or [0]")


def _check_resources(resources: Mapping[Any, Any]) -> None:
    for name in ("gpus", "mig"):
        for row in _list(_or_empty(_of(resources, name)), f"resources.{name}"):
            found = _mapping(row, f"each of resources.{name}")
            if "pattern" not in found or not isinstance(found["pattern"], str | None):
                raise _EndsError(f"each of resources.{name} must have a pattern")
            if "name" not in found:
                raise _EndsError(f"each of resources.{name} must have a name")
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
        if "rename" in found:
            _check_name(f"{where}.resources", found["rename"])
        if "devices" in found:
            _check_devices(f"{where}.resources", found["devices"])
        replicas = _whole(found.get("replicas"))
        if replicas is None or replicas > _LARGEST:
            raise _EndsError(f"each of {where}.resources must have replicas, a whole number")
        if replicas < 2:
            raise _EndsError(f"{where}.resources has {replicas} replicas, and the plugin takes 2 or more")


def _check_devices(where: str, devices: Any) -> None:
    if isinstance(devices, list):
        right = all(_is_device(each) for each in devices)
    else:
        right = devices == "all" or 0 < (_whole(devices) or 0) <= _LARGEST
    if not right:
        raise _EndsError(f"devices of {where} must be 'all', a count, or a list of indexes and UUIDs")


def _is_device(value: Any) -> bool:
    """Say whether an item of `devices` is an index of a GPU or a MIG device, or a UUID; a null is the index 0."""
    index = 0 if value is None else _whole(value)
    if index is not None:
        return 0 <= index <= _LARGEST_INDEX
    if not isinstance(value, str) or _DEVICE.fullmatch(value) is None:
        return False
    return "-" in value or all(int(part[:21]) <= _LARGEST_INDEX for part in value.split(":"))


def _whole(value: Any) -> int | None:
    """Return a whole number as Go reads it from JSON, where 2.0 is 2; None: it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        return None
    return int(value)


def _check_name(where: str, name: Any) -> None:
    if not isinstance(name, str):
        raise _EndsError(f"each of {where} must have a name")
    full = _full_name(name)
    if len(full) > _LONGEST_NAME or _NAME.fullmatch(full.removeprefix(_VENDOR)) is None:
        raise _EndsError(f"{name[:80]!r} of {where} is no name of a resource of {_VENDOR.rstrip('/')}")


def _check_bool(where: str, value: Any) -> None:
    if not isinstance(value, bool | None):
        raise _EndsError(f"{where} must be true or false")


def _check_text(where: str, value: Any) -> None:
    if not isinstance(value, str | None):
        raise _EndsError(f"{where} must be a text")


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
    """Return the value of a key that is known in any case; where it is given in several, the plugin mixes them."""
    found = [key for key in content if key.casefold() == name.casefold()]
    if len(found) > 1:
        raise _EndsError(f"the key {name} is given twice, as {' and '.join(sorted(found))}")
    return content[found[0]] if found else None


def _or_empty(value: Any) -> Any:
    return [] if value is None else value


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
