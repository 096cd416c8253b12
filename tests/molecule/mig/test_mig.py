"""The life of a pair of H100 that are divided: layouts, reboots, and what goes wrong on the way.

SIMULATED: GPUs, driver, nvidia-smi, and the processes that hold a GPU.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

import pytest
import yaml

from gpunode.components.mig.geometry import product_geometry
from gpunode.components.mig.placement import feasible, layout_of
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import ALL, LAB, Run, command, inventory_with, tried_before

pytestmark = pytest.mark.life

ALONE: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
UNIT = "gpunode-mig-layout.service"
MAIN = "deploys/gpu_node.py"
# Device and subsystem of the lab's H100, as nvidia-mig-parted has them.
BOARD = "0x233010DE:0x16C110DE"
SECOND = {"devices": [1], "mig-enabled": False}
HOLDING = """
systemctl stop trainer
printf '[Service]\\nExecStart=/usr/sbin/gpunode-lab-hold 0 --name trainer\\n' > /etc/systemd/system/trainer.service
systemctl daemon-reload && systemctl start trainer && sleep 1
"""
LAYOUTS = {
    "mixed": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2},
    "wider": {"3g.40gb": 1, "2g.20gb": 2},
    "halves": {"3g.40gb": 2},
}


class Mig:
    """Ask for a layout of the node's first GPU, and for MIG off on its second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.declare(LAYOUTS)

    def declare(self, layouts: dict[str, dict[str, int]], board: str = BOARD) -> None:
        first = {"device-filter": board, "devices": [0], "mig-enabled": True}
        configs = {name: [{**first, "mig-devices": layout}, SECOND] for name, layout in layouts.items()}
        (self.folder / "mig.yaml").write_text(yaml.safe_dump({"version": "v1", "mig-configs": configs}))

    def inventory(self, config: str | None, **more: object) -> str:
        mig: dict[str, object] = {"config": config, "file": str(self.folder / "mig.yaml")} if config else {}
        return inventory_with(self.folder, {"gpu-1": {**ALONE, "mig": {**mig, **more}}})

    def run(self, config: str | None, job: str = "deploys.mig.mig", **more: object) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(config, **more), job)

    def drift(self, config: str | None) -> dict[str, tuple[str, str]]:
        """Return what -> (class, found) of what is not as desired."""
        (findings,) = command("gpunode", "drift", "--json", self.inventory(config)).findings.values()
        return {item["what"]: (item["class"], item["actual"]) for item in findings if item["class"] != "ok"}


@pytest.fixture(scope="module")
def node() -> Node:
    """Return a fresh node with two GPUs and no driver."""
    return lab_nodes.recreate(lab_nodes.node(LAB, "gpu-1"))


@pytest.fixture
def mig(tmp_path: Path) -> Mig:
    return Mig(tmp_path)


def on(node: Node, line: str) -> str:
    return lab_nodes.run(node, line).stdout.strip()


def devices(node: Node) -> dict[str, str]:
    """Return UUID -> profile of each MIG device."""
    rows = [line.split() for line in on(node, "nvidia-smi -L").splitlines() if line.startswith("  MIG")]
    return {row[-1].rstrip(")"): row[1] for row in rows}


def layout(node: Node) -> dict[str, int]:
    return dict(Counter(devices(node).values()))


def modes(node: Node) -> list[str]:
    return on(node, "nvidia-smi --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader").splitlines()


def journal(node: Node) -> dict[str, str]:
    found: dict[str, str] = json.loads(on(node, "cat /var/lib/gpunode/transactions/mig.json"))
    return found


def changes(run: Run) -> set[str]:
    return set(run.operations("success")) - {"Record what was applied"}


def awaited(node: Node, before: str) -> None:
    """Wait until the node runs from another boot than `before`."""
    for _ in range(120):
        now = lab_nodes.booted(node)
        if now not in ("", before) and on(node, "systemctl is-system-running") in ("running", "degraded"):
            return
        time.sleep(1)
    raise AssertionError("the node did not come back")


def test_a_pair_is_divided_as_declared_and_the_second_run_changes_nothing(node: Node, mig: Mig) -> None:
    run = mig.run("mixed", job=MAIN)
    assert run.code == 0, run.printed
    assert layout(node) == LAYOUTS["mixed"] and modes(node) == ["Enabled, Enabled", "Disabled, Disabled"]
    before = devices(node)
    again = mig.run("mixed", job=MAIN)
    assert again.code == 0 and changes(again) == set(), again.printed
    assert devices(node) == before and mig.drift("mixed") == {}


