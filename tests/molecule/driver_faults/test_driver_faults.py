"""Ten faults in the middle of a driver's installation and of its upgrade; each node has its own, all in one run.

Whatever happens, a driver that worked is left at work, the run says why it failed and what to do, and the run after the
cause is mended ends as desired. Proven elsewhere: a killed transaction and the way back after a boot (apt_cuda), faults
at the other operations (interruption), refused keys and settings (trouble), keys that are trusted too far
(supply_chain). SIMULATED: GPUs and the driver's packages; apt, dpkg, their locks, systemd and SSH are real.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpunode.facts.transaction import FOLDER
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import LAB, Run, command, inventory_with, out, report
from tests.molecule.driver_faults.faults import ALONE_WITH_THE_DRIVER, DONE, FAULTS, NEW, OLD, UNFINISHED, Fault

ALONE: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
SITUATIONS = {"first installation": OLD, "upgrade": NEW}
_STATE = r"""
echo "loaded: $(cat /sys/module/nvidia/version 2>/dev/null)"
echo "on disk: $(modinfo -F version nvidia 2>/dev/null)"
nvidia-smi -L > /dev/null 2>&1; echo "nvidia-smi exits: $?"
echo "half-done: $(dpkg --audit | tr '\n' ' '; ls /var/lib/dpkg/updates)"
dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n' '*nvidia*' 2>/dev/null | sed -n 's/^.[^n]/package: &/p'
"""


@dataclass(frozen=True)
class Driver:
    """Hold what a node has of a driver; `packages` are dpkg's state, name and version."""

    loaded: str
    on_disk: str
    nvidia_smi: str
    half_done: str
    packages: tuple[tuple[str, str, str], ...]

    @property
    def versions(self) -> set[tuple[str, str]]:
        """Return each package's state (`ii`, `hi` where it is held) and version."""
        return {(state, version) for state, _, version in self.packages}


@dataclass(frozen=True)
class Life:
    """Hold what one node lived through."""

    before: Driver
    after: Driver
    failed: bool
    waited: bool
    said: str
    tried_again: str
    healed: Driver
    healing: str
    changed_in_the_end: tuple[str, ...]


@dataclass(frozen=True)
class Situation:
    """Hold the lives of all nodes in one situation, and the runs: the struck one, the healing one, one more."""

    version: str
    lives: dict[str, Life]
    runs: tuple[Run, Run, Run]
    well: Driver


def driver(node: Node) -> Driver:
    """Return what a node has of a driver."""
    found: dict[str, list[str]] = {}
    for line in lab_nodes.run(node, _STATE).stdout.splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key, []).append(value.strip())
    packages = tuple((words[0], words[1], words[2]) for each in found.get("package", []) if (words := each.split()))
    loaded, on_disk, nvidia_smi, half_done = (
        found[key][0] for key in ("loaded", "on disk", "nvidia-smi exits", "half-done")
    )
    return Driver(loaded, on_disk, nvidia_smi, half_done, packages)


def said_of(run: Run, node: Node) -> str:
    """Return what a run printed of one node, without what it prints of each."""
    lines = (line.partition("]")[2].strip() for line in run.stderr.splitlines() if f"[{node.name}]" in line)
    everyday = ("Connected", "Success", "No changes", "Skipped", "Ready:", "Error: executed")
    return "\n".join(line for line in lines if line and not line.startswith(everyday))


def up(node: Node) -> None:
    """Wait until a node that was rebooted is up again."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        said = lab_nodes.run(node, "systemctl is-system-running; systemctl is-active ssh").stdout.split()
        if said in (["running", "active"], ["degraded", "active"]):
            return
        time.sleep(0.3)
    raise AssertionError(f"{node.name} did not come back")


class Fleet:
    """The nodes: one for each fault, and a last one that has none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        *struck, self.well = lab_nodes.nodes(LAB)
        self.struck = dict(zip(FAULTS, struck, strict=True))
        for node in (*struck, self.well):
            out(node, ALONE_WITH_THE_DRIVER)

    def run(self, version: str, *options: str, faults: bool = False) -> Run:
        """Ask all nodes for a driver; with `faults`, for one that does not load where that is the fault."""
        data: dict[str, dict[str, object]] = {self.well.name: {**ALONE, "driver": {"version": version}}}
        for fault, node in self.struck.items():
            asked = fault.version if faults and fault.version else version
            data[node.name] = {**ALONE, "driver": {"version": asked, "allow_branch_change": True}}
            if faults and fault.version:
                data[node.name]["disruption"] = {"allow": "reboot"}
        inventory = inventory_with(self.folder, data)
        return command("pyinfra", "-y", "--json", *options, inventory, "deploys/gpu_node.py")

    def drivers(self) -> dict[Fault, Driver]:
        """Return what each struck node has."""
        return {fault: driver(node) for fault, node in self.struck.items()}

    def live(self, version: str) -> Situation:
        """Strike all nodes in one run, mend the causes, and run twice more."""
        before = self.drivers()
        for fault, node in self.struck.items():
            fault.strike(node, version)
        struck = self.run(version, faults=True)
        for fault, node in self.struck.items():
            if fault.boots:
                up(node)
        after = self.drivers()
        waited = [fault for fault, node in self.struck.items() if not lab_nodes.run(node, "ls /run/waited").returncode]
        again = {
            fault: said_of(self.run(version, "--limit", node.name, faults=True), node)
            for fault, node in self.struck.items()
            if fault.version
        }
        for fault, node in self.struck.items():
            fault.mended(node, version)
        healing = self.run(version)
        healed = self.drivers()
        settled = self.run(version)
        lives = {
            fault.name: Life(
                before=before[fault], after=after[fault], healed=healed[fault],
                failed=node.name in struck.payload["results"]["failed_hosts"], waited=fault in waited,
                said=said_of(struck, node), tried_again=again.get(fault, ""), healing=said_of(healing, node),
                changed_in_the_end=tuple(
                    name for name, hosts in settled.operations("success").items() if node.name in hosts
                ),
            )
            for fault, node in self.struck.items()
        }  # fmt: skip
        return Situation(version, lives, (struck, healing, settled), driver(self.well))


