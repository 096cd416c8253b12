"""zypper and rpm: SLES and openSUSE."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.facts.families.zypper import DRIVER_PACKAGES, WAITS, ZypperOffers, ZypperSimulation
from gpunode.operations.failure import OperationRefused
from gpunode.operations.families.family import OWNED, TRANSACTION, DriverChange, RpmFamily
from gpunode.operations.files import replace_command, write_command
from gpunode.operations.keeping import UNREAD, digest_of_text
from gpunode.operations.script import script_command
from gpunode.packages.driver_packages.installed import DriverPackages as State
from gpunode.packages.driver_packages.names import FOREIGN, OWN
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families.zypper import LOCKS, OURS, ROUNDS, LockedPackages, locked, named_too, only_at, strays

ZYPP = WAITS + script_file("zypper")
READ = script_file("zypper_read")
REFRESH = READ + script_file("zypper_refresh")


_FUNCTIONS = DRIVER_PACKAGES.strip() + TRANSACTION + script_file("zypper_driver")

_FINISH = script_file("zypper_finish")

OFFERED = script_file("zypper_install")


class _Zypper(RpmFamily):
    """Change packages by zypper; the driver stays still by its locks."""

    name = program = "zypper"
    functions = ZYPP + _FUNCTIONS
    REINSTALLING = ZYPP + REFRESH + OWNED + script_file("zypper_reinstall")
    tools = ("ca-certificates", "curl", "gpg2")
    holding = (LOCKS, OURS)
    CALLS, REFRESHING, OFFERING = ZYPP, REFRESH, OFFERED
    offers_fact = ZypperOffers
    simulation_fact = ZypperSimulation

    def held_by(self, state: State) -> Mapping[str, str]:
        # Of our own file the names were read, and not the text; no transaction writes it.
        return {LOCKS: digest_of_text(state.locks) if isinstance(state, LockedPackages) else UNREAD, OURS: UNREAD}

    def finish(self) -> Iterator[StringCommand]:
        yield script_command(f"{ZYPP}unlocked\n{_FINISH}", own=OWN, foreign=FOREIGN)

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        yield script_command(f'{ZYPP}{REFRESH}refresh "$1"', repository)

    def bound(self, change: DriverChange) -> DriverChange:
        """Name what would come at another version, until that is all: what one of them needs may be the next."""
        change = super().bound(change)
        for _ in range(ROUNDS):
            names = [name for name in strays(change.upstream, self.dry_run(change)) if name not in change.coming]
            also = named_too(change.upstream, names, self.offers(names, change)) if names else {}
            if not also:
                break
            change = replace(change, coming={**change.coming, **also})
        return change

    def simulation(self, change: DriverChange) -> Simulation:
        return only_at(change.upstream, self.dry_run(change))

    def hold(self, state: State, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Hold by zypper's locks; which of them are ours stands in a file of our own."""
        if not isinstance(state, LockedPackages):
            raise OperationRefused("the node's packages are not kept by zypper; nothing was changed")
        text, ours = locked(state.locks, state.ours, keep)
        # A name is ours before its lock is there, and no more after it is gone.
        steps = [(OURS, _lines({*state.ours, *ours})), (LOCKS, text), (OURS, _lines(ours))]
        actual = {OURS: _lines(state.ours), LOCKS: state.locks}
        for path, desired in steps:
            read = actual[path]
            if read == desired:
                continue
            actual[path] = desired
            if not desired:
                # As it was before the first lock: zypper makes the file itself.
                yield script_command('rm -f "$path"', path=path)
            elif path == OURS:
                yield write_command(path, desired)
            else:
                yield replace_command(path, desired, read)


def _lines(names: Sequence[str] | set[str]) -> str:
    return "".join(f"{name}\n" for name in sorted(names))


ZYPPER = _Zypper()
