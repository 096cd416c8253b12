"""Keys of a runtime that belong together: what a new one inherits, and what goes with a changed `runtime_type`.

Read in the source of containerd 1.6.20, 1.7.24, 2.2.9, 2.3.7 and 2.4.2 (config.go and helpers.go), and tried with
these programs. nvidia-ctk 1.20.2 inherits from the same runtime, but takes over a foreign type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from gpunode.base import versions
from gpunode.base.toml_edit import ConfigurationRefused, Table, filled, put, table_in

if TYPE_CHECKING:
    from gpunode.components.runtimes.containerd.state import Containerd

RUNC_TYPE = "io.containerd.runc.v2"
# containerd 1's shim that alone has `runtime_engine`, `runtime_root`, `no_pivot` and the CRI plugin's `systemd_cgroup`.
_LINUX_TYPE = "io.containerd.runtime.v1.linux"
_LINUX_PLUGINS = ("linux", _LINUX_TYPE)
_RUNC_TYPES = ("", RUNC_TYPE, "io.containerd.runc.v1", _LINUX_TYPE)
# Key of a runtime of the v1.linux shim -> key of that shim's plugin -> option there -> option of runc.v2.
_MOVED = (
    ("runtime_engine", "runtime", "Runtime", "BinaryName"),
    ("runtime_root", "runtime_root", "RuntimeRoot", "Root"),
)
_MOVED_KEYS = tuple(key for key, *_ in _MOVED)
# Keys that only shims of other types have (Kata Containers, gVisor), in a runtime and in its options.
_SHIM_KEYS = ("runtime_path", "sandboxer", "sandbox_mode", "io_type", "disable_pause_image_pull")
_SHIM_OPTIONS = ("TypeUrl", "ConfigPath", "ConfigBody")
_PRIVILEGED, _ALL_DEVICES = (f"privileged_without_host_devices{end}" for end in ("", "_all_devices_allowed"))
_ALL_DEVICES_SINCE = "1.7"
_IMAGES_PLUGIN = "io.containerd.cri.v1.images"


def is_runc_type(runtime_type: str | None) -> bool:
    """Return whether a runtime of this type starts containers by runc or by a program with runc's command line."""
    return (runtime_type or "") in _RUNC_TYPES


def tables_in(table: Any, *names: str) -> Mapping[str, Any]:
    """Return the table below others; empty where there is none."""
    for name in names:
        table = table.get(name) if isinstance(table, Mapping) else None
    return table if isinstance(table, Mapping) else {}


def default_of(containerd: Mapping[str, Any], legacy: bool) -> Mapping[str, Any]:
    """Return the table of the default runtime; empty where the file has none for it.

    legacy: containerd 1 reads the deprecated table `default_runtime`, which then wins
    """
    deprecated = tables_in(containerd, "default_runtime")
    if legacy and deprecated.get("runtime_type"):
        return deprecated
    return tables_in(containerd, "runtimes", str(containerd.get("default_runtime_name") or "runc"))


def inherited(containerd: Mapping[str, Any], legacy: bool) -> dict[str, Any]:
    """Return the keys that a new runtime nvidia inherits: of the default runtime, else of runc, else of crun.

    A default runtime of another type is passed over, since its options mean nothing to runc. The entry runc becomes one
    of runc.v2 whatever its type was, and keeps the keys that are no other shim's.
    """
    runtimes = tables_in(containerd, "runtimes")
    runc = tables_in(runtimes, "runc")
    is_nvidia = str(containerd.get("default_runtime_name", "")).startswith("nvidia")
    default, crun = {} if is_nvidia else default_of(containerd, legacy), tables_in(runtimes, "crun")
    source = default if default and _is_runc(default) else runc or (crun if _is_runc(crun) else {})
    keys: dict[str, Any] = {}
    filled(keys, source)
    if not _is_runc(source):
        _drop_foreign(keys)
    if not (legacy or is_linux(source)):
        _drop(keys, *_MOVED_KEYS)  # containerd 2 warns of these at each start, and reads them nowhere.
    return keys


