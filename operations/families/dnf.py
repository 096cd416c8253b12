"""dnf and rpm: RHEL and its kin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.base.tables import driver_sources
from gpunode.facts.base import NodeFact
from gpunode.facts.families.dnf import DRIVER_PACKAGES, VERSIONS, DnfOffers, DnfSimulation
from gpunode.facts.families.rpm import SKIPPING
from gpunode.operations.failure import OperationRefused
from gpunode.operations.families.family import OWNED, TRANSACTION, DriverChange, RpmFamily
from gpunode.operations.files import replace_command
from gpunode.operations.keeping import UNREAD, digest_of_text
from gpunode.operations.script import script_command
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.installed import DriverPackages as State
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families.dnf import LOCKLIST, LockedPackages, locked

# dnf waits for its own lock and rpm's, and with -q leaves out why it could not fetch. versionlock hides the change.
DNF_RUN = f"""
dnf_run() {{
  dnf -y {SKIPPING} --setopt=install_weak_deps=False --setopt=clean_requirements_on_remove=False "$@"
}}
dnf_cached() {{ dnf -q -C {SKIPPING} --disableplugin=versionlock "$@"; }}
"""

_FUNCTIONS = f"""
stream=${{stream:-}} streamed=${{streamed:-}}
{VERSIONS}
{DRIVER_PACKAGES.strip()}
{TRANSACTION}{script_file("dnf_driver")}"""
REFRESH = script_file("dnf_refresh")

OFFERED = script_file("dnf_install")


class Dnf(RpmFamily):
    """Change packages by dnf; the driver stays still by versionlock."""

    name = program = "dnf"
    functions = DNF_RUN + _FUNCTIONS
    REINSTALLING = f'{DNF_RUN}{REFRESH}{OWNED}again() {{ dnf_run --disableplugin=versionlock reinstall "$@"; }}\n'
    # curl is there, as the package curl or curl-minimal. `dnf download` saves what a change takes away.
    tools: tuple[str, ...] = ("ca-certificates", "dnf-plugins-core", "gnupg2")
    holding_tools: tuple[str, ...] = ("python3-dnf-plugin-versionlock",)
    holding = (LOCKLIST,)
    CALLS, REFRESHING, OFFERING = DNF_RUN, REFRESH, OFFERED
    FINISHING = script_file("dnf_finish")
    offers_fact: type[NodeFact[Offers]] = DnfOffers
    simulation_fact: type[NodeFact[Simulation]] = DnfSimulation

    def held_by(self, state: State) -> Mapping[str, str]:
        # Without the plugin the list was not read, and may be there.
        text = state.locklist if isinstance(state, LockedPackages) else None
        return {LOCKLIST: UNREAD if text is None else digest_of_text(text)}

    def finish(self) -> Iterator[StringCommand]:
        yield script_command(f"{self.CALLS}{self.FINISHING}")

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        yield script_command(f'{self.REFRESHING}refresh "$1"', repository)

    def sight(self, change: DriverChange) -> dict[str, str]:
        return {"stream": change.stream}

    def simulation(self, change: DriverChange) -> Simulation:
        # What only goes is looked for at no version.
        return self.dry_run(change, upstream=change.upstream if change.coming else "")

    def variables(self, change: DriverChange) -> dict[str, str]:
        streams = [name for row in driver_sources() if row.family == self.name for name in row.stream.values()]
        return {"stream": change.stream, "streamed": " ".join(sorted({name.partition(":")[0] for name in streams}))}

    def hold(self, state: State, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Hold by our part of versionlock's list; the plugin comes with what else dnf needs before the driver."""
        if not isinstance(state, LockedPackages) or (state.locklist is None and keep):
            raise OperationRefused(
                "dnf's plugin versionlock is missing or switched off, and without it nothing keeps the driver's "
                "packages as they are; install python3-dnf-plugin-versionlock and set enabled = 1 in "
                "/etc/dnf/plugins/versionlock.conf, or set driver.hold = False"
            )
        actual = state.locklist or ""
        text = locked(actual, keep, every=state.every)
        if text != actual:
            yield replace_command(LOCKLIST, text, state.locklist)


DNF = Dnf()
