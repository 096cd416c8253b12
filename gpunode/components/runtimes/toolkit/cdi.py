"""CDI specifications of nvidia.com/gpu, as the library reads them by which runtimes find devices.

Rules: tags.cncf.io/container-device-interface v1.1.1, pkg/cdi (cache.go, spec.go, container-edits.go) and specs-go
(config.go, version.go). A file that breaks one of them is none to a runtime: it has no device of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpunode.base import tables, versions
from gpunode.base.reading import Reading
from gpunode.base.structured_text import TextError, load_documents, load_json
from gpunode.base.toml_edit import NO_UTF8
from gpunode.components.runtimes.runtime import CDI_MARK

KIND = "nvidia.com/gpu"
# In the order in which runtimes read them: a device of a later folder replaces its namesake of an earlier one.
FOLDERS = {"/etc/cdi": 0, "/var/run/cdi": 1, "/run/cdi": 1}
_LIBCUDA = re.compile(r".*/libcuda\.so\.(\d{3}[0-9.]*\d)", re.ASCII)
_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}-[0-9a-f-]{27}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", re.ASCII)
_VERSION = re.compile(r"\d+\.\d+\.\d+", re.ASCII)


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
    if isinstance(kind := content.get("kind"), str) and kind != KIND:
        return None
    if (why := next(_wrong(content), None)) is not None:
        return CdiSpecification(path, None, ours, unreadable=why)
    devices = {str(each["name"]): each["containerEdits"] for each in content["devices"]}
    edits = [content.get("containerEdits") or {}, *devices.values()]
    mounts = [str(each["hostPath"]) for each in _entries(edits, "mounts")]
    hooks = [*_entries(edits, "hooks")]
    nodes = {_place(each): each for each in _entries(edits, "deviceNodes")}
    libcuda = next(filter(None, map(_LIBCUDA.fullmatch, mounts)), None)
    named = {*mounts, *nodes, *(str(each["path"]) for each in hooks)}
    lost = [f"{each}, which is not there" for each in gone if each in named]
    for place, node in nodes.items():
        own, actual = (node.get("major") or 0, node.get("minor") or 0), (numbers or {}).get(place)
        if actual is not None and own != (0, 0) and own != actual:
            lost.append(f"{place} as {own[0]}:{own[1]}, which is {actual[0]}:{actual[1]}")
    words = [word for each in hooks for word in (str(each["path"]).rpartition("/")[2], *(each.get("args") or ())[:3])]
    return CdiSpecification(
        path,
        libcuda[1] if libcuda else None,
        ours,
        tuple(dict.fromkeys(word for word in words if word in tables.toolkit().hooks)),
        libcuda[0] if libcuda else None,
        str(content["cdiVersion"]).removeprefix("v"),
        devices=tuple((name, tuple(map(_place, _entries([own], "deviceNodes")))) for name, own in devices.items()),
        lost=tuple(lost),
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


def _entries(edits: Iterable[Mapping[str, Any]], key: str) -> Iterator[dict[str, Any]]:
    return (entry for each in edits for entry in each.get(key) or ())


def _place(node: Mapping[str, Any]) -> str:
    return str(node.get("hostPath") or node["path"])


def _is_text(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _is_number(value: Any) -> bool:
    return isinstance(value, int)


def _is_variable(value: Any) -> bool:
    return str(value).find("=") > 0


# Fields as the library's types have them, an exclamation mark after those that an entry needs.
_HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_NUMBERS = dict.fromkeys(("major", "minor", "fileMode", "uid", "gid"), _is_number)
_EDITS = {
    "env": [_is_variable],
    "deviceNodes": [{
        "path!": _is_text, "hostPath": _is_text, "type": ("", "b", "c", "u", "p"), **_NUMBERS,
        "permissions": lambda value: value == "none" or not str(value).strip("rwm"),
    }],
    "hooks": [
        {"hookName!": _HOOKS, "path!": _is_text, "args": [_is_text], "env": [_is_variable], "timeout": _is_number}
    ],
    "mounts": [{"hostPath!": _is_text, "containerPath!": _is_text, "type": _is_text, "options": [_is_text]}],
    "netDevices": [{"hostInterfaceName!": _is_text, "name!": _is_text}],
    "intelRdt": lambda value: isinstance(value, dict),
    "additionalGids": [_is_number],
}  # fmt: skip
_ANNOTATED = {"annotations": lambda value: isinstance(value, dict)}
_SPECIFICATION = {
    "cdiVersion!": _is_text,
    "kind!": _is_text,
    "devices!": [{"name!": lambda value: _NAME.fullmatch(str(value)), "containerEdits!": _EDITS, **_ANNOTATED}],
    "containerEdits": _EDITS,
    **_ANNOTATED,
}


def _wrong(content: dict[str, Any]) -> Iterator[str]:
    """Yield why the library does not take a specification."""
    yield from _misfits(content, _SPECIFICATION, "the file")
    devices = {str(each["name"]): each["containerEdits"] for each in content["devices"]}
    if len(devices) < len(content["devices"]):
        yield "it has a device twice"
    yield from (f"the device {name} has no containerEdits" for name, own in devices.items() if not any(own.values()))
    version, known = str(content["cdiVersion"]).removeprefix("v"), tables.toolkit().cdi_versions
    if version not in known and not (_VERSION.fullmatch(version) and not versions.at_least(known[-1], version)):
        yield f"there is no cdiVersion {version[:60]!r}"
        return
    edits = [content.get("containerEdits") or {}, *devices.values()]
    used = {
        "1.1.0": any(each.get("netDevices") for each in edits),
        "0.7.0": any(each.get("intelRdt") or each.get("additionalGids") for each in edits),
        "0.6.0": any(each.get("annotations") for each in (content, *content["devices"])),
        "0.5.0": any(name[:1].isdigit() for name in devices)
        or any(each.get("hostPath") for each in _entries(edits, "deviceNodes")),
        "0.4.0": any(each.get("type") for each in _entries(edits, "mounts")),
        "0.3.0": True,
    }
    if not versions.at_least(version, least := next(each for each, is_used in used.items() if is_used)):
        yield f"cdiVersion is {version}, and what it has needs {least}"


def _misfits(value: Any, form: Any, name: str) -> Iterator[str]:
    """Yield what in a value is not of a form: a table of fields, a list of one form, some values, or a function."""
    if isinstance(form, dict) and isinstance(value, dict):
        needed = [field[:-1] for field in form if field.endswith("!")]
        yield from (f"{name} has no {field}" for field in needed if value.get(field) in (None, "", [], {}))
        fields = {field.removesuffix("!"): own for field, own in form.items()}
        for field, each in value.items():
            if field not in fields:
                yield f"{name} has a field {str(field)[:60]!r}, which CDI does not have"
            elif each is not None:
                yield from _misfits(each, fields[field], str(field))
    elif isinstance(form, list) and isinstance(value, list):
        for each in value:
            yield from _misfits(each, form[0], name)
    elif isinstance(form, dict | list) or not (form(value) if callable(form) else value in form):
        yield f"{name} is {str(value)[:60]!r}"
