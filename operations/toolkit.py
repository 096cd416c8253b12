"""The NVIDIA container toolkit beyond its packages: what holds them, config.toml, CDI, and links of devices."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.base.shell_file import script_file
from gpunode.components.driver.state import DriverState
from gpunode.components.toolkit.configuration import PATH, Asked
from gpunode.components.toolkit.decide import (
    Configuration,
    Links,
    decide_configuration,
    decide_links,
    moves,
)
from gpunode.components.toolkit.specification import CDI_MARK, Specification, decide_specification
from gpunode.components.toolkit.state import ContainerToolkit as State
from gpunode.facts.toolkit import ContainerToolkit
from gpunode.operations.driver import driver_state
from gpunode.operations.failure import change_now, node_operation, require
from gpunode.operations.families.toolkit_hold import TOOLKIT_HOLDS
from gpunode.operations.files import replace_command
from gpunode.operations.script import script_command

_GENERATE = script_file("cdi", "cdi_generate")
_REFRESH = script_file("service_state", "cdi", "cdi_refresh")
_LINK = script_file("device_links")


def _state() -> State:
    state: State = require(host.get_fact(ContainerToolkit), "the container toolkit's state")
    return state


@node_operation
def released(family: str, version: str | None, hold: bool) -> Iterator[Any]:
    """Let go of the toolkit's packages that gpunode holds, where they are to move or shall not be held any more.

    + version: the version that is asked for; None: any
    """
    state = _state()
    released = family in TOOLKIT_HOLDS and (not hold or moves(state, version))
    commands = list(TOOLKIT_HOLDS[family](state, False)) if released else []
    if not commands:
        host.noop("no package of the toolkit is to be let go")
    yield from commands


@node_operation
def held(family: str) -> Iterator[Any]:
    """Keep the package manager off the toolkit's packages; holds that others set stay."""
    state = _state()
    if not state.to_hold and host.state is not None and not host.state.is_executing:
        yield script_command(":")  # a forecast: the packages come with an operation before this one
        return
    commands = list(TOOLKIT_HOLDS[family](state, True))
    if not commands:
        host.noop(f"held: {', '.join(state.to_hold)}")
    yield from commands


@node_operation
def configuration(desired: Asked) -> Iterator[Any]:
    """Bring config.toml to what is asked. Nothing is restarted: each container start reads it anew.

    + desired: key (as a tuple) -> its value; None: not there
    """
    state = _state()
    # In preparation its packages may be yet to come.
    coming = host.state is not None and not host.state.is_executing
    change = change_now(Configuration, decide_configuration(desired, state, coming))
    if change is None:
        host.noop(f"{PATH} says what is asked" if desired else f"nothing is asked of {PATH}")
        return
    yield replace_command(PATH, change.text, state.config_text)


@node_operation
def specification(generate: bool) -> Iterator[Any]:
    """Keep a CDI specification of the loaded driver; or remove what gpunode had made.

    The toolkit's own unit makes it where there is one: it does so again when driver or toolkit change.
    """
    driver = driver_state() if generate else DriverState((), None, None, None, None, None)
    decision = decide_specification(generate, _state(), driver)
    change = change_now(Specification, decision)
    waiting = next((step.waits for step in decision.steps if step.waits is not None), None)
    if change is None:
        if waiting:
            host.noop(f"reboot pending: {waiting}")
        elif not generate:
            host.noop("there is no CDI specification of gpunode's")
        elif driver.loaded_version is None:
            host.noop("no driver is loaded, which a CDI specification would be of")
        else:
            host.noop(f"there is a CDI specification of driver {driver.loaded_version}")
        return
    if change.going:
        yield script_command('rm -f -- "$@"', *change.going)
    if change.target is not None:
        yield script_command(
            _GENERATE if change.own else _REFRESH,
            target=change.target,
            own="yes" if change.own else "no",
            version=change.version,
            root=change.root,
            mark=CDI_MARK,
            stale=" ".join(change.aside),
        )


@node_operation
def device_links() -> Iterator[Any]:
    """Make the links in /dev/char that NVIDIA device nodes lack: systemd finds a container's devices by these alone."""
    change = change_now(Links, decide_links(_state()))
    if change is None:
        host.noop("every NVIDIA device has its link in /dev/char")
    else:
        yield script_command(_LINK, devices=" ".join(change.devices))
