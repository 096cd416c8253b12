"""Turn containerd's root configuration file into the one that is asked for, keeping all that is not ours.

A pure function on text: comments, order and foreign keys stay as they are (gpunode/base/toml_edit.py), and a text that
already says what is asked comes back unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpunode.base import versions
from gpunode.base.tables.runtimes import ContainerdSchema
from gpunode.base.toml_edit import ConfigurationRefused, Table, edited, filled, put, table_in
from gpunode.components.containerd.schema import (
    UnsupportedContainerd,
    as_read,
    cri_plugin,
    default_table_counts,
    names_runtime,
    schema_of,
)

RUNC_TYPE = "io.containerd.runc.v2"
NVIDIA_RUNTIME = "/usr/bin/nvidia-container-runtime"
# containerd's CRI configuration guide: enable_cdi is an option since 1.7.
_CDI_SINCE = "1.7"


@dataclass(frozen=True)
class Runtimes:
    """Hold what is asked: the default runtime, whether runc and nvidia use systemd's cgroups, whether nvidia is there.

    `cdi` sets enable_cdi; None leaves it as it is.
    """

    default: str = "nvidia"
    systemd_cgroup: bool = True
    nvidia: bool = True
    cdi: bool | None = None


# The nodes of a fleet have the same file, and parsing one takes longer than all else that is judged.
@lru_cache(maxsize=256)
def render(text: str | None, containerd_version: str, desired: Runtimes) -> str:
    """Return the text of the root file with the runtimes that are asked for.

    `text` is the present file, None or empty for none. Raises ConfigurationRefused where the file cannot be parsed or
    has a schema version that this containerd does not read.
    """
    schema = readable(containerd_version)

    def edit(document: Table) -> None:
        version = edited_by(document, schema, containerd_version)
        _enable_cri(document)
        plugin = table_in(table_in(document, "plugins", hidden=True), cri_plugin(version))
        add_runtimes(plugin, containerd_version, desired)

    return edited(as_read(text or "", containerd_version), edit)


def add_runtimes(
    plugin: Table, containerd_version: str, desired: Runtimes, root: Mapping[str, Any] | None = None
) -> None:
    """Set what is asked in the CRI plugin's table; raise ConfigurationRefused where this containerd lacks it.

    root: the root file's table of that plugin, where `plugin` is a drop-in's that is merged with it
    """
    if desired.cdi and not versions.at_least(versions.major_minor(containerd_version), _CDI_SINCE):
        raise ConfigurationRefused(f"containerd {containerd_version} has no CDI; {_CDI_SINCE} is the first that has")
    if desired.cdi is not None:
        put(plugin, "enable_cdi", desired.cdi)
    containerd = table_in(plugin, "containerd", hidden=True)
    if default_table_counts(containerd_version) and names_runtime(containerd.get("default_runtime")):
        del containerd["default_runtime"]
    runtimes = table_in(containerd, "runtimes", hidden=True)
    beside = _runtimes_of(root) if root is not None else runtimes
    like = _plain_copy(beside.get("runc")) if "nvidia" not in runtimes and "nvidia" not in beside else {}
    # The runc entry too: a file that names only nvidia leaves runc undefined on 1.6 and 1.7 (data/containerd.yaml).
    _runtime(runtimes, "runc", {"SystemdCgroup": desired.systemd_cgroup})
    if desired.nvidia:
        # As nvidia-ctk does: what holds for runc (a base specification, annotations, a snapshotter) holds for a new
        # runtime that hands GPUs in and then calls it.
        filled(table_in(runtimes, "nvidia"), like)
        nvidia = _runtime(runtimes, "nvidia", {"BinaryName": NVIDIA_RUNTIME, "SystemdCgroup": desired.systemd_cgroup})
        put(nvidia, "privileged_without_host_devices", False)
    put(containerd, "default_runtime_name", desired.default)


def readable(containerd_version: str) -> ContainerdSchema:
    """Return the schemas that a containerd reads; raise ConfigurationRefused."""
    try:
        return schema_of(containerd_version)
    except UnsupportedContainerd as error:
        raise ConfigurationRefused(str(error)) from error


def edited_by(document: Table, schema: ContainerdSchema, containerd_version: str) -> int:
    """Return the schema version to edit a file by, a new file's being this containerd's own; ConfigurationRefused."""
    if not document:
        document["version"] = schema.default_version
    version = file_version(document, schema, containerd_version)
    plugins = document.get("plugins")
    if version == 2 and isinstance(plugins, Mapping) and cri_plugin(3) in plugins:
        raise ConfigurationRefused(
            f"the file says version = 2, and its section {cri_plugin(3)} is one of version 3, which counts for nothing "
            f"beside {cri_plugin(2)}; write version = 3 where containerd is 2.0 or newer, else give the section the "
            "name of version 2",
            cri_plugin(3),
        )
    return version


def file_version(document: Table, schema: ContainerdSchema, containerd_version: str) -> int:
    """Return the schema version to edit a file by; raise ConfigurationRefused where this containerd reads it not."""
    # A missing version key means version 1.
    version = document.get("version", 1)
    if isinstance(version, bool) or not isinstance(version, int) or version not in schema.accepts:
        raise ConfigurationRefused(
            f"the file says version = {version!r}, but containerd {containerd_version} reads "
            f"{', '.join(str(accepted) for accepted in schema.accepts)}; convert it with `containerd config migrate` "
            "or move it away",
            "version",
        )
    if version == 1:
        return _of_version_1(document, schema, containerd_version)
    return int(version)


def _of_version_1(document: Table, schema: ContainerdSchema, containerd_version: str) -> int:
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


def _enable_cri(document: Table) -> None:
    """Take the CRI plugin off `disabled_plugins`: Docker's containerd.io package ships it disabled."""
    disabled = document.get("disabled_plugins")
    if not isinstance(disabled, list):
        return
    for name in ("cri", cri_plugin(2), cri_plugin(3)):
        while name in disabled:
            disabled.remove(name)


def _runtime(runtimes: Table, name: str, options: dict[str, Any]) -> Table:
    runtime = table_in(runtimes, name)
    put(runtime, "runtime_type", RUNC_TYPE)
    table = table_in(runtime, "options")
    for key, value in options.items():
        put(table, key, value)
    return runtime


def _runtimes_of(plugin: Mapping[str, Any]) -> Mapping[str, Any]:
    table: Any = plugin
    for name in ("containerd", "runtimes"):
        table = table.get(name, {}) if isinstance(table, Mapping) else {}
    return table if isinstance(table, Mapping) else {}


def _plain_copy(table: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(table, Mapping):
        filled(found, table)
    return found
