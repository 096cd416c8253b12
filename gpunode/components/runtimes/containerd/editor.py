"""The edit of containerd's root configuration file, by the schemas that a containerd version reads.

A pure function on text: comments, order and other keys are kept (gpunode/base/toml_edit.py), and a text with the
desired values comes back unchanged. The table of schemas is data/containerd.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from typing import Any

from gpunode.base import tables, versions
from gpunode.base.tables.sources import ContainerdSchema
from gpunode.base.toml_edit import BOM, ConfigurationRefused, Table, edited, filled, put, table_in
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME, Runtimes, is_own_runtime

_RANGE = re.compile(r"^(?P<major>\d+)\.(?:x|(?P<first>\d+)(?:-\d+\.(?P<last>\d+))?)$")
_PLUGINS = {
    1: "cri",
    2: "io.containerd.grpc.v1.cri",
    3: "io.containerd.cri.v1.runtime",
    4: "io.containerd.cri.v1.runtime",
}


def schema_of(containerd_version: str) -> ContainerdSchema:
    """Return the schemas that a containerd version such as `1.6.20~ds1` reads; raise ConfigurationRefused."""
    try:
        major, minor = (int(part) for part in versions.major_minor(containerd_version).split("."))
    except versions.VersionError as error:
        raise ConfigurationRefused(f"{containerd_version!r} is not a containerd version such as 1.7.24") from error
    for schema in tables.containerd().schemas:
        match = _RANGE.match(schema.containerd)
        if match is None or int(match["major"]) != major:
            continue
        first = int(match["first"] or 0)
        if first <= minor <= int(match["last"] or (first if match["first"] else minor)):
            return schema
    known = ", ".join(schema.containerd for schema in tables.containerd().schemas)
    raise ConfigurationRefused(f"containerd {major}.{minor} is not supported. Remedy: install one that is: {known}")


def cri_plugin(file_version: int) -> str:
    """Return the key under `plugins` that holds the runtimes in a file of a schema version."""
    return _PLUGINS[file_version]


def default_table_counts(containerd_version: str) -> bool:
    """Return whether this containerd reads the table `default_runtime`, which then wins over `default_runtime_name`."""
    version = versions.major_minor(containerd_version)
    return not versions.at_least(version, tables.containerd().default_table_before)


def as_read(text: str, containerd_version: str) -> str:
    """Return a file's text, without a byte order mark where this containerd cannot read one."""
    version = versions.major_minor(containerd_version)
    if versions.at_least(version, tables.containerd().byte_order_mark_before):
        return text.removeprefix(BOM)
    return text


def names_runtime(default_runtime: Any) -> bool:
    """Return whether a table `default_runtime` names a runtime: `containerd config default` prints an empty one."""
    return isinstance(default_runtime, Mapping) and bool(default_runtime.get("runtime_type"))


RUNC_TYPE = "io.containerd.runc.v2"
# containerd's CRI configuration guide: enable_cdi is an option since 1.7.
_CDI_SINCE = "1.7"


def cdi_option(cdi: bool | None, containerd_version: str | None) -> bool | None:
    """Return the desired value of enable_cdi, None where the version has no such option and CDI is on as desired."""
    return None if cdi and containerd_version and _has_always(containerd_version) else cdi


def _has_always(containerd_version: str) -> bool:
    return versions.at_least(versions.major_minor(containerd_version), tables.containerd().cdi_always_since)


# The nodes of a fleet have the same file, and parsing it takes longer than the whole decision.
@lru_cache(maxsize=256)
def render(text: str | None, containerd_version: str, desired: Runtimes) -> str:
    """Return the text of the root file with the desired runtimes.

    text: the actual text; None or empty: there is no file
    Raise ConfigurationRefused where it is no TOML, or has a schema version that this containerd does not read.
    """
    schema = schema_of(containerd_version)

    def edit(document: Table) -> None:
        version = schema_version(document, schema, containerd_version)
        _enable_cri(document)
        plugin = table_in(table_in(document, "plugins", hidden=True), cri_plugin(version))
        add_runtimes(plugin, containerd_version, desired)

    return edited(as_read(text or "", containerd_version), edit)


