"""Turn containerd's root configuration file into the one that is asked for, keeping all that is not ours.

A pure function on text: comments, order and foreign keys stay as they are (tomlkit), and a text that already says
what is asked comes back unchanged.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any, cast

import tomlkit
from tomlkit.exceptions import TOMLKitError

from gpunode import versions
from gpunode.containerd.schema import UnsupportedContainerd, cri_plugin, schema_of
from gpunode.tables import ContainerdSchema

RUNC_TYPE = "io.containerd.runc.v2"
NVIDIA_RUNTIME = "/usr/bin/nvidia-container-runtime"
# containerd's CRI configuration guide: enable_cdi is an option since 1.7.
_CDI_SINCE = "1.7"


class ConfigurationRefused(ValueError):
    """Say why a configuration file cannot be edited; the file is left as it is."""


@dataclass(frozen=True)
class Runtimes:
    """Hold what is asked: the default runtime, whether runc and nvidia use systemd's cgroups, whether nvidia is there.

    `cdi` sets enable_cdi; None leaves it as it is.
    """

    default: str = "nvidia"
    systemd_cgroup: bool = True
    nvidia: bool = True
    cdi: bool | None = None


def render(text: str | None, containerd_version: str, asked: Runtimes) -> str:
    """Return the text of the root file with the runtimes that are asked for.

    `text` is the present file, None or empty for none. Raises ConfigurationRefused where the file cannot be parsed or
    has a schema version that this containerd does not read.
    """
    document, schema = opened(text, containerd_version)
    version = file_version(document, schema, containerd_version)
    _enable_cri(document)
    add_runtimes(table_in(table_in(document, "plugins"), cri_plugin(version)), containerd_version, asked)
    return tomlkit.dumps(document)


def add_runtimes(plugin: MutableMapping[str, Any], containerd_version: str, asked: Runtimes) -> None:
    """Set what is asked in the CRI plugin's table; raise ConfigurationRefused where this containerd lacks it."""
    if asked.cdi and not versions.at_least(versions.major_minor(containerd_version), _CDI_SINCE):
        raise ConfigurationRefused(f"containerd {containerd_version} has no CDI; {_CDI_SINCE} is the first that has")
    if asked.cdi is not None:
        _set(plugin, "enable_cdi", asked.cdi)
    containerd = table_in(plugin, "containerd")
    runtimes = table_in(containerd, "runtimes")
    # The runc entry too: a file that names only nvidia leaves runc undefined on 1.6 and 1.7 (data/containerd.yaml).
    _runtime(runtimes, "runc", {"SystemdCgroup": asked.systemd_cgroup})
    if asked.nvidia:
        nvidia = _runtime(runtimes, "nvidia", {"BinaryName": NVIDIA_RUNTIME, "SystemdCgroup": asked.systemd_cgroup})
        _set(nvidia, "privileged_without_host_devices", False)
    _set(containerd, "default_runtime_name", asked.default)


def opened(text: str | None, containerd_version: str) -> tuple[tomlkit.TOMLDocument, ContainerdSchema]:
    """Return a file as a document, one that is new of this containerd's own version; and the schemas that it reads.

    Raises ConfigurationRefused.
    """
    try:
        schema = schema_of(containerd_version)
    except UnsupportedContainerd as error:
        raise ConfigurationRefused(str(error)) from error
    document = parsed(text or "")
    if not document.value:
        document["version"] = schema.default_version
    return document, schema


def parsed(text: str) -> tomlkit.TOMLDocument:
    """Parse a configuration file; raise ConfigurationRefused."""
    try:
        return tomlkit.parse(text)
    except TOMLKitError as error:
        raise ConfigurationRefused(f"the file is not TOML: {error}; mend it by hand or move it away") from error


def file_version(document: MutableMapping[str, Any], schema: ContainerdSchema, containerd_version: str) -> int:
    """Return the schema version to edit a file by; raise ConfigurationRefused where this containerd reads it not."""
    # A missing version key means version 1.
    version = document.get("version", 1)
    if not isinstance(version, int) or version not in schema.accepts:
        raise ConfigurationRefused(
            f"the file says version = {version!r}, but containerd {containerd_version} reads "
            f"{', '.join(str(accepted) for accepted in schema.accepts)}; convert it with `containerd config migrate` "
            "or move it away"
        )
    if version == 1:
        return _of_version_1(document, schema, containerd_version)
    return version


def _of_version_1(document: MutableMapping[str, Any], schema: ContainerdSchema, containerd_version: str) -> int:
    """Return the version to edit by: 2 where nothing stands in the way of it, for version 1 has other plugin ids."""
    disabled = document.get("disabled_plugins", [])
    named = [name for name in disabled if name != "cri"] if isinstance(disabled, list) else [disabled]
    plugins = document.get("plugins", {})
    if not named and not plugins and "required_plugins" not in document:
        document["version"] = 2
        return 2
    if not schema.version_1_plugins:
        raise ConfigurationRefused(
            f"the file is of schema version 1 (it has no `version` key) and names plugins, and containerd "
            f"{containerd_version} ignores them; convert it with `containerd config migrate`, or move it away"
        )
    if isinstance(plugins, MutableMapping) and (newer := sorted({cri_plugin(2), cri_plugin(3)} & set(plugins))):
        raise ConfigurationRefused(
            f"the file has no `version` key, so that its section {newer[0]} counts for nothing; write `version = "
            f"{2 if newer[0] == cri_plugin(2) else 3}` at its top, or move it away"
        )
    return 1


def _enable_cri(document: MutableMapping[str, Any]) -> None:
    """Take the CRI plugin off `disabled_plugins`: Docker's containerd.io package ships it disabled."""
    disabled = document.get("disabled_plugins")
    if not isinstance(disabled, list):
        return
    for name in ("cri", cri_plugin(2), cri_plugin(3)):
        while name in disabled:
            disabled.remove(name)


def _runtime(runtimes: MutableMapping[str, Any], name: str, options: dict[str, Any]) -> MutableMapping[str, Any]:
    runtime = table_in(runtimes, name)
    _set(runtime, "runtime_type", RUNC_TYPE)
    table = table_in(runtime, "options")
    for key, value in options.items():
        _set(table, key, value)
    return runtime


def table_in(parent: MutableMapping[str, Any], key: str) -> MutableMapping[str, Any]:
    """Return the table under `key`, made where it is missing; a super table, so that no empty header is printed."""
    if key not in parent:
        parent[key] = tomlkit.table(is_super_table=key in ("plugins", "containerd", "runtimes"))
    table = parent[key]
    if not isinstance(table, MutableMapping):
        raise ConfigurationRefused(f"{key!r} is no table in this file, but {table!r}; mend it by hand")
    return cast(MutableMapping[str, Any], table)


def _set(table: MutableMapping[str, Any], key: str, value: Any) -> None:
    """Set a key only where it differs, so that a file that is right keeps its spelling and inline comments."""
    if key in table and table[key] == value:
        return
    if key in table:
        item = tomlkit.item(value)
        old = table.item(key) if hasattr(table, "item") else None
        if old is not None:
            item.trivia.comment_ws, item.trivia.comment = old.trivia.comment_ws, old.trivia.comment
            item.trivia.trail = old.trivia.trail
        table[key] = item
    else:
        table[key] = value
