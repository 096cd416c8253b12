"""The edit of containerd's root configuration file, by the schemas that a containerd version reads.

A pure function on text: comments, order and other keys are kept (gpunode/base/toml_edit.py), and a text with the
desired values comes back unchanged. The table of schemas is data/containerd.yaml.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gpunode.base import tables
from gpunode.base.toml_edit import BOM, ConfigurationRefused, Table, edited, filled, put, table_in
from gpunode.components.runtimes.containerd.companions import (
    default_of,
    drop_linux_settings,
    inherited,
    is_linux,
    linux_shim,
    refuse_unknown_default,
    refuse_unloadable,
    set_privileged,
    set_runtime,
    tables_in,
)
from gpunode.components.runtimes.containerd.keys import AsRead
from gpunode.components.runtimes.containerd.reading import (
    CRI_PARTS,
    reaches,
    schema_of,
    section_of,
    sections,
    version_of,
)
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME, Runtimes


def default_table_counts(containerd_version: str) -> bool:
    """Return whether this containerd reads the table `default_runtime`, which then wins over `default_runtime_name`."""
    return not reaches(containerd_version, tables.containerd().default_table_before)


def readable(text: str, containerd_version: str) -> str:
    """Return a file's text, without a byte order mark where this containerd cannot read one.

    Raise ConfigurationRefused where this is no version of containerd that gpunode knows how to configure.
    """
    schema_of(containerd_version)
    return text.removeprefix(BOM) if reaches(containerd_version, tables.containerd().byte_order_mark_before) else text


def names_runtime(default_runtime: Any) -> bool:
    """Return whether a table `default_runtime` names a runtime: `containerd config default` prints an empty one."""
    return isinstance(default_runtime, Mapping) and bool(default_runtime.get("runtime_type"))


# containerd's CRI configuration guide: enable_cdi is an option since 1.7.
_CDI_SINCE = "1.7"


def cdi_option(cdi: bool | None, containerd_version: str | None) -> bool | None:
    """Return the desired value of enable_cdi, None where the version has no such option and CDI is on as desired."""
    return None if cdi and containerd_version and cdi_is_always_on(containerd_version) else cdi


def cdi_is_always_on(containerd_version: str) -> bool:
    """Return whether this containerd has no option for CDI, which is always on."""
    return reaches(containerd_version, tables.containerd().cdi_always_since)


# The nodes of a fleet have the same file, and parsing it takes longer than the whole decision.
@lru_cache(maxsize=256)
def render(text: str | None, containerd_version: str, desired: Runtimes) -> str:
    """Return the text of the root file with the desired runtimes.

    text: the actual text; None or empty: there is no file
    Raise ConfigurationRefused where it is no TOML, or has a schema version that this containerd does not read.
    """

    def edit(table: Table) -> None:
        document = AsRead(table, containerd_version)
        version = schema_version(document, containerd_version)
        _enable_cri(document)
        plugins, name = table_in(document, "plugins", hidden=True), section_of(document, version, containerd_version)
        add_runtimes(plugins, name, containerd_version, desired, plugins, merges=False)
        refuse_unknown_default(desired.default, document.get("imports"), plugins[name]["containerd"])

    return edited(readable(text or "", containerd_version), edit)


def add_runtimes(
    plugins: Table, name: str, containerd_version: str, desired: Runtimes, root: Mapping[str, Any], merges: bool
) -> None:
    """Set the desired runtimes in the CRI plugin's table; raise ConfigurationRefused where this containerd cannot.

    name: the key of that table in `plugins`
    root: the `plugins` of the root file; merges: whether containerd merges them with `plugins`, which are a drop-in's
    """
    legacy = default_table_counts(containerd_version)
    plugin = table_in(plugins, name)
    _set_cdi(plugin, containerd_version, desired.cdi)
    containerd = table_in(plugin, "containerd", hidden=True)
    merged = tables_in(root if merges else plugins, name, "containerd")
    was_linux, shim = is_linux(default_of(merged, legacy)), linux_shim(root, merged)
    new = inherited(merged, legacy) if "nvidia" not in tables_in(merged, "runtimes") else {}
    beneath = tables_in(merged, "runtimes") if merges else {}
    if legacy and names_runtime(containerd.get("default_runtime")):
        del containerd["default_runtime"]
    runtimes = table_in(containerd, "runtimes", hidden=True)
    cgroup = {"SystemdCgroup": desired.systemd_cgroup}
    # The runc entry too: a file that names only nvidia leaves runc undefined on 1.6 and 1.7 (data/containerd.yaml).
    set_runtime(table_in(runtimes, "runc"), cgroup, tables_in(beneath, "runc"), shim, legacy)
    if desired.nvidia:
        nvidia = table_in(runtimes, "nvidia")
        filled(nvidia, new)
        set_runtime(nvidia, {"BinaryName": NVIDIA_RUNTIME, **cgroup}, tables_in(beneath, "nvidia"), shim, legacy)
        set_privileged(nvidia, tables_in(beneath, "nvidia"), [runtimes, beneath])
    elif desired.nvidia is False and "nvidia" in runtimes:
        del runtimes["nvidia"]
    if legacy and was_linux:
        drop_linux_settings(plugin, desired.default)
    put(containerd, "default_runtime_name", desired.default)
    refuse_unloadable(root if merges else plugins, name, containerd_version, legacy)


def _set_cdi(plugin: Table, containerd_version: str, desired: bool | None) -> None:
    if desired and not reaches(containerd_version, _CDI_SINCE):
        raise ConfigurationRefused(f"containerd {containerd_version} has no CDI. Remedy: install {_CDI_SINCE} or newer")
    if desired is False and cdi_is_always_on(containerd_version):
        raise ConfigurationRefused(
            f"containerd {containerd_version} always has CDI on. Remedy: leave containerd.cdi out, or set it to True"
        )
    if (cdi := cdi_option(desired, containerd_version)) is not None:
        put(plugin, "enable_cdi", cdi)


def schema_version(document: Table, containerd_version: str) -> int:
    """Return the schema version to edit a file by; a new file gets this containerd's default.

    document: the file's keys as this containerd reads them
    Raise ConfigurationRefused where this containerd does not read the file.
    """
    schema = schema_of(containerd_version)
    if not document:
        document["version"] = schema.default_version
    elif version_of(document) == 1 and not _names_plugins(document):
        document["version"] = 2
    version = version_of(document)
    if version is None or not sections(version, containerd_version):
        raise ConfigurationRefused(
            f"the file has version = {document['version']!r}, but containerd {containerd_version} reads "
            f"{', '.join(map(str, schema.sections))}"
            ". Remedy: convert it with `containerd config migrate`, or move it away",
            "version",
        )
    return version


def _names_plugins(document: Table) -> bool:
    """Return whether a file has names of plugins besides a disabled `cri`: version 1 has others than version 2."""
    disabled = document.get("disabled_plugins", [])
    others = [name for name in disabled if name != "cri"] if isinstance(disabled, list) else [disabled]
    return bool(others or document.get("plugins") or "required_plugins" in document)


def _enable_cri(document: Table) -> None:
    """Take the CRI plugin off `disabled_plugins`: Docker's containerd.io package ships it disabled."""
    disabled = document.get("disabled_plugins")
    if isinstance(disabled, list):
        for name in CRI_PARTS:
            while name in disabled:
                disabled.remove(name)
