"""The NVIDIA container toolkit beyond its packages: what holds them, config.toml, CDI, and links of devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode import versions
from gpunode.facts.toolkit import CDI_MARK, ContainerToolkit
from gpunode.operations.driver import driver_state
from gpunode.operations.failure import OperationRefused, known, node_operation
from gpunode.operations.families.toolkit_hold import TOOLKIT_HOLDS
from gpunode.operations.files import replace_command
from gpunode.operations.script import script_command
from gpunode.packages import satisfies
from gpunode.shell_file import script_file
from gpunode.toml_edit import ConfigurationRefused
from gpunode.toolkit import ContainerToolkit as State
from gpunode.toolkit.configuration import PATH, Asked, first_version_of, render
from gpunode.unit import is_masked, unmask

OWN_SPECIFICATION = "/etc/cdi/nvidia.yaml"
# Where the toolkit's own service writes, which is empty again after a boot.
REFRESHED_SPECIFICATION = "/var/run/cdi/nvidia.yaml"

_GENERATE = script_file("cdi", "cdi_generate")
_REFRESH = script_file("cdi", "cdi_refresh")
_LINK = script_file("device_links")


def _state() -> State:
    state: State = known(host.get_fact(ContainerToolkit), "the container toolkit's state")
    return state


@node_operation
def released(family: str, version: str | None, hold: bool) -> Iterator[Any]:
    """Let go of the toolkit's packages that gpunode holds, where they are to move or shall not be held any more.

    + family: of the node's package manager
    + version: the version that is asked for; None: any
    + hold: whether they are held
    """
    state = _state()
    there = state.to_hold.values()
    moves = bool(state.missing_packages) or len(state.package_versions) > 1
    moves = moves or not all(satisfies(found, version) for found in there)
    commands = list(TOOLKIT_HOLDS[family](state, False)) if family in TOOLKIT_HOLDS and (moves or not hold) else []
    if not commands:
        host.noop("no package of the toolkit is to be let go")
    yield from commands


@node_operation
def held(family: str) -> Iterator[Any]:
    """Keep the package manager off the toolkit's packages; holds that others set stay.

    + family: of the node's package manager
    """
    state = _state()
    if not state.to_hold and host.state is not None and not host.state.is_executing:
        yield script_command(":")  # a forecast: the packages come with an operation before this one
        return
    commands = list(TOOLKIT_HOLDS[family](state, True))
    if not commands:
        host.noop(f"held: {', '.join(state.to_hold)}")
    yield from commands


@node_operation
def configuration(asked: Asked) -> Iterator[Any]:
    """Bring config.toml to what is asked. Nothing is restarted: each container start reads it anew.

    + asked: key (as a tuple) -> its value; None: not there
    """
    state = _state()
    mode, first = first_version_of(asked)
    there = state.version
    if first and there and host.state is not None and host.state.is_executing and not versions.at_least(there, first):
        raise OperationRefused(
            f"toolkit.mode {mode!r} is known from the container toolkit {first} on, and {there} is installed: no "
            f"container would start. Set toolkit.version to {first} or newer, or toolkit.mode = 'auto'; nothing was "
            "changed"
        )
    try:
        text = state.config_text
        new = render(text, asked)
    except ConfigurationRefused as refusal:
        raise OperationRefused(f"{PATH}: {refusal}; nothing was changed") from refusal
    if new == (text or ""):
        host.noop(f"{PATH} says what is asked" if asked else f"nothing is asked of {PATH}")
        return
    yield replace_command(PATH, new)


@node_operation
def specification(generate: bool) -> Iterator[Any]:
    """Keep a CDI specification of the loaded driver; or remove what gpunode had made.

    The toolkit's own unit makes it where there is one: it does so again when driver or toolkit change.

    + generate: whether there shall be one
    """
    state = _state()
    going = [*state.cdi_drafts, *(item.path for item in state.cdi if item.ours and not generate)]
    if going:
        yield script_command('rm -f -- "$@"', *going)
    if not generate:
        if not going:
            host.noop("there is no CDI specification of gpunode's")
        return
    driver = driver_state()
    if driver.loaded_version is None:
        host.noop("no driver is loaded, which a CDI specification would be of")
        return
    if is_masked(state.cdi_refresh):
        raise OperationRefused(
            "nvidia-cdi-refresh.path, by which the toolkit keeps its CDI specification, is masked; nothing was "
            f"changed. Undo that by {unmask('nvidia-cdi-refresh.path')}, or set toolkit.cdi = 'off', and run again"
        )
    stale = state.stale_cdi(driver.loaded_version)
    own = state.cdi_refresh is None
    target = OWN_SPECIFICATION if own else state.cdi_output or REFRESHED_SPECIFICATION
    fresh = any(item.path == target and item not in stale for item in state.cdi)
    doubled = [item for item in state.cdi if item.ours and not own]
    if fresh and not stale and not doubled and (own or state.cdi_refresh == "enabled"):
        host.noop(f"{target} is of driver {driver.loaded_version}")
        return
    if driver.reboot_pending:
        host.noop(f"reboot pending: {driver.runs} is loaded, {driver.to_come} is to come")
        return
    yield script_command(
        _GENERATE if own else _REFRESH,
        target=target, own="yes" if own else "no", version=driver.loaded_version, mark=CDI_MARK,
        stale=" ".join(dict.fromkeys(item.path for item in (*stale, *doubled))),
    )  # fmt: skip


@node_operation
def device_links() -> Iterator[Any]:
    """Make the links in /dev/char that NVIDIA device nodes lack: systemd finds a container's devices by these alone."""
    state = _state()
    if state.unlinked:
        yield script_command(_LINK, devices=" ".join(state.unlinked))
    else:
        host.noop("every NVIDIA device has its link in /dev/char")