def linux_shim(plugins: Mapping[str, Any], containerd: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the v1.linux shim takes from elsewhere: program and root folder of its plugin, and `no_pivot`."""
    own = next((tables_in(plugins, name) for name in _LINUX_PLUGINS if name in plugins), {})
    return {**own, "no_pivot": containerd.get("no_pivot")}


def set_runtime(
    runtime: Table, options: Mapping[str, Any], beneath: Mapping[str, Any], shim: Mapping[str, Any], legacy: bool
) -> None:
    """Set the type runc.v2 and these options; move what the type before has under other keys.

    beneath: the root file's table, where containerd merges it with `runtime`, which is a drop-in's
    shim: of `linux_shim`
    """
    whole: Table = {} if beneath else runtime
    filled(whole, beneath)
    if not _is_runc(whole):
        _drop_foreign(whole)
    linux = is_linux(whole)
    moved = dict(_moved(whole, shim, linux)) if linux or legacy else {}
    put(runtime, "runtime_type", RUNC_TYPE)
    # A drop-in can only empty a key of the root file; the order is fixed, so that each run writes the same text.
    for key in (key for key in _SHIM_KEYS if key in beneath and key not in whole):
        put(runtime, key, "" if isinstance(beneath[key], str) else False)
    table = table_in(runtime, "options")
    for key, value in {**moved, **options}.items():
        put(table, key, value)


def _moved(runtime: Table, shim: Mapping[str, Any], linux: bool) -> Iterator[tuple[str, Any]]:
    """Remove from a runtime what only the v1.linux shim reads, and yield it as options of runc.v2."""
    options = tables_in(runtime, "options")
    for key, shim_key, old_option, option in _MOVED:
        # That shim reads the runtime's own keys only where it has no options, and its plugin's keys last.
        values = [options.get(old_option), options.get(option), runtime.get(key), shim.get(shim_key)]
        value = next((value for value in (values if linux else values[1:3]) if value), None)
        if runtime.get(key):
            _drop(runtime, key)
        if linux:
            _drop(options, old_option)
        if value and value != "runc":
            yield option, value
    if linux and shim.get("no_pivot"):
        yield "NoPivotRoot", True


def program_of(runtime: Mapping[str, Any]) -> str | None:
    """Return the program of a runtime; None where its type takes the PATH's runc, or has no program."""
    return (
        tables_in(runtime, "options").get("BinaryName") or (is_linux(runtime) and runtime.get("runtime_engine")) or None
    )


def own_program(state: Containerd) -> str | None:
    """Return the program that a runtime nvidia calls in place of the PATH's runc: runc's own, else the default's.

    It is the same before a run and after it, when the default runtime is nvidia.
    """
    programs = {each.name: each.binary for each in state.runtimes if is_runc_type(each.type) and each.binary}
    program = programs.get("runc") or programs.get(state.default_runtime or "")
    # nvidia-container-runtime would call itself.
    return program if program and "nvidia-container-runtime" not in program else None


def set_privileged(nvidia: Table, beneath: Mapping[str, Any], runtimes: Iterable[Mapping[str, Any]]) -> None:
    """Keep `privileged_without_host_devices` where another runtime has it as well; else set it to false."""
    others = (each for tables in runtimes for name, each in tables.items() if name != "nvidia")
    if any(tables_in(each).get(_PRIVILEGED) for each in others) and _PRIVILEGED in {**beneath, **nvidia}:
        return
    put(nvidia, _PRIVILEGED, False)
    for table in (nvidia, beneath):
        if table.get(_ALL_DEVICES):
            put(nvidia, _ALL_DEVICES, False)


def drop_linux_settings(plugin: Table, default: str) -> None:
    """Remove the CRI plugin's `systemd_cgroup` and `no_pivot`, unless the default runtime is of the v1.linux shim.

    Other runtimes of that shim get `systemd_cgroup` as their option; raise ConfigurationRefused where they would lose
    `no_pivot`, for which they have no option.
    """
    containerd = plugin["containerd"]
    if is_linux(tables_in(containerd, "runtimes", default)):
        return
    runtimes = (*tables_in(containerd, "runtimes").values(), containerd.get("untrusted_workload_runtime"))
    others = [runtime for runtime in runtimes if isinstance(runtime, MutableMapping) and is_linux(runtime)]
    if containerd.get("no_pivot") and others:
        raise ConfigurationRefused(
            f"`no_pivot` works only where the default runtime is of type {_LINUX_TYPE}, and other runtimes of that "
            f"type have it too. Remedy: set their runtime_type to {RUNC_TYPE} and NoPivotRoot = true in their options",
            "no_pivot",
        )
    for runtime in others:
        if plugin.get("systemd_cgroup") and "options" not in runtime:
            options = {option: runtime[key] for key, _, option, _ in _MOVED if runtime.get(key)}
            filled(table_in(runtime, "options"), {**options, "SystemdCgroup": True})
    _drop(plugin, "systemd_cgroup")
    _drop(containerd, "no_pivot")


def refuse_unknown_default(default: str, imports: object, *containerds: Any) -> None:
    """Raise ConfigurationRefused where no file has the default runtime; an import may have it."""
    names = {"runc", *(name for containerd in containerds for name in tables_in(containerd, "runtimes"))}
    if default not in names and not imports:
        raise ConfigurationRefused(
            f"no runtime is called {default}, but {', '.join(sorted(names))}. Remedy: set containerd.default_runtime "
            "to one of them, or add its table to the file"
        )


def refuse_unloadable(plugins: Mapping[str, Any], name: str, containerd_version: str, legacy: bool) -> None:
    """Raise ConfigurationRefused for keys of other programs with which containerd does not load its CRI plugin."""
    plugin = tables_in(plugins, name)
    registry = tables_in(plugins, _IMAGES_PLUGIN if _IMAGES_PLUGIN in plugins else name, "registry")
    all_devices = versions.at_least(versions.major_minor(containerd_version), _ALL_DEVICES_SINCE)
    runtimes = tables_in(plugin, "containerd", "runtimes")
    faults = [*_registry_faults(registry, legacy), *(_linux_faults(plugin) if legacy else ())]
    faults += [
        (f"`{_ALL_DEVICES}` requires `{_PRIVILEGED}` to be enabled", _ALL_DEVICES)
        for runtime in runtimes.values()
        if all_devices and tables_in(runtime).get(_ALL_DEVICES) and not runtime.get(_PRIVILEGED)
    ]
    for reason, key in faults:
        raise ConfigurationRefused(
            f"containerd does not load its CRI plugin by this file: {reason}. Remedy: correct or remove that key", key
        )


def _registry_faults(registry: Mapping[str, Any], legacy: bool) -> Iterator[tuple[str, str]]:
    if registry.get("config_path") and registry.get("mirrors"):
        yield "`mirrors` cannot be set when `config_path` is provided", "mirrors"
    configs = tables_in(registry, "configs").values()
    if legacy and registry.get("config_path") and any("tls" in tables_in(each) for each in configs):
        yield "`configs.tls` cannot be set when `config_path` is provided", "tls"


def _linux_faults(plugin: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    containerd = tables_in(plugin, "containerd")
    default_is_linux = is_linux(default_of(containerd, legacy=True))
    for key, table in (("systemd_cgroup", plugin), ("no_pivot", containerd)):
        if table.get(key) and not default_is_linux:
            yield f"`{key}` only works for runtime {_LINUX_TYPE}", key
    # containerd reads that table only with a type.
    untrusted = tables_in(containerd, "untrusted_workload_runtime")
    for runtime in (*tables_in(containerd, "runtimes").values(), untrusted if untrusted.get("runtime_type") else {}):
        for key in _MOVED_KEYS:
            if tables_in(runtime).get(key) and not is_linux(runtime):
                yield f"`{key}` only works for runtime {_LINUX_TYPE}", key


def is_linux(runtime: Mapping[str, Any]) -> bool:
    return runtime.get("runtime_type") == _LINUX_TYPE


def _is_runc(runtime: Mapping[str, Any]) -> bool:
    shim = str(runtime.get("runtime_path") or "").rpartition("/")[2]
    return is_runc_type(runtime.get("runtime_type")) and (not shim or shim.startswith("containerd-shim-runc"))


def _drop_foreign(runtime: Table) -> None:
    _drop(runtime, *_SHIM_KEYS)
    _drop(runtime.get("options"), *_SHIM_OPTIONS)


def _drop(table: Any, *keys: str) -> None:
    for key in keys:
        if isinstance(table, MutableMapping) and key in table:
            del table[key]
