"""Power limits, clocks and ECC of a pair of H100: set, kept over a boot, put right, and gone again.

SIMULATED: GPUs, driver, nvidia-smi. systemd and gpunode's unit are real.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpunode.components.power.state import FILES, NAME, SCRIPT, UNIT
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import LAB, Run, command, inventory_with

pytestmark = pytest.mark.life

ALONE: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
ASKED: dict[str, object] = {"limit": 600, "locked_graphics_clocks": "1200,1500"}
FIELDS = "power.limit,clocks.gr,ecc.mode.current,ecc.mode.pending"
SET = ["600.00, 1500, Enabled, Enabled"] * 2
DEFAULT = ["700.00, 1980, Enabled, Enabled"] * 2


class Power:
    """Ask for power limits of the node's GPUs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def inventory(self, asked: dict[str, object], allow: str = "nothing") -> str:
        disruption = {"disruption": {"allow": allow}} if allow != "nothing" else {}
        return inventory_with(self.folder, {"gpu-1": {**ALONE, **disruption, "power": asked}})

    def run(self, **asked: object) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(asked), "deploys/gpu_node.py")

    def boot(self, **asked: object) -> Run:
        """Run where the node may be booted."""
        return command("pyinfra", "-y", "--json", self.inventory(asked, "reboot"), "deploys/gpu_node.py")

    def drift(self, **asked: object) -> dict[str, tuple[str, str]]:
        """Return what -> (class, found) of what is not as desired."""
        (findings,) = command("gpunode", "drift", "--json", self.inventory(asked)).findings.values()
        return {item["what"]: (item["class"], item["actual"]) for item in findings if item["class"] != "ok"}


@pytest.fixture(scope="module")
def node() -> Node:
    """Return a fresh node with two GPUs and no driver."""
    return lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"), gpu="h100-80gb")


@pytest.fixture
def power(tmp_path: Path) -> Power:
    return Power(tmp_path)


def on(node: Node, line: str) -> str:
    return lab_nodes.run(node, line).stdout.strip()


def told(node: Node) -> list[str]:
    return on(node, f"nvidia-smi --query-gpu={FIELDS} --format=csv,noheader,nounits").splitlines()


def test_limits_and_clocks_are_set_and_the_second_run_changes_nothing(node: Node, power: Power) -> None:
    first = power.run(**ASKED)
    assert first.code == 0, first.printed
    assert told(node) == SET
    assert on(node, f"systemctl is-enabled {NAME}") == "enabled"
    written = on(node, f"stat -c %y {' '.join(FILES)}")
    again = power.run(**ASKED)
    assert again.code == 0, again.printed
    assert on(node, f"stat -c %y {' '.join(FILES)}") == written and power.drift(**ASKED) == {}


def test_they_are_there_after_a_boot_before_any_run(node: Node, power: Power) -> None:
    lab_nodes.reboot(node)
    assert on(node, f"systemctl is-active {NAME}") == "active"
    assert told(node) == SET and power.drift(**ASKED) == {}


def test_a_limit_set_by_hand_and_a_lost_script_are_found_and_put_right(node: Node, power: Power) -> None:
    on(node, f"nvidia-smi -i 1 -pl 500 && nvidia-smi -i 0 -rgc && rm {SCRIPT}")
    found = power.drift(**ASKED)
    assert found["power limit of GPU 1"] == ("drift", "500 W")
    assert found["locked graphics clocks of GPU 0"] == ("drift", "1980 MHz")
    assert found[f"file {SCRIPT}"] == ("drift", "none")
    run = power.run(**ASKED)
    assert run.code == 0 and told(node) == SET and power.drift(**ASKED) == {}, run.printed


def test_what_no_gpu_takes_is_refused_with_key_and_reason_and_changes_nothing(node: Node, power: Power) -> None:
    run = power.run(limit=800)
    assert run.code != 0 and "power.limit: GPU 0" in run.printed and "takes 200 to 700 W" in run.printed
    assert told(node) == SET


def test_a_gpu_that_only_says_that_it_took_a_limit_fails_the_run(node: Node, power: Power) -> None:
    lab_nodes.set_fault(node, power_ignored=0)
    run = power.run(**{**ASKED, "limit": 550})
    assert run.code != 0 and "is 600.00 after" in run.printed, run.printed
    on(node, "gpunode-lab-fault clear")
    assert power.run(**ASKED).code == 0 and told(node) == SET


def test_ecc_is_set_and_reported_as_pending_until_a_boot(node: Node, power: Power) -> None:
    asked = {**ASKED, "ecc": False}
    power.run(**asked)
    assert told(node) == ["600.00, 1500, Enabled, Disabled"] * 2
    assert power.drift(**asked)["ECC of GPU 0"] == ("reboot pending", "Enabled, Disabled after the next boot")
    lab_nodes.reboot(node)
    assert told(node) == ["600.00, 1500, Disabled, Disabled"] * 2 and power.drift(**asked) == {}


def test_where_a_run_may_boot_the_node_ecc_changes_in_one_run(node: Node, power: Power) -> None:
    asked = {**ASKED, "ecc": True}
    booted = on(node, "stat -c %y /proc/1")
    run = power.boot(**asked)
    assert run.code == 0 and "a new boot" in run.printed, run.printed
    assert on(node, "stat -c %y /proc/1") != booted
    # The limits are there, too, and nobody has it booted again.
    assert told(node) == SET and power.drift(**asked) == {}
    booted = on(node, "stat -c %y /proc/1")
    again = power.boot(**asked)
    assert again.code == 0 and on(node, "stat -c %y /proc/1") == booted, again.printed


def test_without_the_settings_the_gpus_have_their_defaults_and_nothing_is_left(node: Node, power: Power) -> None:
    run = power.run()
    assert run.code == 0 and told(node) == DEFAULT, run.printed
    left = f"ls {' '.join(FILES)} /run/gpunode/power /etc/systemd/system/*/{NAME} 2>/dev/null || true"
    assert on(node, left) == "" and power.drift() == {}
    assert on(node, f"systemctl show -p LoadState --value {UNIT.rpartition('/')[2]}") == "not-found"
