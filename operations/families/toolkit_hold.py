"""Keep the container toolkit's packages still, by each package manager's own means; what others hold stays held."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType

from pyinfra.api import StringCommand

from gpunode.components.toolkit.decide import hold_text
from gpunode.components.toolkit.state import ContainerToolkit
from gpunode.node.own_files.holds import TOOLKIT_PREFERENCES as PREFERENCES
from gpunode.operations.apt_shell import HOLD
from gpunode.operations.failure import OperationRefused
from gpunode.operations.families.dnf5 import lock_commands
from gpunode.operations.files import replace_command, write_command
from gpunode.operations.keeping import noted_command
from gpunode.operations.own_files import keeps
from gpunode.operations.script import script_command
from gpunode.packages.families import dnf5
from gpunode.packages.families.dnf import LOCKLIST


def _by_apt(state: ContainerToolkit, hold: bool) -> Iterator[StringCommand]:
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


def _by_dnf(state: ContainerToolkit, hold: bool) -> Iterator[StringCommand]:
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


def _by_dnf5(state: ContainerToolkit, hold: bool) -> Iterator[StringCommand]:
    keep = state.to_hold if hold else {}
    commands = list(lock_commands(state.hold_text or None, keep, "toolkit.hold", group="toolkit"))
    yield from commands
    if commands:
        # The driver's packages are kept still by the same file, which comes back where their change is undone.
        yield noted_command("driver", [dnf5.LOCKLIST])


# Family -> the commands that hold what is installed, or let go of what gpunode held; none where that is so.
TOOLKIT_HOLDS: MappingProxyType[str, Callable[[ContainerToolkit, bool], Iterator[StringCommand]]] = MappingProxyType(
    {"apt": _by_apt, "dnf": _by_dnf, "dnf5": _by_dnf5}
)
