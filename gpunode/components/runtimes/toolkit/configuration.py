"""The toolkit's config.toml: what is asked of it, and the text that says so, with all that is not ours kept.

A pure function on text: comments, order and foreign keys stay as they are (gpunode/base/toml_edit.py), a key that
nobody asked for stays as it is, and a text that already says what is asked comes back unchanged.
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
MODE = (_RUNTIME, "mode")
# Behind a root that gpunode wrote: it goes with driver.root, and one without this is somebody's own.
_OURS = "by gpunode: driver.root"

Key = tuple[str, ...]
# What a key is to be; None: it is not to be there.
Asked = Mapping[Key, str | bool | None]


@dataclass(frozen=True)
class Difference:
    """Hold one key (written with dots) that is not as desired, with both sides as TOML writes them."""

    key: str
    actual: str
    desired: str


def asked_of(settings: ToolkitSettings, root: str | None = None) -> dict[Key, str | bool | None]:
    """Return the keys that the settings ask for; empty where they ask for none.

    root: where the driver's files stand (driver.root); None: nothing is known of the driver. NVIDIA's container of the
    toolkit writes ldconfig's path below that root, too (NVIDIA/nvidia-container-toolkit, cmd/nvidia-ctk-installer), for
    hosts that have none; what gpunode supports has its own, by which any container's cache is made.
    """
    desired: dict[Key, str | bool | None] = {}
    if root is not None:
        desired[ROOT] = root if root != "/" else None
    if settings.mode is not None:
        desired[MODE] = settings.mode
    if settings.no_cgroups is not None:
        desired[_CLI, "no-cgroups"] = settings.no_cgroups
    if settings.debug is not None:
        desired |= {key: path if settings.debug else None for key, path in _DEBUG.items()}
        desired[_RUNTIME, "log-level"] = "debug" if settings.debug else "info"
    if settings.accept_nvidia_visible_devices_envvar_when_unprivileged is not None:
        desired[ENVVAR] = settings.accept_nvidia_visible_devices_envvar_when_unprivileged
    if settings.accept_nvidia_visible_devices_as_volume_mounts is not None:
        desired[MOUNTS] = settings.accept_nvidia_visible_devices_as_volume_mounts
    return desired


def judged_of(text: str | None, desired: Asked) -> dict[Key, str | bool | None]:
    """Return what is asked, without a root that is / in both: no key, or `/`, or none that could be read."""
    rest = {key: value for key, value in desired.items() if key != ROOT}
    if ROOT not in desired or desired[ROOT] is not None:
        return dict(desired)
    try:
        return rest if _value(plain(text or ""), ROOT) in (None, "/") else dict(desired)
    except ConfigurationRefused:
        # Whoever asks for nothing of the file need not have it mended.
        return rest


def others_root(text: str | None, desired: Asked) -> str | None:
    """Return the root that somebody else wrote where the driver is to be at /; None where there is no such."""
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
    """Return the mode that config.toml says; None where it says none, or cannot be read."""
    try:
        return str(_value(plain(text or ""), MODE) or "") or None
    except ConfigurationRefused:
        return None


def render(text: str | None, desired: Asked) -> str:
    """Return the text of config.toml with what is asked; `text` is the present file, None for none.

    Raises ConfigurationRefused where the file cannot be parsed, has something else in a table's place, or a table in
    a value's.
    """
    return edited(text or "", lambda document: _change(document, desired))


def differences(text: str | None, desired: Asked) -> tuple[Difference, ...]:
    """Return the keys that are not as desired; raise ConfigurationRefused as `render` does."""
    actual = plain(text or "")
    found = []
    for key, value in desired.items():
        present = _value(actual, key)
        if present != value or type(present) is not type(value):
            found.append(Difference(".".join(key), _written(present), _written(value)))
    return tuple(found)


def faults(actual: ContainerToolkit, desired: Asked, version: str | None) -> list[Difference]:
    """Return the values by which no container starts, or none gets a GPU; not those that a run writes (`desired`).

    version: the toolkit's, None where another one comes. Raises ConfigurationRefused as `differences` does.
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
    if actual.daemons and all(files.get(name) in ("-", "e") for name in (table.runtimes if listed is None else listed)):
        wrong[f"{_RUNTIME}.runtimes"] = "a list with a program that is there"
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


_LDCONFIG, _FROM_CONTAINER = f"{_CLI}.ldconfig", "features.allow-ldconfig-from-container"
# What a value is, in the words of gpunode/data/toolkit.yaml.
_KINDS: Mapping[str, type] = {"a text": str, "true or false": bool, "a list of texts": list}


def _is(value: Any, kind: str) -> bool:
    texts = value if isinstance(value, list) else ()
    return isinstance(value, _KINDS[kind]) and all(isinstance(each, str) for each in texts)


def _value(table: Mapping[str, Any], key: Key) -> Any:
    """Return a key's value, None where there is none; raise ConfigurationRefused where a table of its is none."""
    for position, name in enumerate(key[:-1]):
        inner = table.get(name, {})
        if not isinstance(inner, Mapping):
            raise ConfigurationRefused(
                f"{'.'.join(key[: position + 1])} is no table, but {inner!r}. Remedy: correct it", name
            )
        table = inner
    value = table.get(key[-1])
    if isinstance(value, Mapping) or (isinstance(value, list) and any(isinstance(each, Mapping) for each in value)):
        # With a table would go what stands in it, and the comments behind it.
        raise ConfigurationRefused(
            f"{'.'.join(key)} is a table, where a value has its place. Remedy: correct it", key[-1]
        )
    return value


def _written(value: object) -> str:
    return "none" if value is None else tomlkit.item(value).as_string()


def _change(document: Table, desired: Asked) -> None:
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
            put(table, key[-1], value)
            if key == ROOT:
                _mark(table)


def _mark(table: Table) -> None:
    """Note behind a root that it is gpunode's, where nobody says anything and braces leave the room."""
    item = table.item(ROOT[-1]) if hasattr(table, "item") and not isinstance(table, InlineTable) else None
    if item is not None and not item.trivia.comment:
        item.comment(_OURS)
