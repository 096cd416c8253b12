"""What a package manager must be able to do for the operations that change packages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyinfra.api import StringCommand

from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.installed import DriverPackages
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.installed_packages import InstalledPackages


@dataclass(frozen=True)
class DriverChange:
    """Hold one change of the driver's packages.

    coming: name -> package version; going: names; upstream: the driver's version; sources: all that apt may look at,
    empty for the node's own; stream: the module stream (MODULE:STREAM) that dnf is to have enabled, empty for none;
    along: name -> version of what else is there of the driver, and must not stay at its version.
    """

    coming: Mapping[str, str]
    going: Sequence[str]
    upstream: str
    sources: str = ""
    stream: str = ""
    along: Mapping[str, str] = field(default_factory=dict)


class Family(Protocol):
    """Name what a module of this folder gives.

    `functions` are shell functions for the driver's transaction; its variables are $checkpoint (a folder), $own and
    $foreign (patterns of the driver's package names), $arguments (NAME=VERSION, and NAME- for what goes), $names:

    + unlocked: wait for the manager's lock, and fail in words that name who holds it
    + driver_packages: print NAME VERSION WANT STATUS of each package of the driver; WANT is hold where it is held,
      STATUS installed where it is whole
    + is_installed NAME=VERSION; stated NAME: print how a package is, for people
    + saved_file FOLDER NAME VERSION: print the path of a package's file that is whole and genuine; fail without one
    + cached_file NAME VERSION: the same, of the manager's own cache; fetch NAME=VERSION...: into the working folder
    + save_choices, restore_choices: what beside the packages themselves belongs to their state, to and from $checkpoint
    + release NAME..., keep NAME: take a hold away for the change, and set it again
    + install_driver: bring $arguments about; fail where the manager refuses or fails
    + remove_driver NAME...: remove packages; forget NAME: remove the configuration that one left behind
    + unneeded: print the packages that came as dependencies and that nothing needs; remove_unneeded NAME...
    + finish_half: finish what the manager left half-done; finish_first: where there was no driver before, finish the
      new one instead of removing it, or fail
    + put_back: bring back $files, and remove the packages $added

    `saved` is the folder's name for the files that are saved, `holding` the files that keep packages still; `tools` are
    packages that gpunode needs on every node of the family, `holding_tools` those that it needs to hold others.
    `otherwise` is what else can be done where the repositories have not the version that is asked for.
    """

    name: str
    functions: str
    saved: str
    holding: tuple[str, ...]
    tools: tuple[str, ...]
    holding_tools: tuple[str, ...]
    otherwise: str

    def state(self) -> DriverPackages:
        """Return the driver's packages on the node; raise OperationRefused where it does not answer."""

    def held_by(self, state: DriverPackages) -> Mapping[str, str]:
        """Return what was read of each file of `holding`: path -> what keep_file of keeping.sh is told."""

    def finish(self) -> Iterator[StringCommand]:
        """Return the commands that finish what the package manager left half-done."""

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        """Return the commands that read the repositories anew, above all the one of ours with that label."""

    def offers(self, names: Sequence[str], change: DriverChange) -> Offers:
        """Return which versions the repositories have."""

    def bound(self, change: DriverChange) -> DriverChange:
        """Return the change with everything named that would not come along, or would come at another version."""

    def simulation(self, change: DriverChange) -> Simulation:
        """Return what the package manager would do."""

    def variables(self, change: DriverChange) -> dict[str, str]:
        """Return the shell variables that `functions` need beside the transaction's own."""

    def hold(self, state: DriverPackages, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Return the commands that hold `keep` (name -> version) and release what else gpunode held; none if so."""

    def installed(self, names: Sequence[str]) -> InstalledPackages:
        """Return the installed ones among packages."""

    def install(self, arguments: Sequence[str], repository: str, instead: str = "") -> StringCommand:
        """Return the command that installs NAME or NAME=RULE, each at its newest version that fits, and proves it.

        `repository` as for `refresh`. With apt and dnf, NAME- is removed in the same transaction. Where others would go
        for it, it ends before it has begun, and says `instead`: how the settings ask for something else.
        """
