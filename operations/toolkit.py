"""The NVIDIA container toolkit beyond its packages: what holds them, config.toml, CDI, and links of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.reading import Unknown
from gpunode.base.shell_file import script_file
from gpunode.components.driver.state import DriverState
from gpunode.components.runtimes.containerd.companions import own_program
from gpunode.components.runtimes.runtime import CDI_MARK
from gpunode.components.runtimes.toolkit.configuration import PATH, RUNTIMES, Keys
from gpunode.components.runtimes.toolkit.decide import decide_configuration, decide_links
from gpunode.components.runtimes.toolkit.packages import hold_text, moves
from gpunode.components.runtimes.toolkit.specification import Specification, decide_specification
from gpunode.components.runtimes.toolkit.state import ContainerToolkit as State
from gpunode.facts.gpu import Mig
from gpunode.facts.runtimes import Containerd
from gpunode.facts.toolkit import ContainerToolkit
from gpunode.node.own_files.holds import TOOLKIT_PREFERENCES as PREFERENCES
from gpunode.operations.apt import HOLD
from gpunode.operations.driver import driver_state
from gpunode.operations.failure import OperationRefused, change_now, node_operation, read_fact
from gpunode.operations.families.dnf5 import lock_commands
from gpunode.operations.files import replace_command, write_command
from gpunode.operations.keeping import noted_command
from gpunode.operations.own_files import keeps
from gpunode.operations.script import script_command
from gpunode.packages.families import dnf5
from gpunode.packages.families.dnf import LOCKLIST


def _by_apt(state: State, hold: bool) -> Iterator[StringCommand]:
    keep = state.to_hold if hold else {}
    hold_now = sorted(set(keep) - set(state.held))
    let_go = sorted((state.held_by_gpunode & set(state.held)) - set(keep))
    text = hold_text("apt", state, hold)
    keeps(PREFERENCES, text)
    # What is let go is known by the file of before, which is therefore written last.
    if hold_now or let_go:
        yield script_command(HOLD, hold=" ".join(hold_now), unhold=" ".join(let_go))
    if state.hold_text != text:
        yield (
            write_command(PREFERENCES, text) if text is not None else script_command('rm -f "$path"', path=PREFERENCES)
        )


def _by_dnf(state: State, hold: bool) -> Iterator[StringCommand]:
    if state.hold_text is None and hold:
        raise OperationRefused(
            "dnf's plugin versionlock is missing or switched off, and without it nothing keeps the toolkit's "
            "packages as they are; install python3-dnf-plugin-versionlock and set enabled = 1 in "
            "/etc/dnf/plugins/versionlock.conf, or set toolkit.hold = False"
        )
    text = hold_text("dnf", state, hold) or ""
    if text != (state.hold_text or ""):
        yield replace_command(LOCKLIST, text, state.hold_text)
        # The driver's packages are kept still by the same file, which comes back where their change is undone.
        yield noted_command("driver", [LOCKLIST])


def _by_dnf5(state: State, hold: bool) -> Iterator[StringCommand]:
    keep = state.to_hold if hold else {}
    commands = list(lock_commands(state.hold_text or None, keep, "toolkit.hold", group="toolkit"))
    yield from commands
    if commands:
        # The driver's packages are kept still by the same file, which comes back where their change is undone.
        yield noted_command("driver", [dnf5.LOCKLIST])


# Family -> the commands that hold what is installed, or let go of what gpunode held; none where that is so.
TOOLKIT_HOLDS: MappingProxyType[str, Callable[[State, bool], Iterator[StringCommand]]] = MappingProxyType(
    {"apt": _by_apt, "dnf": _by_dnf, "dnf5": _by_dnf5}
)


_GENERATE = script_file("cdi", "cdi_generate")
_REFRESH = script_file("service_state", "cdi", "cdi_refresh")
_LINK = script_file("device_links")


def _state() -> State:
    return read_fact(ContainerToolkit, "the container toolkit's state")


@node_operation
def released(family: str, version: str | None, hold: bool) -> Iterator[Any]:
    """Let go of the toolkit's packages that gpunode holds, where they are to move or shall not be held any more.

    + version: the desired version; None: any
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
def configuration(desired: Keys, by_containerd: bool = False) -> Iterator[Any]:
    """Write the desired keys of config.toml. Nothing is restarted: each start of a container reads the file.

    + desired: key (as a tuple) -> its value; None: not there
    + by_containerd: whether nvidia-container-runtime first starts the program of containerd's runc
    """
    state = _state()
    if by_containerd and not isinstance(containerd := host.get_fact(Containerd), Unknown):
        desired = {**({RUNTIMES: (program,)} if (program := own_program(containerd)) else {}), **desired}
    # In preparation its packages may not be there yet.
    coming = host.state is not None and not host.state.is_executing
    change = change_now(str, decide_configuration(desired, state, coming))
    if change is None:
        host.noop(f"{PATH} is as desired")
        return
    yield replace_command(PATH, change, state.config_text)


@node_operation
def specification(generate: bool) -> Iterator[Any]:
    """Keep a CDI specification of the loaded driver; or remove what gpunode had made.

    The toolkit's own unit makes it where there is one: it does so again when driver or toolkit change.
    """
    driver, mig = DriverState((), None, None, None, None, None), None
    if generate:
        driver, mig = driver_state(), host.get_fact(Mig)
    decision = decide_specification(generate, _state(), driver, None if isinstance(mig, Unknown) else mig)
    change = change_now(Specification, decision)
    if change is None:
        found = (f"CDI specification: {item.actual}; desired: {item.desired}" for item in decision.findings)
        host.noop("; ".join(found) or "no CDI specification of gpunode's, or no driver that one would be of")
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
    change = change_now(tuple, decide_links(_state()))
    if change is None:
        host.noop("every NVIDIA device has its link in /dev/char")
    else:
        yield script_command(_LINK, devices=" ".join(change))