def test_from_3g_2g_1g_1g_to_3g_2g_2g_the_3g_and_the_2g_keep_their_uuids(node: Node, mig: Mig) -> None:
    before = devices(node)
    assert "MIG instances of GPU 0" in mig.drift("wider")
    run = mig.run("wider")
    assert run.code == 0, run.printed
    assert layout(node) == LAYOUTS["wider"]
    kept = {uuid: profile for uuid, profile in devices(node).items() if uuid in before}
    assert sorted(kept.values()) == ["2g.20gb", "3g.40gb"] and kept.items() <= before.items()


def test_whoever_holds_the_gpu_is_named_and_only_a_listed_unit_is_stopped_and_started_again(
    node: Node, mig: Mig
) -> None:
    on(node, "systemd-run --quiet --unit=trainer --property=Restart=on-failure gpunode-lab-hold 0 --name trainer")
    before = devices(node)
    run = mig.run("mixed")
    assert run.code != 0 and "(trainer) of root, unit trainer.service" in run.printed, run.printed
    assert devices(node) == before and on(node, "systemctl is-active trainer") == "active"
    assert journal(node)["state"] == "restored"
    # A unit that systemd-run made is gone once it has stopped: this one is there to start again.
    on(node, HOLDING)
    began = on(node, "systemctl show -p MainPID trainer")
    run = mig.run("mixed", stop_units=["trainer.service"])
    assert run.code == 0 and layout(node) == LAYOUTS["mixed"], run.printed
    assert on(node, "systemctl is-active trainer") == "active"
    assert on(node, "systemctl show -p MainPID trainer") != began
    on(node, "systemctl stop trainer")


def test_who_uses_an_instance_that_is_to_go_is_named_and_one_that_stays_is_left_in_peace(node: Node, mig: Mig) -> None:
    rows = [line.split() for line in on(node, "nvidia-smi mig -lgi").splitlines() if " MIG " in line and ":" in line]
    numbers = {row[3]: row[5] for row in rows}
    before = devices(node)
    hold = "systemd-run --quiet --uid=nobody --unit={} gpunode-lab-hold 0 --name {} --instance {}; sleep 1"
    on(node, hold.format("serving", "serving", numbers["3g.40gb"]))
    on(node, hold.format("notebook", "notebook", numbers["1g.10gb"]))
    assert on(node, "systemctl is-active serving notebook").split() == ["active", "active"]
    run = mig.run("wider")
    assert run.code != 0 and "(notebook) of nobody, unit notebook.service" in run.printed, run.printed
    assert "(serving)" not in run.printed and devices(node) == before
    on(node, "systemctl stop notebook")
    served = on(node, "systemctl show -p MainPID serving")
    run = mig.run("wider")
    assert run.code == 0 and layout(node) == LAYOUTS["wider"], run.printed
    assert on(node, "systemctl show -p MainPID serving") == served
    (uuid,) = (uuid for uuid, profile in before.items() if profile == "3g.40gb")
    assert uuid in devices(node)
    on(node, "systemctl stop serving")
    assert mig.run("mixed").code == 0


def test_an_nvidia_smi_that_is_killed_leaves_the_former_layout_and_the_next_run_heals_it(node: Node, mig: Mig) -> None:
    lab_nodes.set_fault(node, smi_killed_at=3)
    run = mig.run("wider")
    assert run.code != 0 and "nvidia-smi was killed" in run.printed, run.printed
    assert layout(node) == LAYOUTS["mixed"] and journal(node)["state"] == "restored"
    # With the verdict at its end.
    run = mig.run("wider", job=MAIN)
    assert run.code == 0 and layout(node) == LAYOUTS["wider"], run.printed


def test_what_a_gpu_refuses_is_put_back_and_not_tried_again(node: Node, mig: Mig) -> None:
    lab_nodes.set_fault(node, mig_create_fails_at=1)
    run = mig.run("halves")
    assert run.code != 0 and "GPU 0 refuses 3g.40gb:" in run.printed, run.printed
    assert layout(node) == LAYOUTS["wider"] and journal(node)["state"] == "failed"
    lab_nodes.clear_faults(node)
    assert tried_before(mig.run("halves"), "mig")


def test_what_cannot_be_put_back_is_named_and_the_next_run_heals_it(node: Node, mig: Mig) -> None:
    lab_nodes.set_fault(node, mig_create_fails=0)
    run = mig.run("mixed")
    assert run.code != 0 and "missing 2g.20gb:" in run.printed, run.printed
    assert journal(node)["state"] == "began" and "missing 2g.20gb:" in journal(node)["reason"]
    lab_nodes.clear_faults(node)
    run = mig.run("mixed")
    assert run.code == 0 and "undone first" in run.printed and layout(node) == LAYOUTS["mixed"], run.printed


