"""What a package manager must be able to do for the operations that change packages; what all do, and all of rpm's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.facts.base import NodeFact
from gpunode.facts.driver import DriverPackages as DriverPackagesFact
from gpunode.facts.families.rpm import RpmPackages
from gpunode.operations.failure import read_fact
from gpunode.operations.script import script_command
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
    """The base of each package manager.

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

    `REINSTALLING` is shell text with the functions that reinstall.sh needs, and refresh.

    `saved` is the folder's name for the files that are saved, `holding` the files that keep packages still; `tools` are
    packages that gpunode needs on every node of the family, `holding_tools` those that it needs to hold others.
    `otherwise` is what else can be done where the repositories have not the version that is asked for. `program` is the
    command. The last three are facts: of packages by name, of the repositories, and of what the manager would do.
    """

    name: str
    program: str
    functions: str
    REINSTALLING: str
    saved: str
    tools: tuple[str, ...]
    holding: tuple[str, ...] = ()
    holding_tools: tuple[str, ...] = ()
    otherwise: str = "mend the repository"
    packages_fact: type[NodeFact[InstalledPackages]]
    offers_fact: type[NodeFact[Offers]]
    simulation_fact: type[NodeFact[Simulation]]

    def state(self) -> DriverPackages:
        """Return the driver's packages on the node; raise OperationRefused where it does not answer."""
        return read_fact(DriverPackagesFact, "the list of the driver's packages")

    def held_by(self, state: DriverPackages) -> Mapping[str, str]:
        """Return what was read of each file of `holding`: path -> what keep_file of keeping.sh is told."""
        return {}

    def finish(self) -> Iterator[StringCommand]:
        """Return the commands that finish what the package manager left half-done."""

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        """Return the commands that read the repositories anew, above all the one of ours with that label."""

    def offers(self, names: Sequence[str], change: DriverChange) -> Offers:
        """Return which versions the repositories have."""
        return read_fact(self.offers_fact, "what the repositories offer", names=list(names), **self.sight(change))

    def sight(self, change: DriverChange) -> dict[str, str]:
        """Return what else the facts are asked with: which repositories count for the change."""
        return {}

    def bound(self, change: DriverChange) -> DriverChange:
        """Return the change with everything named that would not come along, or would come at another version."""
        return replace(change, coming={**change.coming, **change.along})

    def simulation(self, change: DriverChange) -> Simulation:
        """Return what the package manager would do."""
        return self.dry_run(change)

    def dry_run(self, change: DriverChange, **more: str) -> Simulation:
        """Return what the package manager says that it would do; `more` as of `sight`."""
        question: dict[str, Any] = {"coming": dict(change.coming), "going": list(change.going)}
        return read_fact(
            self.simulation_fact, f"what {self.program} would do", **question, **self.sight(change), **more
        )

    def variables(self, change: DriverChange) -> dict[str, str]:
        """Return the shell variables that `functions` need beside the transaction's own."""
        return {}

    def hold(self, state: DriverPackages, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Return the commands that hold `keep` (name -> version) and release what else gpunode held; none if so."""

    def installed(self, names: Sequence[str]) -> InstalledPackages:
        """Return the installed ones among packages."""
        return read_fact(self.packages_fact, "the list of installed packages", names=list(names))

    def install(self, arguments: Sequence[str], repository: str, instead: str = "") -> StringCommand:
        """Return the command that installs NAME or NAME=RULE, each at its newest version that fits, and proves it.

        `repository` as for `refresh`. With apt and dnf, NAME- is removed in the same transaction. Where others would go
        for it, it ends before it has begun, and says `instead`: how the settings ask for something else.
        """

    def reinstall(self, paths: Iterable[str], repository: str) -> StringCommand:
        """Return the command that installs packages again which own lost files; paths: shell patterns."""
        text = f'{self.REINSTALLING}refresh "$repository"\n{script_file("reinstall")}'
        return script_command(text, *paths, repository=repository)


TRANSACTION = script_file("rpm", "rpm_driver")
OWNED = script_file("rpm_owned")
INSTALL = script_file("rpm", "refuse_removal", "rpm_install")


class RpmFamily(Family):
    """The base of the managers of rpm packages.

    Shell text: `CALLS` has the functions that call the manager, `REFRESHING` has refresh, and `OFFERING` has offered.
    """

    saved = "rpms"
    packages_fact = RpmPackages
    CALLS: str
    REFRESHING: str
    OFFERING: str

    def install(self, arguments: Sequence[str], repository: str, instead: str = "") -> StringCommand:
        return script_command(
            f'{self.CALLS}{self.REFRESHING}refresh "$repository"\n{self.OFFERING}{INSTALL}',
            *(argument.replace("-rc.", "~rc.") for argument in arguments),
            repository=repository,
            instead=instead,
            manager=self.program,
        )
