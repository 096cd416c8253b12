"""apt and dpkg: Debian and Ubuntu."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.base.template import rendered
from gpunode.facts.driver import DriverOffers, DriverSimulation
from gpunode.facts.packages import DebPackages
from gpunode.node.own_files.holds import PREFERENCES, UNATTENDED
from gpunode.operations.apt import APT_GET, FINISH, HOLD, MARK, READ_LISTS, REFRESH
from gpunode.operations.failure import read_fact
from gpunode.operations.families.family import DriverChange, Family
from gpunode.operations.files import write_command
from gpunode.operations.keeping import digest_of_text
from gpunode.operations.own_files import keeps
from gpunode.operations.script import script_command
from gpunode.packages.driver_packages.choice import pin_text
from gpunode.packages.driver_packages.installed import DriverPackages as State
from gpunode.packages.driver_packages.simulation import Simulation, left_behind

_FUNCTIONS = script_file("apt_driver")

INSTALL = script_file("refuse_removal", "apt_install")


class _Apt(Family):
    """Change packages by apt and dpkg."""

    name = program = "apt"
    functions = APT_GET + MARK + _FUNCTIONS
    REINSTALLING = APT_GET + READ_LISTS + REFRESH + script_file("apt_reinstall")
    saved = "debs"
    tools = ("ca-certificates", "curl", "gpg")
    holding = (PREFERENCES, UNATTENDED)
    packages_fact = DebPackages
    offers_fact = DriverOffers
    simulation_fact = DriverSimulation

    def held_by(self, state: State) -> Mapping[str, str]:
        return {PREFERENCES: digest_of_text(state.preferences), UNATTENDED: digest_of_text(state.unattended)}

    def finish(self) -> Iterator[StringCommand]:
        yield script_command(f"{APT_GET}{FINISH}")

    def refresh(self, repository: str) -> Iterator[StringCommand]:
        yield script_command(f'{APT_GET}{READ_LISTS}{REFRESH}refresh "$1"', repository)

    def sight(self, change: DriverChange) -> dict[str, str]:
        return {"sources": change.sources}

    def bound(self, change: DriverChange) -> DriverChange:
        """Name what neither comes nor goes by itself: preferences bind all that comes, at one version.

        Not what would come along: some of it is empty, and in the way of what has its files now (nvidia-smi since 560).
        """
        late = left_behind(change.along, self.simulation(change)) if change.along else {}
        return replace(change, coming={**change.coming, **late})

    def simulation(self, change: DriverChange) -> Simulation:
        arguments = [*(f"{name}={version}" for name, version in change.coming.items())]
        arguments += [f"{name}-" for name in change.going]
        question = {"arguments": arguments, "pin": pin_text(change.upstream), "sources": change.sources}
        return read_fact(self.simulation_fact, "what apt would do", **question)

    def variables(self, change: DriverChange) -> dict[str, str]:
        return {"pin": pin_text(change.upstream), "sources": change.sources}

    def hold(self, state: State, keep: Mapping[str, str]) -> Iterator[StringCommand]:
        """Hold by apt-mark, preferences and unattended-upgrades."""
        hold_now = sorted(set(keep) - set(state.held))
        let_go = sorted(set(state.held_by_us) & set(state.held) - set(keep))
        by_version: dict[str, list[str]] = {}
        for name, version in keep.items():
            by_version.setdefault(version, []).append(name)
        # As regular expressions, of which a package's name holds these two signs at most.
        names = [name.replace(".", "[.]").replace("+", "[+]") for name in keep]
        files = {
            path: (actual, rendered(template, by_version=by_version, names=names) if keep else None)
            for path, actual, template in (
                (PREFERENCES, state.preferences, "driver-preferences"),
                (UNATTENDED, state.unattended, "driver-unattended-upgrades.conf"),
            )
        }
        for path, (_, text) in files.items():
            keeps(path, text)
        # What is let go is known by the file of before, which is therefore written last.
        if hold_now or let_go:
            yield script_command(HOLD, hold=" ".join(hold_now), unhold=" ".join(let_go))
        for path, (actual, text) in files.items():
            if actual != text:
                yield write_command(path, text) if text is not None else script_command('rm -f "$path"', path=path)

    def install(self, arguments: Sequence[str], repository: str, instead: str = "") -> StringCommand:
        # With a tilde: so do Debian's versions put a candidate before the release.
        desired = [argument.replace("-rc.", "~rc.") for argument in arguments]
        text = f"{APT_GET}{READ_LISTS}{REFRESH}{INSTALL}"
        return script_command(text, *desired, repository=repository, instead=instead)


APT = _Apt()