def add_runtimes(
    plugin: Table, containerd_version: str, desired: Runtimes, root: Mapping[str, Any] | None = None
) -> None:
    """Set the desired runtimes in the CRI plugin's table; raise ConfigurationRefused where this containerd has no CDI.

    root: the root file's table of that plugin, where containerd merges it with `plugin`, which is of a drop-in
    """
    if desired.cdi and not versions.at_least(versions.major_minor(containerd_version), _CDI_SINCE):
        raise ConfigurationRefused(f"containerd {containerd_version} has no CDI. Remedy: install {_CDI_SINCE} or newer")
    if desired.cdi is False and _has_always(containerd_version):
        raise ConfigurationRefused(
            f"containerd {containerd_version} always has CDI on. Remedy: leave containerd.cdi out, or set it to True"
        )
    if (cdi := cdi_option(desired.cdi, containerd_version)) is not None:
        put(plugin, "enable_cdi", cdi)
    containerd = table_in(plugin, "containerd", hidden=True)
    if default_table_counts(containerd_version) and names_runtime(containerd.get("default_runtime")):
        del containerd["default_runtime"]
    runtimes = table_in(containerd, "runtimes", hidden=True)
    actual = _runtimes_of(root) if root is not None else runtimes
    runc: dict[str, Any] = {}
    if "nvidia" not in runtimes and "nvidia" not in actual and isinstance(actual.get("runc"), Mapping):
        filled(runc, actual["runc"])
    # The runc entry too: a file that names only nvidia leaves runc undefined on 1.6 and 1.7 (data/containerd.yaml).
    _runtime(runtimes, "runc", {"SystemdCgroup": desired.systemd_cgroup})
    if desired.nvidia:
        # As nvidia-ctk does: a new runtime nvidia, which calls runc, takes over the settings of runc (a base
        # specification, annotations, a snapshotter).
        filled(table_in(runtimes, "nvidia"), runc)
        nvidia = _runtime(runtimes, "nvidia", {"BinaryName": NVIDIA_RUNTIME, "SystemdCgroup": desired.systemd_cgroup})
        put(nvidia, "privileged_without_host_devices", False)
    elif desired.nvidia is False and is_own_runtime(_program(runtimes.get("nvidia"))):
        del runtimes["nvidia"]
    put(containerd, "default_runtime_name", desired.default)


def schema_version(document: Table, schema: ContainerdSchema, containerd_version: str) -> int:
    """Return the schema version to edit a file by; a new file gets this containerd's default.

    Raise ConfigurationRefused where this containerd does not read the file.
    """
    if not document:
        document["version"] = schema.default_version
    # A missing version key means version 1.
    version = document.get("version", 1)
    if isinstance(version, bool) or not isinstance(version, int) or version not in schema.accepts:
        raise ConfigurationRefused(
            f"the file has version = {version!r}, but containerd {containerd_version} reads "
            f"{', '.join(str(accepted) for accepted in schema.accepts)}"
            ". Remedy: convert it with `containerd config migrate`, or move it away",
            "version",
        )
    if version == 1:
        return _of_version_1(document, schema, containerd_version)
    plugins = document.get("plugins")
    if version == 2 and isinstance(plugins, Mapping) and cri_plugin(3) in plugins:
        raise ConfigurationRefused(
            f"the file has version = 2, but its section {cri_plugin(3)} belongs to version 3, and containerd reads "
            f"{cri_plugin(2)} instead. Remedy: set version = 3 where containerd is 2.0 or newer, else rename it",
            cri_plugin(3),
        )
    return int(version)


def _of_version_1(document: Table, schema: ContainerdSchema, containerd_version: str) -> int:
    """Return the version to edit by: 2 where no plugin is named, since version 1 has other plugin ids."""
    disabled = document.get("disabled_plugins", [])
    named = [name for name in disabled if name != "cri"] if isinstance(disabled, list) else [disabled]
    plugins = document.get("plugins", {})
    if not named and not plugins and "required_plugins" not in document:
        document["version"] = 2
        return 2
    if not schema.version_1_plugins:
        raise ConfigurationRefused(
            f"the file has schema version 1 (no `version` key) and names plugins, which containerd "
            f"{containerd_version} ignores. Remedy: convert it with `containerd config migrate`, or move it away"
        )
    if isinstance(plugins, MutableMapping) and (newer := sorted({cri_plugin(2), cri_plugin(3)} & set(plugins))):
        raise ConfigurationRefused(
            f"the file has no `version` key, so containerd ignores its section {newer[0]}. Remedy: write `version = "
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


def _program(runtime: Any) -> Any:
    """Return the program of a runtime, of either of containerd's shims."""
    options = runtime.get("options", {}) if isinstance(runtime, Mapping) else {}
    return (options.get("BinaryName") or options.get("Runtime")) if isinstance(options, Mapping) else None


def _runtimes_of(plugin: Mapping[str, Any]) -> Mapping[str, Any]:
    table: Any = plugin
    for name in ("containerd", "runtimes"):
        table = table.get(name, {}) if isinstance(table, Mapping) else {}
    return table if isinstance(table, Mapping) else {}