def test_a_lost_gpu_is_told_and_nothing_is_changed(node: Node, mig: Mig) -> None:
    lab_nodes.set_fault(node, lost_gpu=0)
    run = mig.run("wider")
    assert run.code != 0 and "lost" in run.printed, run.printed
    lab_nodes.clear_faults(node)
    assert layout(node) == LAYOUTS["mixed"]


def test_a_mode_that_a_refused_reset_keeps_waiting_is_taken_back(node: Node, mig: Mig) -> None:
    lab_nodes.set_fault(node, mig_pending=1, reset_refused=1)
    run = mig.run("all-1g.10gb", file=None)
    assert run.code != 0 and "GPU 1 refuses a reset" in run.printed, run.printed
    assert modes(node)[1] == "Disabled, Disabled" and layout(node) == LAYOUTS["mixed"]
    lab_nodes.clear_faults(node)


def test_after_a_power_cut_between_destroy_and_create_the_former_layout_is_back_and_the_next_run_goes_on(
    node: Node, mig: Mig
) -> None:
    before = lab_nodes.booted(node)
    # Two compute instances and two GPU instances go first.
    lab_nodes.set_fault(node, power_cut_at=4)
    assert mig.run("wider").code != 0
    awaited(node, before)
    assert layout(node) == LAYOUTS["mixed"] and journal(node)["state"] == "began"
    run = mig.run("wider")
    assert run.code == 0 and layout(node) == LAYOUTS["wider"], run.printed


def test_the_layout_is_there_after_a_reboot_before_containerd_starts(node: Node, mig: Mig) -> None:
    lab_nodes.reboot(node)
    assert layout(node) == LAYOUTS["wider"] and modes(node)[1] == "Disabled, Disabled"
    assert on(node, f"systemctl is-active {UNIT}") == "active"
    before = on(node, f"systemctl show -p Before --value {UNIT}").split()
    assert {"containerd.service", "docker.service", "kubelet.service"} <= set(before)
    assert mig.drift("wider") == {}
    uuids = devices(node)
    on(node, f"systemctl restart {UNIT}")
    assert devices(node) == uuids


def test_layouts_drawn_at_random_are_reached_one_after_the_other(node: Node, mig: Mig) -> None:
    geometry = product_geometry("H100-80GB")
    assert geometry is not None
    drawn = random.Random(2026).sample(feasible(geometry), 20 if ALL else 8)
    layouts = {f"layout-{number}": layout_of(geometry, counts) for number, counts in enumerate(drawn)}
    mig.declare(layouts)
    inventory = Path(mig.inventory("layout-0"))
    inventory.write_text(
        inventory.read_text()
        + f"nodes = [(name, {{**data, 'x_transitions': {list(layouts)!r}}}) for name, data in nodes]\n"
    )
    run = command("pyinfra", "-y", "--json", str(inventory), "tests/molecule/mig/transitions.py")
    assert run.code == 0, run.printed
    found: dict[str, list[str]] = {}
    for noted in on(node, "cat /root/transitions").split("layout-")[1:]:
        number, *rows = noted.splitlines()
        found[f"layout-{number}"] = [row.split()[3] for row in rows]
    assert {name: dict(Counter(profiles)) for name, profiles in found.items()} == layouts


def test_without_a_configuration_what_brings_it_back_goes_and_the_instances_stay(node: Node, mig: Mig) -> None:
    before = devices(node)
    assert "service gpunode-mig-layout.service" in mig.drift(None)
    assert mig.run(None).code == 0
    assert on(node, f"ls /etc/systemd/system/{UNIT} /var/lib/gpunode/mig/layout 2>/dev/null || true") == ""
    again = mig.run(None)
    assert again.code == 0 and changes(again) == set() and devices(node) == before and mig.drift(None) == {}


def test_a_mode_that_nothing_but_a_boot_brings_gets_one_where_that_is_allowed(node: Node, mig: Mig) -> None:
    """An A100, whose InfoROM keeps the mode for the next boot."""
    a100 = lab_nodes.recreate(node, gpu="a100-40gb")
    lab_nodes.set_fault(a100, mig_pending=0, reset_refused=0)
    before = lab_nodes.booted(a100)
    mig.declare({"half": {"3g.20gb": 1, "1g.5gb": 1}}, board="0x20B010DE")
    inventory = Path(mig.inventory("half"))
    inventory.write_text(inventory.read_text().replace("'mig':", "'disruption': {'allow': 'reboot'}, 'mig':"))
    run = command("pyinfra", "-y", "--json", str(inventory), MAIN)
    assert run.code == 0, run.printed
    assert lab_nodes.booted(a100) not in ("", before)
    assert layout(a100) == {"3g.20gb": 1, "1g.5gb": 1} and modes(a100) == ["Enabled, Enabled", "Disabled, Disabled"]
