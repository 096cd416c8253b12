"""The drop-in by which CRI-O knows the runtime nvidia, and whether the daemon needs a restart for it."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.toml_edit import ConfigurationRefused, Table, edited, filled, put, table_in
from gpunode.components.crio.state import Crio, Merged, merged
from gpunode.components.runtime import RuntimeChange, WrittenFile

# nvidia-ctk's name for it: two files would contradict each other, and of two the later name counts.
NAME = "99-nvidia.toml"
NVIDIA = "/usr/bin/nvidia-container-runtime"
_HEAD = "# Written by gpunode; what is added here stays.\n"


@dataclass(frozen=True)
class Runtimes:
    """Hold what is desired: the default runtime, whether systemd's cgroups are used, whether nvidia is there."""

    default: str = "nvidia"
    systemd_cgroup: bool = True
    nvidia: bool = True

    @property
    def manager(self) -> str:
        """Return the name of the cgroup manager."""
        return "systemd" if self.systemd_cgroup else "cgroupfs"


def render(text: str | None, beside: Merged, desired: Runtimes) -> str:
    """Return the text of the drop-in with what is desired; `beside` is what the other files come to.

    Raises ConfigurationRefused where the file cannot be edited.
    """

    def edit(document: Table) -> None:
        runtime = table_in(table_in(document, "crio", hidden=True), "runtime")
        put(runtime, "default_runtime", desired.default)
        put(runtime, "cgroup_manager", desired.manager)
        if not desired.systemd_cgroup:
            # CRI-O starts with no slice of systemd's then.
            put(runtime, "conmon_cgroup", "pod")
        if not desired.nvidia:
            return
        runtimes = table_in(runtime, "runtimes", hidden=True)
        # The table takes the whole place of one in an earlier file.
        if "nvidia" not in runtimes:
            filled(table_in(runtimes, "nvidia"), beside.like())
        nvidia = table_in(runtimes, "nvidia")
        put(nvidia, "runtime_path", NVIDIA)
        put(nvidia, "runtime_type", "oci")
        if nvidia.get("inherit_default_runtime"):
            put(nvidia, "inherit_default_runtime", False)

    return edited(text or _HEAD, edit)


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
                f"{where} is read after {path} and says {key} = {found!r}. Remedy: correct or remove that file"
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
        state.default_runtime or "",
    )


def _in_the_way(state: Crio, names: set[str], desired: Runtimes) -> str | None:
    """Return why no drop-in would help, with what to do; names: the runtimes that CRI-O knows."""
    if state.flags:
        return (
            f"crio is started with {', '.join(state.flags)}, which counts more than its files. Remedy: take the flag "
            "out of its unit (or of /etc/sysconfig/crio, /etc/default/crio)"
        )
    if state.answers and desired.default not in names:
        return (
            f"CRI-O knows no runtime {desired.default}, but {', '.join(sorted(names))}. Remedy: set "
            "crio.default_runtime to one of them, or write its table [crio.runtime.runtimes]"
        )
    return None


def _said(after: Merged, key: str) -> tuple[object, str | None]:
    """Return what files say of a key, and which file does."""
    if not key.startswith("runtimes."):
        return after.keys.get(key), after.said_in.get(key)
    _, name, option = key.split(".")
    return after.runtimes.get(name, {}).get(option), after.said_in.get(f"runtimes.{name}")
