"""rpm, beneath dnf and zypper alike."""

from __future__ import annotations

from collections.abc import Sequence

from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.facts.families.rpm import RpmPackages
from gpunode.operations.families.family import Family
from gpunode.operations.script import script_command

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
