"""dnf 5 and rpm: Fedora."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.facts.driver_packages import DriverPackages
from gpunode.facts.families.dnf5 import DRIVER_PACKAGES, VERSIONS, Dnf5Offers, Dnf5Simulation
from gpunode.facts.families.rpm import RpmPackages
from gpunode.operations.failure import OperationRefused, require
from gpunode.operations.families.family import DriverChange
from gpunode.operations.families.rpm import INSTALL, TRANSACTION
from gpunode.operations.files import replace_command
from gpunode.operations.keeping import digest_of_text
from gpunode.operations.script import script_command
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.installed import DriverPackages as State
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families.dnf5 import LOCKLIST, LockedPackages, locked
from gpunode.packages.installed_packages import InstalledPackages

DNF5_RUN = f"""
{DRIVER_PACKAGES.strip()}
{script_file("dnf5_run")}"""

_FUNCTIONS = f"""
{VERSIONS}
{TRANSACTION}{script_file("dnf5_driver")}"""
_FINISH = script_file("dnf5_finish")
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


class _Dnf5:
    """Change packages by dnf 5; the driver stays still by versionlock, which is dnf's own and no plugin."""

    name = "dnf5"
    functions = DNF5_RUN + _FUNCTIONS
    saved = "rpms"
    tools: tuple[str, ...] = ("ca-certificates", "gnupg2")
    holding_tools: tuple[str, ...] = ()
    holding: tuple[str, ...] = (LOCKLIST,)
    otherwise = "mend the repository"

    def state(self) -> State:
        state: State = require(host.get_fact(DriverPackages), "the list of the driver's packages")
        return state

    def held_by(self, state: State) -> Mapping[str, str]:
        return {LOCKLIST: digest_of_text(state.locklist if isinstance(state, LockedPackages) else None)}

    def finish(self) -> Iterator[StringCommand]:
        yield script_command(f"{DNF5_RUN}{_FINISH}")

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        yield script_command(f'{REFRESH}refresh "$1"', repository)

    def offers(self, names: Sequence[str], change: DriverChange) -> Offers:
        offers: Offers = require(host.get_fact(Dnf5Offers, names=list(names)), "what the repositories offer")
        return offers

    def bound(self, change: DriverChange) -> DriverChange:
        """Return the change as it is: of the driver, no other version is in dnf's sight."""
        return replace(change, coming={**change.coming, **change.along})

    def simulation(self, change: DriverChange) -> Simulation:
        # What only goes is looked for at no version.
        upstream = change.upstream if change.coming else ""
        fact = host.get_fact(Dnf5Simulation, coming=dict(change.coming), going=list(change.going), upstream=upstream)
        simulation: Simulation = require(fact, "what dnf would do")
        return simulation

    def variables(self, change: DriverChange) -> dict[str, str]:
        return {}

    def hold(self, state: State, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Hold by our entries of versionlock's list."""
        if not isinstance(state, LockedPackages):
            raise OperationRefused("dnf's list of locks is unknown; nothing was changed")
        yield from lock_commands(state.locklist, keep, "driver.hold", every=state.every)

    def installed(self, names: Sequence[str]) -> InstalledPackages:
        actual: InstalledPackages = require(
            host.get_fact(RpmPackages, names=list(names)), "the list of installed packages"
        )
        return actual

    def install(self, arguments: Sequence[str], repository: str, instead: str = "") -> StringCommand:
        desired = [argument.replace("-rc.", "~rc.") for argument in arguments]
        return script_command(
            f'{DNF5_RUN}{REFRESH}refresh "$repository"\n{OFFERED}{INSTALL}',
            *desired,
            repository=repository,
            instead=instead,
            manager="dnf",
        )


DNF5 = _Dnf5()
