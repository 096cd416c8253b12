"""The toolkit's config.toml: the keys that the settings name, and its text with them.

Pure functions on text: comments, order and all other keys stay as they are (gpunode/base/toml_edit.py), and a text that
already has the desired keys comes back unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomlkit
from tomlkit.items import InlineTable

from gpunode.base import tables, versions
from gpunode.base.toml_edit import ConfigurationRefused, Table, edited, parsed, plain, put, table_in
from gpunode.components.runtimes.toolkit.state import ContainerToolkit
from gpunode.settings.runtimes import ToolkitSettings

PATH = "/etc/nvidia-container-runtime/config.toml"
ENVVAR = ("accept-nvidia-visible-devices-envvar-when-unprivileged",)
MOUNTS = ("accept-nvidia-visible-devices-as-volume-mounts",)
_RUNTIME, _CLI = "nvidia-container-runtime", "nvidia-container-cli"
# Where the toolkit's own commented-out lines would write them.
_DEBUG = {
    (_RUNTIME, "debug"): "/var/log/nvidia-container-runtime.log",
    (_CLI, "debug"): "/var/log/nvidia-container-toolkit.log",
}

# Where libnvidia-container looks for the driver, and `nvidia-ctk cdi generate` from 1.18 on.
ROOT = (_CLI, "root")
MODE, RUNTIMES, CGROUPS = (_RUNTIME, "mode"), (_RUNTIME, "runtimes"), (_CLI, "no-cgroups")
# The comment after a root that gpunode wrote: it goes with driver.root. A root without it belongs to an operator.
_OURS = "by gpunode: driver.root"

Key = tuple[str, ...]
# The desired value of a key; None: no such key; several texts: the first ones of its list.
Value = str | bool | tuple[str, ...] | None
Keys = Mapping[Key, Value]


@dataclass(frozen=True)
class Difference:
    """One key, written with dots, that is not as desired, with both sides as TOML writes them."""

    key: str
    actual: str
    desired: str


def desired_keys(
    settings: ToolkitSettings, root: str | None = None, programs: tuple[str, ...] = ()
) -> dict[Key, Value]:
    """Return the keys that the settings name.

    root: where the driver's files are (driver.root); None: not known. NVIDIA's container of the toolkit writes
    ldconfig's path below that root, too (NVIDIA/nvidia-container-toolkit, cmd/nvidia-ctk-installer), for hosts that
    have none; what gpunode supports has its own, by which any container's cache is made.
    programs: those that nvidia-container-runtime is to start before others, as `own_program` of containerd has it
    """
    values: dict[Key, Value] = {
        RUNTIMES: programs or None,
        MODE: settings.mode,
        CGROUPS: settings.no_cgroups,
        ENVVAR: settings.accept_nvidia_visible_devices_envvar_when_unprivileged,
        MOUNTS: settings.accept_nvidia_visible_devices_as_volume_mounts,
    }
    desired: dict[Key, Value] = {key: value for key, value in values.items() if value is not None}
    if root is not None:
        desired[ROOT] = root if root != "/" else None
    if settings.debug is not None:
        desired |= {key: path if settings.debug else None for key, path in _DEBUG.items()}
        desired[_RUNTIME, "log-level"] = "debug" if settings.debug else "info"
    return desired


def written_keys(actual: ContainerToolkit, desired: Keys, version: str | None) -> dict[Key, Value]:
    """Return the keys that a run writes: the desired ones, and those that it takes out.

    A mode and runtimes by which no container starts are taken out, for the toolkit's defaults work. A root that is / on
    both sides is no difference, and an unreadable file is left alone where the settings name no key.
    version: as in `faults`
    """
    written = dict(desired)
    try:
        if desired.get(ROOT, ROOT) is None and _value(plain(actual.config_text or ""), ROOT) in (None, "/"):
            del written[ROOT]
        wrong = {tuple(each.key.split(".")) for each in faults(actual, desired, version)}
    except ConfigurationRefused:
        return {key: value for key, value in desired.items() if key != ROOT or value is not None}
    defaults_work = any(dict(actual.files).get(name) == "x" for name in tables.toolkit().runtimes)
    resets = [MODE, RUNTIMES] if defaults_work else [MODE]
    return {**dict.fromkeys(wrong.intersection(resets)), **written}


def others_root(text: str | None, desired: Keys) -> str | None:
    """Return the root that an operator wrote where the driver is to be at /; None where there is none."""
    if ROOT not in desired or desired[ROOT] is not None:
        return None
    found = _value(plain(text or ""), ROOT)
    return None if found in (None, "/") or _is_marked(text or "") else str(found)


def _is_marked(text: str) -> bool:
    try:
        comment = parsed(text)[_CLI].item(ROOT[-1]).trivia.comment
    except Exception:  # what tomlkit does not master is nothing that gpunode wrote
        return False
    return str(comment).lstrip("# ") == _OURS


def runtime_mode(text: str | None) -> str | None:
    """Return the mode of config.toml; None where it has none, or cannot be read."""
    try:
        return str(_value(plain(text or ""), MODE) or "") or None
    except ConfigurationRefused:
        return None


def render(text: str | None, desired: Keys) -> str:
    """Return the text of config.toml with the desired keys; `text` is the actual file, None for none.

    Raises ConfigurationRefused where the file cannot be parsed, has something else in a table's place, or a table in
    a value's.
    """
    return edited(text or "", lambda document: _change(document, desired))


def differences(text: str | None, desired: Keys) -> tuple[Difference, ...]:
    """Return the keys that are not as desired; raise ConfigurationRefused as `render` does."""
    actual = plain(text or "")
    found = []
    for key, each in desired.items():
        present = _value(actual, key)
        value = _with_first(present, each)
        if present != value or type(present) is not type(value):
            found.append(Difference(".".join(key), _written(present), _written(value)))
    return tuple(found)


def _with_first(present: Any, value: Value) -> Any:
    """Return the desired value of a key: where that is the first ones of a list, the actual list with them."""
    if not isinstance(value, tuple):
        return value
    listed = present if _is(present, "a list of texts") else tables.toolkit().runtimes
    same = tuple(listed[: len(value)]) == value
    return listed if same else [*value, *(each for each in listed if each not in value)]


def faults(actual: ContainerToolkit, desired: Keys, version: str | None) -> list[Difference]:
    """Return the values by which no container starts, or none gets a GPU; not those that a run writes (`desired`).

    version: of the toolkit; None where another one comes. Raises ConfigurationRefused as `differences` does.
    """
    table, text, files = tables.toolkit(), plain(actual.config_text or ""), dict(actual.files)
    paths = {key: tuple(key.split(".")) for key in table.keys}
    values = {key: value for key, path in paths.items() if (value := _value(text, path)) is not None}
    wrong = {key: kind for key, kind in table.keys.items() if key in values and not _is(values[key], kind)}
    typed = {key: value for key, value in values.items() if key not in wrong}
    modes = [mode for mode, first in table.modes.items() if version is None or versions.at_least(version, first)]
    mode, listed = (typed.get(f"{_RUNTIME}.{key}") for key in ("mode", "runtimes"))
    # A newer toolkit may know more modes than the table.
    if modes and mode is not None and mode not in modes and not tables.releases()["toolkit"].is_newer(version):
        wrong[f"{_RUNTIME}.mode"] = f"one of {', '.join(modes)}"
    mode = desired.get(MODE) or mode
    if actual.daemons and all(files.get(name) in ("-", "e") for name in (table.runtimes if listed is None else listed)):
        wrong[f"{_RUNTIME}.runtimes"] = "a list with a program that is there"
    # docker's --gpus goes by nvidia-container-cli in mode auto, too: its hook takes that for legacy in every version.
    if actual.daemons and typed.get(_NO_CGROUPS) is True and mode in (None, "auto", "legacy"):
        wrong[_NO_CGROUPS] = "false, for containers of a runtime that root runs get no access to a GPU"
    if version is not None:
        if mode in (None, "auto"):
            mode = "jit-cdi" if "jit-cdi" in modes else "legacy"
        for key, needing in table.files.items():
            if mode in needing and "/" in (path := typed.get(key, "")) and files.get(path) == "-":
                wrong[key] = "a path that is there"
        by_node = versions.at_least(version, table.ldconfig_of_node) and typed.get(_FROM_CONTAINER) is not True
        if by_node and not typed.get(_LDCONFIG, "@").startswith("@"):
            wrong[_LDCONFIG] = "a path of the node with an @ in front"
    return [Difference(key, _written(values.get(key)), wrong[key]) for key in wrong if paths[key] not in desired]


_LDCONFIG, _NO_CGROUPS = f"{_CLI}.ldconfig", ".".join(CGROUPS)
_FROM_CONTAINER = "features.allow-ldconfig-from-container"
# What a value is, in the words of gpunode/data/toolkit.yaml.
_KINDS: Mapping[str, type] = {"a text": str, "true or false": bool, "a list of texts": list}


def _is(value: Any, kind: str) -> bool:
    texts = value if isinstance(value, list) else ()
    return isinstance(value, _KINDS[kind]) and all(isinstance(each, str) for each in texts)


def _value(table: Mapping[str, Any], key: Key) -> Any:
    """Return a key's value, None where there is none; raise ConfigurationRefused where its table is no table."""
    for position, name in enumerate(key[:-1]):
        inner = table.get(name, {})
        if not isinstance(inner, Mapping):
            raise ConfigurationRefused(
                f"{'.'.join(key[: position + 1])} is no table, but {inner!r}. Remedy: correct it", name
            )
        table = inner
    value = table.get(key[-1])
    if isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(each, Mapping) for each in value)):
        # The table's keys and comments would go with it.
        raise ConfigurationRefused(
            f"{'.'.join(key)} is a table, where a value has its place. Remedy: correct it", key[-1]
        )
    return value


def _written(value: object) -> str:
    return "none" if value is None else tomlkit.item(value).as_string()


def _change(document: Table, desired: Keys) -> None:
    for key, value in desired.items():
        present = _value(document, key)
        if value is None and present is None:
            continue
        table = document
        for name in key[:-1]:
            table = table_in(table, name)
        if value is None:
            del table[key[-1]]
        else:
            put(table, key[-1], _with_first(present, value))
            if key == ROOT:
                _mark(table)


def _mark(table: Table) -> None:
    """Comment a root as gpunode's, where it has no comment and is in no inline table."""
    item = table.item(ROOT[-1]) if hasattr(table, "item") and not isinstance(table, InlineTable) else None
    if item is not None and not item.trivia.comment:
        item.comment(_OURS)