@pytest.fixture(scope="module")
def situations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Situation]:
    """Return both situations, lived through by all nodes, and written down."""
    fleet = Fleet(tmp_path_factory.mktemp("fleet"))
    lived = {name: fleet.live(version) for name, version in SITUATIONS.items()}
    rows = ["fault | situation | driver after it | what was said | the next run"]
    for name, situation in lived.items():
        rows += [row(fault, name, situation) for fault in FAULTS]
    report("driver-faults.txt").write_text("\n".join(rows) + "\n")
    return lived


def row(fault: Fault, name: str, situation: Situation) -> str:
    """Return one line of the report."""
    life = situation.lives[fault.name]
    words = [line for line in life.said.splitlines() if "cause:" in line or "driver:" in line] or [
        line for line in life.said.splitlines() if line.startswith("gpunode:")
    ]
    left = "as before" if life.after == life.before else f"{life.after.on_disk or 'none'} on disk"
    left += ", half-done" if life.after.half_done else ""
    loaded = life.after.loaded or "none"
    healed = f"{life.healed.on_disk} by {life.healing.splitlines()[0] if 'interrupted' in life.healing else 'itself'}"
    said = words[0].removeprefix("gpunode: ") if words else "nothing: it went through"
    return f"{fault.name} | {name} | {left}, loaded: {loaded} | {said} | {healed}"


EACH = pytest.mark.parametrize(
    ("fault", "name"), [pytest.param(f, name, id=f"{f.name}, {name}") for name in SITUATIONS for f in FAULTS]
)


@EACH
def test_a_driver_that_worked_works_on(fault: Fault, name: str, situations: dict[str, Situation]) -> None:
    life = situations[name].lives[fault.name]
    if fault.ends == UNFINISHED:
        # The power was lost between two of dpkg's steps: what was begun is known, and undone by the next run.
        assert life.after.half_done
        assert "undone first" in life.healing
        return
    assert life.after.half_done == ""
    if name == "first installation":
        # There is none to lose: what has come is whole, or gone again.
        assert life.after.versions in (set(), {("ii", OLD + "-1")}, {("hi", OLD + "-1")})
        return
    assert (life.before.loaded, life.before.nvidia_smi, life.before.versions) == (OLD, "0", {("hi", OLD + "-1")})
    if fault.ends == DONE:
        assert (life.after.loaded, life.after.on_disk) == (OLD, NEW)
        assert {version for _, version in life.after.versions} == {NEW + "-1"}
    else:
        assert life.after == life.before


@EACH
def test_the_error_names_cause_and_remedy(fault: Fault, name: str, situations: dict[str, Situation]) -> None:
    situation = situations[name]
    life = situation.lives[fault.name]
    assert life.failed == bool(fault.says)
    # What says nothing went through; that it waited is told by the one who held the lock.
    assert life.waited == fault.name.startswith("lock held")
    for words in fault.says:
        choice = words.replace("{version}", situation.version).split("|")
        assert any(each in life.said for each in choice), f"none of {choice} in:\n{life.said}"
    assert not re.search("Traceback|Exception|Unexpected error", life.said), life.said


@EACH
def test_the_next_run_heals_and_the_one_after_changes_nothing(
    fault: Fault, name: str, situations: dict[str, Situation]
) -> None:
    situation = situations[name]
    life = situation.lives[fault.name]
    assert life.healed.versions == {("hi", situation.version + "-1")}, life.healing
    assert (life.healed.half_done, life.healed.on_disk) == ("", situation.version)
    # The old module stays loaded until a boot; a node that lost its power has none, and loads the new one at once.
    assert life.healed.loaded in (OLD, situation.version)
    assert life.changed_in_the_end == ()


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_nodes_beside_are_not_affected_and_runs_end_as_they_should(
    name: str, situations: dict[str, Situation]
) -> None:
    situation = situations[name]
    assert [run.code for run in situation.runs] == [1, 0, 0], situation.runs[1].printed
    assert not any("Traceback" in run.printed for run in situation.runs)
    assert f"gpu-{len(FAULTS) + 1}" in situation.runs[0].operations("no_change")["Verify the node"]
    assert situation.well.versions == {("hi", situation.version + "-1")}
    assert situation.runs[2].operations("success") == {}


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_driver_that_does_not_load_is_not_tried_again_until_the_settings_change(
    name: str, situations: dict[str, Situation]
) -> None:
    life = situations[name].lives["does not load"]
    assert f"{FOLDER}/driver.log" in life.tried_again and "the module" in life.tried_again
