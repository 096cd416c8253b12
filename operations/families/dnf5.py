"""dnf 5 and rpm: Fedora."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.facts.families.dnf5 import DRIVER_PACKAGES, VERSIONS, Dnf5Offers, Dnf5Simulation
from gpunode.operations.failure import OperationRefused
from gpunode.operations.families.dnf import Dnf
from gpunode.operations.families.family import OWNED, TRANSACTION, DriverChange
from gpunode.operations.files import replace_command
from gpunode.operations.keeping import digest_of_text
from gpunode.operations.script import script_command
from gpunode.packages.driver_packages.installed import DriverPackages as State
from gpunode.packages.families.dnf5 import LOCKLIST, LockedPackages, locked

DNF5_RUN = f"""
{DRIVER_PACKAGES.strip()}
{script_file("dnf5_run")}"""

_FUNCTIONS = f"""
{VERSIONS}
{TRANSACTION}{script_file("dnf5_driver")}"""
REFRESH = script_file("dnf5_refresh")

OFFERED = script_file("dnf5_install")


def lock_commands(actual: str | None, keep: Mapping[str, str], setting: str, **more: object) -> Iterator[StringCommand]:
    """Yield what brings versionlock's list to `keep`; a list of nothing goes.

    + actual: the list as it was read, None where there was none
    + setting: what a person may set to False instead
    + more: what `locked` takes beside

    Raises OperationRefused where the list cannot be read.
    """
    try:
        text = locked(actual or "", keep, **more)  # type: ignore[arg-type]
    except ValueError as error:
        raise OperationRefused(f"{error}; or set {setting} = False") from error
    if text == (actual or ""):
        return
    yield replace_command(LOCKLIST, text, actual)
    if not text:
        yield script_command('[ -s "$path" ] || rm -f "$path"', path=LOCKLIST)


class _Dnf5(Dnf):
    """Change packages by dnf 5; the driver stays still by versionlock, which is dnf's own and no plugin."""

    name = "dnf5"
    functions = DNF5_RUN + _FUNCTIONS
    REINSTALLING = f'{DNF5_RUN}{REFRESH}{OWNED}again() {{ dnf_unlocked reinstall "$@"; }}\n'
    tools = ("ca-certificates", "gnupg2")
    holding_tools = ()
    holding = (LOCKLIST,)
    CALLS, REFRESHING, OFFERING = DNF5_RUN, REFRESH, OFFERED
    FINISHING = script_file("dnf5_finish")
    offers_fact = Dnf5Offers
    simulation_fact = Dnf5Simulation

    def held_by(self, state: State) -> Mapping[str, str]:
        return {LOCKLIST: digest_of_text(state.locklist if isinstance(state, LockedPackages) else None)}

    def sight(self, change: DriverChange) -> dict[str, str]:
        return {}

    def variables(self, change: DriverChange) -> dict[str, str]:
        return {}

    def hold(self, state: State, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Hold by our entries of versionlock's list."""
        if not isinstance(state, LockedPackages):
            raise OperationRefused("dnf's list of locks is unknown; nothing was changed")
        yield from lock_commands(state.locklist, keep, "driver.hold", every=state.every)


DNF5 = _Dnf5()
