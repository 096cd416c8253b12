"""What is to become of CRI-O's drop-in, and what the daemon needs for it: a restart or nothing."""

from __future__ import annotations

from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.crio.drop_in import NAME, NVIDIA, Runtimes, render
from gpunode.components.crio.merged import Merged, merged
from gpunode.components.crio.state import Crio
from gpunode.components.runtime import RuntimeChange, WrittenFile


def path_of(state: Crio) -> str:
    """Return the path of the drop-in: in the folder that this CRI-O reads."""
    return f"{state.folder}/{NAME}"


def wanted(desired: Runtimes) -> dict[str, str]:
    """Return what the daemon must say of itself, by the keys of its configuration."""
    found = {"default_runtime": desired.default, "cgroup_manager": desired.manager}
    if desired.nvidia:
        found["runtimes.nvidia.runtime_path"] = NVIDIA
    return found


def effective(state: Crio) -> dict[str, str | None]:
    """Return what the daemon says of itself, by the keys of `wanted`."""
    return {
        "default_runtime": state.default_runtime,
        "cgroup_manager": state.cgroup_manager,
        "runtimes.nvidia.runtime_path": dict(state.runtimes).get("nvidia"),
    }


def change(state: Crio, desired: Runtimes) -> RuntimeChange | None:
    """Return what is to be changed, None where files and daemon are as desired; raise ConfigurationRefused.

    `state.files` must be known.
    """
    path, files = path_of(state), dict(state.files or ())
    beside = merged({name: text for name, text in files.items() if name != path}, state.root)
    if beside.unreadable:
        raise ConfigurationRefused(f"CRI-O starts with none of its files: {'; '.join(beside.unreadable)}")
    try:
        text = render(files.get(path), beside, desired)
    except ConfigurationRefused as refusal:
        raise ConfigurationRefused(f"{path}: {refusal}") from refusal
    after = merged({**files, path: text}, state.root)
    for key, value in wanted(desired).items():
        found, where = _said(after, key)
        if found != value:
            raise ConfigurationRefused(
                f"{where} is read after {path} and says {key} = {found!r}; mend or remove that file, and run again"
            )
    said, writes = effective(state), text != files.get(path, "")
    differ = any(said[key] != value for key, value in wanted(desired).items())
    if not writes and (not differ or not state.active):
        return None
    if reason := _in_the_way(state, {*after.runtimes, *dict(state.runtimes)}, desired):
        raise ConfigurationRefused(reason)
    return RuntimeChange(
        (WrittenFile(path, text),) if writes else (),
        text if writes else None,
        tuple(f"{key}={value}" for key, value in wanted(desired).items()),
        "restart" if differ else "nothing",
    )


def _in_the_way(state: Crio, names: set[str], desired: Runtimes) -> str | None:
    """Return why no drop-in would help, with what to do; names: the runtimes that CRI-O knows."""
    if state.flags:
        return (
            f"crio is started with {', '.join(state.flags)}, which counts more than its files; take the flag out of "
            "its unit (or of /etc/sysconfig/crio, /etc/default/crio), and run again"
        )
    if state.answers and desired.default not in names:
        return (
            f"CRI-O knows no runtime {desired.default}, but {', '.join(sorted(names))}: set crio.default_runtime to "
            "one of them, or write its table [crio.runtime.runtimes]"
        )
    return None


def _said(after: Merged, key: str) -> tuple[object, str | None]:
    """Return what files say of a key, and which file does."""
    if not key.startswith("runtimes."):
        return after.keys.get(key), after.said_in.get(key)
    _, name, option = key.split(".")
    return after.runtimes.get(name, {}).get(option), after.said_in.get(f"runtimes.{name}")
