"""CDI specifications of nvidia.com/gpu, as the library reads them by which runtimes find devices.

Rules: tags.cncf.io/container-device-interface v1.1.1, pkg/cdi (cache.go, spec.go, container-edits.go) and specs-go
(config.go, version.go). A file that breaks one of them is none to a runtime: it has no device of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpunode.base import tables, versions
from gpunode.base.reading import Reading
from gpunode.base.structured_text import TextError, load_documents, load_json
from gpunode.base.toml_edit import NO_UTF8

KIND = "nvidia.com/gpu"
CDI_MARK = "# Written by gpunode with nvidia-ctk; changes are overwritten. toolkit.cdi = 'off' removes this file."
# In the order in which runtimes read them: a device of a later folder replaces its namesake of an earlier one.
FOLDERS = {"/etc/cdi": 0, "/var/run/cdi": 1, "/run/cdi": 1}
_LIBCUDA = re.compile(r"libcuda\.so\.(\d{3}[0-9.]*\d)$", re.ASCII)
_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}", re.ASCII)
_VERSION = re.compile(r"\d+\.\d+\.\d+", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", re.ASCII)
_HOOKS = {"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
# What the fields of each table hold; text may be any scalar.
_TEXT, _NUMBER = (str, int, float), (int,)
_EDITED = {"annotations": (dict,), "containerEdits": (dict,)}
_FIELDS: Mapping[str, Mapping[str, tuple[type, ...]]] = {
    "specification": {"cdiVersion": _TEXT, "kind": _TEXT, "devices": (list,), **_EDITED},
    "device": {"name": _TEXT, **_EDITED},
    "containerEdits": {
        **dict.fromkeys(("env", "deviceNodes", "netDevices", "hooks", "mounts", "additionalGids"), (list,)),
        "intelRdt": (dict,),
    },
    "deviceNodes": {
        **dict.fromkeys(("path", "hostPath", "type", "permissions"), _TEXT),
        **dict.fromkeys(("major", "minor", "fileMode", "uid", "gid"), _NUMBER),
    },
    "mounts": {"hostPath": _TEXT, "containerPath": _TEXT, "type": _TEXT, "options": (list,)},
    "hooks": {"hookName": _TEXT, "path": _TEXT, "args": (list,), "env": (list,), "timeout": _NUMBER},
}
# What an entry of a list must have.
_NEEDED = {"deviceNodes": ("path",), "mounts": ("hostPath", "containerPath"), "hooks": ("hookName", "path")}


@dataclass(frozen=True)
class CdiSpecification(Reading):
    """One CDI specification of nvidia.com/gpu.

    driver_version: of the libcuda that it mounts; library: the path of that file on the node
    ours: whether gpunode made it; hooks: those that it names and that not every toolkit has
    version: its cdiVersion; unreadable: why no runtime reads it
    devices: each device's name and the device nodes of its own; None: not known (facts that an older gpunode recorded)
    lost: what it names that the node does not have, or has under another number
    """

    path: str
    driver_version: str | None
    ours: bool = False
    hooks: tuple[str, ...] = ()
    library: str | None = None
    version: str | None = None
    unreadable: str | None = None
    devices: tuple[tuple[str, tuple[str, ...]], ...] | None = None
    lost: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Return the folder that it is in."""
        return self.path.rpartition("/")[0]

    def is_below(self, root: str) -> bool:
        """Report whether its libraries are below that root; True where it mounts no libcuda."""
        if self.library is None:
            return True
        # At / they are where the distributions have libraries; /run/nvidia/driver is below / as well.
        return self.library.startswith(("/usr/", "/lib") if root == "/" else f"{root}/")

    def strange(self, uuids: Iterable[str]) -> tuple[str, ...]:
        """Return the devices that are named by the UUID of a GPU or MIG device which the node does not have."""
        known = {*uuids}
        kinds = {uuid[:3] for uuid in known}
        names = (name for name, _ in self.devices or () if _UUID.fullmatch(name))
        return tuple(name for name in names if name[:3] in kinds and name not in known)


def read(
    path: str, text: str, gone: Iterable[str] = (), numbers: Mapping[str, tuple[int, int]] | None = None
) -> CdiSpecification | None:
    """Return the specification of a file; None where it is one of another kind.

    gone: paths that are not on the node; numbers: device node -> its major and minor number there
    """
    ours = text.partition("\n")[0].rstrip() == CDI_MARK
    content = _content(text)
    if isinstance(content, str):
        return CdiSpecification(path, None, ours, unreadable=content)
    kind = content.get("kind")
    if isinstance(kind, str) and kind != KIND:
        return None
    edits = [*_edits(content)]
    mounts = [each["hostPath"] for each in _entries(edits, "mounts")]
    libcuda = next((each for each in mounts if _LIBCUDA.search(each)), None)
    found = _LIBCUDA.search(libcuda or "")
    hooks = [*_entries(edits, "hooks")]
    nodes = [(each.get("hostPath") or each["path"], each) for each in _entries(edits, "deviceNodes")]
    named = {*mounts, *(each["path"] for each in hooks), *(place for place, _ in nodes)}
    lost = [f"{each}, which is not there" for each in gone if each in named]
    for place, node in dict(nodes).items():
        own, actual = (node.get("major") or 0, node.get("minor") or 0), (numbers or {}).get(place)
        if actual is not None and own != (0, 0) and own != actual:
            lost.append(f"{place} as {own[0]}:{own[1]}, which is {actual[0]}:{actual[1]}")
    return CdiSpecification(
        path,
        found[1] if found else None,
        ours,
        _later_hooks(hooks),
        libcuda,
        str(content.get("cdiVersion")),
        next(_wrong(content), None),
        tuple((str(each["name"]), tuple(_own_nodes(each))) for each in _list(content, "devices") if "name" in each),
        tuple(lost),
    )


