"""What is to become of docker's daemon.json, and what the daemon needs for it: a reload, a restart or nothing."""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.components.docker.editor import NVIDIA_RUNTIME, Daemon, DaemonRefused, render, tells_of_cdi
from gpunode.components.docker.state import Docker
from gpunode.components.runtime import Act, RuntimeChange, WrittenFile

# dockerd refuses to start with a flag beside the key of the file.
_FLAGS = {
    "--default-runtime": "default-runtime",
    "--add-runtime": "runtimes",
    "--exec-opt": "exec-opts",
    "--feature": "features",
}
# Docker's reference of dockerd: what a reload (SIGHUP) makes it read again. All else takes a restart.
_RELOADED = ("DefaultRuntime", "Runtime")


def wanted(desired: Daemon) -> dict[str, str]:
    """Return what the daemon must say of itself."""
    found = {"DefaultRuntime": desired.default, "CgroupDriver": "systemd" if desired.systemd_cgroup else "cgroupfs"}
    if desired.nvidia:
        found["Runtime nvidia"] = NVIDIA_RUNTIME
    return found


def effective(state: Docker) -> dict[str, str | None]:
    """Return what the daemon says of itself, by the keys of `wanted`."""
    return {
        "DefaultRuntime": state.default_runtime,
        "CgroupDriver": state.cgroup_driver,
        "Runtime nvidia": state.runtime("nvidia"),
    }


def change(state: Docker, desired: Daemon) -> RuntimeChange | None:
    """Return what is to be changed, None where file and daemon are as desired; raise DaemonRefused.

    `state.daemon_version` must be known.
    """
    text = render(state.config_text, state.daemon_version or "", desired)
    writes = text != (state.config_text or "")
    reasons = list(_differences(state, desired))
    if writes and (flags := [flag for flag in state.flags if flag in _FLAGS]):
        raise DaemonRefused(
            f"dockerd is started with {', '.join(flags)}, and does not start where the file says "
            f"{', '.join(_FLAGS[flag] for flag in flags)} as well; take the flag out of its unit (or of "
            "/etc/default/docker), and run again"
        )
    if not writes and (not reasons or not state.active):
        return None
    files = (WrittenFile(state.config_path, text),) if writes else ()
    expected = [f"{key}={value}" for key, value in wanted(desired).items()]
    if desired.cdi is not None and all(
        tells_of_cdi(actual) for actual in (state.version, state.daemon_version) if actual
    ):
        expected.append(f"CDI={str(desired.cdi).lower()}")
    return RuntimeChange(files, text if writes else None, tuple(expected), _act(state, reasons))


def act(state: Docker, desired: Daemon) -> Act:
    """Return what brings the daemon to what is asked."""
    return _act(state, list(_differences(state, desired)))


def _differences(state: Docker, desired: Daemon) -> Iterator[tuple[str, str | None, str]]:
    """Yield (key, what the daemon says, what is asked)."""
    said = effective(state)
    for key, value in wanted(desired).items():
        if said[key] != value:
            yield key, said[key], value
    if desired.cdi is not None and state.cdi is not None and state.cdi is not desired.cdi:
        yield "CDI", str(state.cdi).lower(), str(desired.cdi).lower()


def _act(state: Docker, reasons: list[tuple[str, str | None, str]]) -> Act:
    if not state.active or not state.answers:
        return "restart"
    if all(key.startswith(_RELOADED) for key, _, _ in reasons):
        return "reload" if reasons else "nothing"
    return "restart"
