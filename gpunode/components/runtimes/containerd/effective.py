"""The values for the runtimes, of one file of containerd and of its merged configuration (`containerd config dump`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpunode.base.reading import ParseError, Reading
from gpunode.base.structured_text import TextError, load_toml
from gpunode.components.runtimes.containerd.companions import program_of
from gpunode.components.runtimes.containerd.editor import names_runtime
from gpunode.components.runtimes.containerd.keys import as_read
from gpunode.components.runtimes.containerd.reading import CRI_PLUGINS

# The default runtime where the deprecated table of that name wins over `default_runtime_name`.
DEFAULT_TABLE = "the table default_runtime"


@dataclass(frozen=True)
class Runtime(Reading):
    """One runtime of the merged configuration."""

    name: str
    type: str | None
    binary: str | None
    systemd_cgroup: bool


def effective_runtimes(merged: str, containerd_version: str | None = None) -> tuple[str | None, tuple[Runtime, ...]]:
    """Return the default runtime's name and all runtimes of a merged configuration (TOML text).

    The name is DEFAULT_TABLE where containerd reads that table: another version does not print it.
    """
    return runtimes_of(merged_document(merged, containerd_version))


def merged_document(merged: str, containerd_version: str | None) -> dict[str, Any]:
    """Return a merged configuration with the keys that gpunode knows in their own spelling; raise ParseError."""
    try:
        return as_read(load_toml(merged), containerd_version)
    except TextError as error:
        raise ParseError(f"`containerd config dump` cannot be read as TOML: {error}") from error


def runtimes_of(document: Mapping[str, Any]) -> tuple[str | None, tuple[Runtime, ...]]:
    """Return the default runtime's name and all runtimes of a merged configuration."""
    containerd = _table(_section(document), "containerd")
    runtimes = _table(containerd, "runtimes")
    return _default_runtime(containerd), tuple(
        Runtime(
            name=name,
            type=_table(runtimes, name).get("runtime_type") or None,
            binary=program_of(runtimes[name]),
            systemd_cgroup=bool(_table(runtimes[name], "options").get("SystemdCgroup", False)),
        )
        for name in sorted(runtimes)
    )


def cdi_of(document: Mapping[str, Any]) -> bool | None:
    """Return whether CDI is on in a merged configuration; None where it has no such option."""
    cdi = _section(document).get("enable_cdi")
    return cdi if isinstance(cdi, bool) else None


def _section(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the section that counts: containerd 2 prints those of other versions too, and passes over them."""
    plugins = _table(document, "plugins")
    return next((_table(plugins, name) for name in CRI_PLUGINS if "containerd" in _table(plugins, name)), {})


def _table(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the table under a key, empty where there is none; raise ParseError where something else is there."""
    table = parent.get(key, {})
    if not isinstance(table, Mapping):
        raise ParseError(f"{key!r} is no table, but {str(table)[:80]!r}")
    return table


def _default_runtime(containerd: Mapping[str, Any]) -> str | None:
    if names_runtime(containerd.get("default_runtime")):
        return DEFAULT_TABLE
    name = containerd.get("default_runtime_name")
    return name if isinstance(name, str) else None


def cri_settings(
    document: dict[str, Any], reads_table: bool = True, plugins: Iterable[str] = CRI_PLUGINS
) -> dict[str, str]:
    """Return the values for the runtimes of a file as read: key below the CRI plugin -> value in TOML.

    Raise ParseError where something else is in a table's place.

    plugins: the sections that count
    reads_table: whether the containerd reads the table `default_runtime`
    """
    values: dict[str, str] = {}
    for plugin in plugins:
        section = _table(_table(document, "plugins"), plugin)
        set_value(values, "enable_cdi", section.get("enable_cdi"))
        containerd = _table(section, "containerd")
        default = _default_runtime(containerd) if reads_table else containerd.get("default_runtime_name")
        set_value(values, "containerd.default_runtime_name", default)
        runtimes = _table(containerd, "runtimes")
        for name in runtimes:
            options = _table(_table(runtimes, name), "options")
            for option in ("BinaryName", "SystemdCgroup"):
                set_value(values, f"containerd.runtimes.{name}.options.{option}", options.get(option))
    return values


def set_value(values: dict[str, str], key: str, value: Any) -> None:
    """Add a value as TOML has it; an empty one, or one of another type, is none.

    key: below the CRI plugin
    """
    if isinstance(value, bool):
        values[key] = str(value).lower()
    elif isinstance(value, str) and value:
        values[key] = value