@lru_cache(maxsize=64)
def _content(text: str) -> dict[str, Any] | str:
    """Return the first document of a text, or why there is none."""
    if NO_UTF8 in text:
        return "it is not UTF-8"
    try:
        found = load_json(text, unique=True)
    except TextError:
        try:
            documents = load_documents(text, unique=True)
        except TextError as error:
            return f"it is not YAML: {error}"
        found = documents[0][1] if documents else None
    if found is None:
        return "it is empty"
    return found if isinstance(found, dict) else "it is not a mapping"


def _list(table: Any, key: str) -> list[dict[str, Any]]:
    found = table.get(key) if isinstance(table, dict) else None
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _edits(content: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for each in (content, *_list(content, "devices")):
        edits = each.get("containerEdits")
        if isinstance(edits, dict):
            yield edits


def _entries(edits: Iterable[dict[str, Any]], key: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of a list in all edits that have what they must have."""
    for each in edits:
        for entry in _list(each, key):
            if all(isinstance(entry.get(name), str) for name in _NEEDED[key]):
                yield entry


def _own_nodes(device: dict[str, Any]) -> Iterator[str]:
    edits = device.get("containerEdits")
    nodes = _entries([edits], "deviceNodes") if isinstance(edits, dict) else ()
    return (each.get("hostPath") or each["path"] for each in nodes)


def _later_hooks(hooks: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Return the hooks, the program's name first, that not every toolkit has."""
    words = (word for each in hooks for word in (each["path"].rpartition("/")[2], *(each.get("args") or ())[:2]))
    return tuple(dict.fromkeys(word for word in words if word in tables.toolkit().hooks))


def _wrong(content: dict[str, Any]) -> Iterator[str]:
    """Yield why the library does not take a specification."""
    yield from _wrong_fields("specification", content)
    yield from _wrong_version(content)
    if not isinstance(content.get("kind"), str):
        yield "kind is missing"
    devices = _list(content, "devices")
    if not devices:
        yield "it has no devices"
    names: set[str] = set()
    for device in devices:
        name = str(device.get("name", ""))
        if not _NAME.fullmatch(name):
            yield f"a device is named {name!r}"
        if name in names:
            yield f"it has the device {name!r} twice"
        names.add(name)
        yield from _wrong_fields("device", device)
        if not any((device.get("containerEdits") or {}).values()):
            yield f"the device {name!r} has no containerEdits"
    for edits in _edits(content):
        yield from _wrong_fields("containerEdits", edits)
        for key, needed in _NEEDED.items():
            for entry in _list(edits, key):
                yield from (f"an entry of {key} has no {name}" for name in needed if not entry.get(name))
                yield from _wrong_fields(key, entry)
                yield from (f"{name} is {entry[name]!r}" for name in _VALUES if not _VALUES[name](entry.get(name)))
        yield from (f"env has {each!r}" for each in edits.get("env") or () if str(each).find("=") < 1)


def _wrong_version(content: dict[str, Any]) -> Iterator[str]:
    version, known = str(content.get("cdiVersion", "")).removeprefix("v"), tables.toolkit().cdi_versions
    if version not in known and not is_newer(version):
        yield f"there is no cdiVersion {version!r}"
    elif least := next((each for each, uses in _USES.items() if uses(content) and not _reaches(version, each)), None):
        yield f"cdiVersion is {version}, and what it has needs {least}"


def is_newer(version: str) -> bool:
    """Report whether a cdiVersion is newer than those of the table."""
    return bool(_VERSION.fullmatch(version)) and not _reaches(tables.toolkit().cdi_versions[-1], version)


def _reaches(version: str, least: str) -> bool:
    return versions.at_least(version, least)


def _wrong_fields(of: str, table: dict[Any, Any]) -> Iterator[str]:
    for name, value in table.items():
        if name not in _FIELDS[of]:
            yield f"{of} has no field {name!r}"
        elif value is not None and not isinstance(value, _FIELDS[of][name]):
            yield f"{name} is {value!r}"


def _any_edit(content: dict[str, Any], *keys: str) -> bool:
    return any(edits.get(key) for edits in _edits(content) for key in keys)


def _any_entry(content: dict[str, Any], key: str, name: str) -> bool:
    return any(entry.get(name) for edits in _edits(content) for entry in _list(edits, key))


# What some fields of an entry may be, None where there is none.
_VALUES: Mapping[str, Callable[[Any], bool]] = {
    "hookName": lambda value: value in (None, *_HOOKS),
    "permissions": lambda value: value is None or value == "none" or not str(value).strip("rwm"),
}
# cdiVersion, newest first -> whether a specification has what came with it.
_USES: Mapping[str, Callable[[dict[str, Any]], bool]] = {
    "1.1.0": lambda content: _any_edit(content, "netDevices"),
    "0.7.0": lambda content: _any_edit(content, "intelRdt", "additionalGids"),
    "0.6.0": lambda content: any(each.get("annotations") for each in (content, *_list(content, "devices"))),
    "0.5.0": lambda content: (
        any(str(each.get("name", ""))[:1].isdigit() for each in _list(content, "devices"))
        or _any_entry(content, "deviceNodes", "hostPath")
    ),
    "0.4.0": lambda content: _any_entry(content, "mounts", "type"),
    "0.3.0": lambda content: True,
}
