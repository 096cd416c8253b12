"""pacman: Arch Linux."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.facts.families.pacman import (
    DATABASE,
    DRIVER_PACKAGES,
    LOCK,
    NEEDS,
    PacmanOffers,
    PacmanPackages,
    PacmanSimulation,
)
from gpunode.operations.failure import OperationRefused
from gpunode.operations.families.family import Family
from gpunode.operations.files import replace_command, write_command
from gpunode.operations.own_files import keeps
from gpunode.operations.script import script_command
from gpunode.packages.driver_packages.installed import DriverPackages as State
from gpunode.packages.driver_packages.names import FOREIGN, OWN
from gpunode.packages.families.pacman import CONFIGURATION, IGNORED, IgnoredPackages, ignored_text, including

_UNLOCKED = LOCK + script_file("pacman_unlocked")
_FILES = NEEDS + script_file("pacman_files")
_REFRESH = f"\nDATABASE={DATABASE}" + script_file("pacman_refresh")
_FUNCTIONS = DRIVER_PACKAGES.strip() + script_file("pacman_driver")
_FINISH = script_file("pacman_finish")
_INSTALL = script_file("pacman_install")


class _Pacman(Family):
    """Change packages by pacman; the driver stays still by IgnorePkg, in a file of our own.

    IgnorePkg has names alone, without versions: what is put back needs no other list, and `holding` no file.
    """

    name = program = "pacman"
    functions = _UNLOCKED + _FILES + _FUNCTIONS
    REINSTALLING = _UNLOCKED + _FILES + _REFRESH + script_file("pacman_reinstall")
    saved = "packages.d"
    tools = ("ca-certificates", "curl", "gnupg")
    packages_fact = PacmanPackages
    offers_fact = PacmanOffers
    simulation_fact = PacmanSimulation
    otherwise = (
        "a rolling release has one version of a package: have /etc/pacman.d/mirrorlist name the archive of a day that "
        "had yours (https://archive.archlinux.org/repos/YYYY/MM/DD/$repo/os/$arch), or set driver.source = 'runfile'"
    )

    def finish(self) -> Iterator[StringCommand]:
        # What a command prints is not shown where it succeeds.
        host.log("caution: pacman's lock was left by a pacman that is gone; taken away; what is there is checked")
        yield script_command(f"{LOCK}{_FINISH}")

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        yield script_command(f"{LOCK}{_REFRESH}refresh")

    def hold(self, state: State, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Hold by IgnorePkg: our own file, and the line of pacman.conf that reads it."""
        if not isinstance(state, IgnoredPackages):
            raise OperationRefused("pacman's configuration is unknown; nothing was changed")
        try:
            configuration = including(state.configuration, bool(keep))
        except ValueError as error:
            raise OperationRefused(
                f"{error}, where the driver's packages are to be held; mend it, or set driver.hold = False"
            ) from error
        text = ignored_text(keep)
        keeps(IGNORED, text if keep else None)
        # pacman refuses to work where a file is missing that is to be read: first there, and last away.
        if keep and state.ignored != text:
            yield write_command(IGNORED, text)
        if configuration != state.configuration:
            yield replace_command(CONFIGURATION, configuration, state.configuration)
        if not keep and state.ignored is not None:
            yield script_command('rm -f "$path"', path=IGNORED)

    def install(self, arguments: Sequence[str], repository: str, instead: str = "") -> StringCommand:
        return script_command(f"{_UNLOCKED}{_FILES}{_REFRESH}{_INSTALL}", *arguments, own=OWN, foreign=FOREIGN)


PACMAN = _Pacman()
