"""The edit of docker's daemon.json.

A pure function on text: order, indentation and other keys are kept, and a text with the desired values comes back
unchanged.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, TypeVar

from gpunode.base import versions
from gpunode.base.structured_text import FILE, KeyTwiceError, TextError, TextLimitError, load_json
from gpunode.base.toml_edit import ConfigurationRefused, bare, ended_like, not_utf8, where
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME, Runtimes

_CGROUP_DRIVER = "native.cgroupdriver="
# Docker's release notes: runtimes in daemon.json since 1.12, `features.cdi` since 25.0, on by default since 28.2.
_OLDEST, CDI_SINCE, _CDI_DEFAULT_SINCE = "1.12", "25.0", "28.2"
Part = TypeVar("Part", dict[str, Any], list[Any])


# The nodes of a fleet have the same file, and parsing it takes longer than the whole decision.
@lru_cache(maxsize=256)
def render(text: str | None, docker_version: str, desired: Runtimes) -> str:
    """Return the text of daemon.json with the desired runtimes.

    text: the actual text; None or blank: there is no file
    Raise ConfigurationRefused where it is no JSON object, has a key twice or a comment, or this docker lacks a feature.
    """
    _check_version(docker_version, desired)
    before = text or ""
    body = bare(before)
    document = _parsed(body) if body.strip() else {}
    had = json.dumps(document)
    try:
        _edit(document, desired, versions.major_minor(docker_version))
    except ConfigurationRefused as refusal:
        line = where(before, [json.dumps(refusal.key)]) if refusal.key else ""
        raise ConfigurationRefused(f"{line}{refusal}") from None
    if json.dumps(document) == had and body.strip():
        return before
    if reason := not_utf8(before):
        raise ConfigurationRefused(reason)
    return ended_like(_written(document, _indent(body)), before)


def _edit(document: dict[str, Any], desired: Runtimes, docker: str) -> None:
    if desired.nvidia:
        _runtime(document)
    elif desired.nvidia is False and "nvidia" in (runtimes := _part(document, "runtimes", dict)):
        del runtimes["nvidia"]
        if not runtimes:
            del document["runtimes"]
    # dockerd does not start with a default runtime that it does not know; it knows shims of containerd by their type.
    names = {"runc", *_part(document, "runtimes", dict)}
    if desired.default not in names and not desired.default.startswith("io.containerd."):
        raise ConfigurationRefused(
            f"no runtime is called {desired.default}, but {', '.join(sorted(names))}. Remedy: set "
            "docker.default_runtime to one of them, or add it to `runtimes`"
        )
    # runc is docker's own default.
    if desired.default != (document.get("default-runtime") or "runc"):
        document["default-runtime"] = desired.default
    options, driver = _part(document, "exec-opts", list), f"{_CGROUP_DRIVER}{desired.manager}"
    drivers = [option for option in options if isinstance(option, str) and option.startswith(_CGROUP_DRIVER)]
    if drivers != [driver]:
        document["exec-opts"] = [option for option in options if option not in drivers] + [driver]
    if desired.cdi is not None:
        features = _part(document, "features", dict)
        if features.get("cdi", versions.at_least(docker, _CDI_DEFAULT_SINCE)) is not desired.cdi:
            document["features"] = features | {"cdi": desired.cdi}


def _written(document: dict[str, Any], indent: int | str) -> str:
    """Return the text of a document; raise ConfigurationRefused where it would be read as another one."""
    text = json.dumps(document, indent=indent, ensure_ascii=False) + "\n"
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a pair of surrogates, which only an escape can write
        text = json.dumps(document, indent=indent) + "\n"
    if json.dumps(_parsed(text)) != json.dumps(document):
        raise ConfigurationRefused("the file holds values that do not outlive an edit. Remedy: correct it")
    return text


def _check_version(docker_version: str, desired: Runtimes) -> None:
    try:
        actual = versions.major_minor(docker_version)
    except versions.VersionError as error:
        raise ConfigurationRefused(f"{docker_version!r} is not a docker version such as 26.1.5") from error
    if not versions.at_least(actual, _OLDEST):
        raise ConfigurationRefused(f"docker {actual} reads no runtimes. Remedy: install {_OLDEST} or newer")
    if desired.cdi and not versions.at_least(actual, CDI_SINCE):
        raise ConfigurationRefused(f"docker {actual} has no CDI. Remedy: install {CDI_SINCE} or newer")


def _parsed(text: str) -> dict[str, Any]:
    """Return what a file says; `null` says nothing, as to docker."""
    try:
        document = load_json(text, FILE, unique=True)
    except KeyTwiceError as error:
        raise ConfigurationRefused(f"{where(text, [json.dumps(error.key)])}{error}. Remedy: correct it") from None
    except TextError as error:
        what = "cannot be read" if isinstance(error, TextLimitError) else "is not JSON"
        if comment := _comment(text):
            raise ConfigurationRefused(f"{comment}, with which docker does not start. Remedy: remove it") from error
        raise ConfigurationRefused(f"the file {what}: {error}. Remedy: correct it, or move it away") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationRefused(f"the file is no JSON object, but {type(document).__name__}. Remedy: correct it")
    return document


# A string, or what begins a comment in other formats.
_STRING_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|(?P<comment>//|/\*|#)')


def _comment(text: str) -> str | None:
    """Return where a text has its first comment, as a message begins; None where it has none."""
    for match in _STRING_OR_COMMENT.finditer(text):
        if sign := match["comment"]:
            line = text.count("\n", 0, match.start()) + 1
            return f"line {line}: JSON has no comments, and the file has one ({sign})"
    return None


def _part(parent: dict[str, Any], key: str, kind: type[Part], made: bool = False) -> Part:
    """Return the object or list of a key; made: write a missing one. To docker, a null is a missing key."""
    part = kind() if parent.get(key) is None else parent[key]
    if not isinstance(part, kind):
        name = "object" if kind is dict else "list"
        raise ConfigurationRefused(
            f"{key!r} is no {name} in this file, but {json.dumps(part)[:80]}. Remedy: correct it", key
        )
    if made:
        parent[key] = part
    return part


def _runtime(document: dict[str, Any]) -> None:
    runtimes = _part(document, "runtimes", dict, made=True)
    runtime = _part(runtimes, "nvidia", dict, made=True)
    # Go's JSON reads these keys without regard to case, and the last of several spellings counts.
    read = {key.lower(): key for key in runtime}
    # docker does not start with runtimeType and path: the entry of nvidia-ctk replaces that of a shim.
    if any(runtime[key] for key in runtime if key.lower() in ("runtimetype", "options")):
        runtimes["nvidia"] = {"path": NVIDIA_RUNTIME, "args": []}
        return
    path = read.get("path", "path")
    if runtime.get(path) != NVIDIA_RUNTIME:
        runtime[path] = NVIDIA_RUNTIME
    # `args` is what nvidia-ctk writes, `runtimeArgs` what docker reads; either way it takes none.
    for key in runtime:
        if key.lower() in ("runtimeargs", "args") and runtime[key]:
            runtime[key] = []


def _indent(text: str) -> int | str:
    """Return the file's own indentation; four spaces, as docker's documentation has them, where it shows none."""
    match = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    if match is None:
        return 4
    return match[1] if "\t" in match[1] else len(match[1])
