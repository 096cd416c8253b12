"""Nodes that are to boot into another driver, and one that never comes back. SIMULATED: GPUs, modules, a kernel's file.

The nodes are containers: a reboot ends systemd and starts it again, with the files kept and the host's boot_id.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import Run, command, converge, inventory_with, out

OLD, NEW = "580.95.05", "590.48.01"
REBOOT = "Reboot into the driver on disk"


def inventory(folder: Path, version: str, allow: str, timeout: int = 120) -> str:
    """Return an inventory that asks both nodes for a version of the driver, of whatever branch."""
    asked: dict[str, object] = {
        "driver": {"version": version, "allow_branch_change": True},
        "disruption": {"allow": allow, "reboot_timeout": timeout},
    }
    return inventory_with(folder, {"gpu-1": asked, "gpu-2": asked})


def boot(node: Node) -> str:
    return out(node, "systemctl show -p UserspaceTimestampMonotonic --value")


def loaded(node: Node) -> str:
    return out(node, "cat /sys/module/nvidia/version")


def drift(path: str) -> tuple[int, dict[str, set[tuple[str, str]]]]:
    """Return drift's exit code, and for each node what is not as desired: (what, class)."""
    found = command("gpunode", "drift", "--json", path)
    return found.code, {
        name: {(item["what"], item["class"]) for item in items if item["class"] != "ok"}
        for name, items in found.findings.items()
    }


def since(path: str) -> dict[str, str | None]:
    """Return since when each node waits for a boot."""
    found = command("gpunode", "drift", "--json", path).findings
    pending = ((name, item) for name, items in found.items() for item in items if item["class"] == "reboot pending")
    return {name: item["since"] for name, item in pending}


def said(run: Run, *texts: str) -> list[tuple[str, str]]:
    """Return (node, text) of each line of a run that says one of the texts, in order."""
    lines = [line.strip() for line in run.stderr.splitlines()]
    return [(line[1:].split("]")[0], text) for line in lines for text in texts if text in line]


@pytest.fixture
def next_kernel_without_the_driver(nodes: tuple[Node, ...]) -> Iterator[None]:
    """Give the first node a kernel that boots next: a module can be built for it, and was not."""
    out(
        nodes[0],
        "mkdir -p /lib/modules/99.1-lab/build && touch /lib/modules/99.1-lab/build/Makefile /boot/vmlinuz-99.1-lab",
    )
    yield
    out(nodes[0], "rm -r /lib/modules/99.1-lab /boot/vmlinuz-99.1-lab")


@pytest.fixture
def without_ssh_after_its_boot(nodes: tuple[Node, ...]) -> Iterator[None]:
    """Let nobody in on the first node once it has booted, until the test is over."""
    out(nodes[0], "systemctl mask ssh.service")
    yield
    out(nodes[0], "systemctl unmask ssh.service && systemctl start ssh.service")


def test_another_branch_waits_for_a_reboot_that_is_not_allowed_and_the_run_goes_on(
    tmp_path: Path, nodes: tuple[Node, ...]
) -> None:
    assert converge(inventory=inventory(tmp_path, OLD, "restart")).code == 0
    boots = [boot(node) for node in nodes]
    path = inventory(tmp_path, NEW, "restart")
    run = converge(inventory=path)
    assert run.code == 0, run.printed
    assert REBOOT not in run.operations("success")
    # The last operation of a run: nothing stopped before it.
    assert set(run.operations("success")["Record what was applied"]) == {"gpu-1", "gpu-2"}
    pending = f"reboot pending: loaded module is {OLD} (open), {NEW} (open) is to come"
    assert sorted(said(run, pending)) == [("gpu-1", pending), ("gpu-2", pending)]
    assert ([boot(node) for node in nodes], [loaded(node) for node in nodes]) == (boots, [OLD, OLD])
    assert [out(node, "modinfo -F version nvidia") for node in nodes] == [NEW, NEW]
    only = {("loaded module", "reboot pending")}
    assert drift(path) == (2, {"gpu-1": only, "gpu-2": only})
    waits = since(path)
    assert set(waits) == {"gpu-1", "gpu-2"} and all(waits.values())
    again = converge(inventory=path)
    assert again.operations("success") == {}
    # The first run that left it so counts, and the next one says it.
    assert since(path) == waits and f"It has waited since {waits['gpu-1']}" in again.stderr


@pytest.mark.usefixtures("next_kernel_without_the_driver")
def test_a_node_whose_next_kernel_lacks_the_driver_is_not_rebooted(tmp_path: Path, nodes: tuple[Node, ...]) -> None:
    before = boot(nodes[0])
    run = converge("--limit", "gpu-1", inventory=inventory(tmp_path, NEW, "reboot"))
    assert run.code == 1
    assert [line for line in run.stderr.splitlines() if "Starting operation" in line][-1].endswith(f"{REBOOT} ")
    assert "kernel 99.1-lab" in run.stderr
    assert "dkms autoinstall -k 99.1-lab" in run.stderr
    time.sleep(4)
    assert (boot(nodes[0]), loaded(nodes[0])) == (before, OLD)


def test_a_reboot_that_did_not_help_is_not_repeated(tmp_path: Path, nodes: tuple[Node, ...]) -> None:
    # As a reboot in another boot leaves it, after which the old module was loaded again.
    out(nodes[0], f"echo '{NEW}/open another-boot 1' > /var/lib/gpunode/reboot")
    before = boot(nodes[0])
    run = converge("--limit", "gpu-1", inventory=inventory(tmp_path, NEW, "reboot"))
    assert run.code == 1
    assert f"for {NEW}/open before, and {OLD}" in run.stderr
    time.sleep(4)
    assert boot(nodes[0]) == before
    # One that is older than the module on disk is of another installation, and is in nobody's way.
    out(nodes[0], "touch -d '1 day ago' /var/lib/gpunode/reboot")


def test_an_allowed_reboot_is_done_once_one_node_at_a_time_and_all_is_as_desired(
    tmp_path: Path, nodes: tuple[Node, ...]
) -> None:
    boots = [boot(node) for node in nodes]
    path = inventory(tmp_path, NEW, "reboot")
    dry = command("pyinfra", "--dry", "--json", path, "deploys/gpu_node.py")
    (forecast,) = [item for item in dry.payload["plan"] if item["name"].endswith(REBOOT)]
    assert set(forecast["hosts_with_change"]) == {"gpu-1", "gpu-2"}
    time.sleep(4)
    assert [boot(node) for node in nodes] == boots
    run = converge(inventory=path)
    assert run.code == 0, run.printed
    assert set(run.operations("success")[REBOOT]) == {"gpu-1", "gpu-2"}
    told = said(run, "reboots, and has", "answers from a new boot")
    assert [text for _, text in told] == ["reboots, and has", "answers from a new boot"] * 2
    assert [name for name, _ in told] in (["gpu-1"] * 2 + ["gpu-2"] * 2, ["gpu-2"] * 2 + ["gpu-1"] * 2)
    for node, before in zip(nodes, boots, strict=True):
        assert (int(boot(node)) > int(before), loaded(node)) == (True, NEW)
        assert "uvm" in out(node, "ls /sys/module")
        assert lab_nodes.run(node, "ls /var/lib/gpunode/reboot").returncode != 0
    assert drift(path) == (0, {"gpu-1": set(), "gpu-2": set()})
    boots = [boot(node) for node in nodes]
    second = converge(inventory=path)
    assert (second.code, second.operations("success")) == (0, {}), second.printed
    assert [boot(node) for node in nodes] == boots


@pytest.mark.usefixtures("without_ssh_after_its_boot")
def test_a_node_that_does_not_come_back_has_failed_in_time_and_the_other_one_is_converged(
    tmp_path: Path, nodes: tuple[Node, ...]
) -> None:
    began = time.monotonic()
    run = converge(inventory=inventory(tmp_path, OLD, "reboot", timeout=10))
    assert time.monotonic() - began < 120
    assert (run.code, run.payload["results"]["failed_hosts"]) == (1, ["gpu-1"])
    assert "Traceback" not in run.printed
    # Nothing was done to it afterwards.
    *_, reason, end = (line for line in run.stderr.splitlines() if "[gpu-1]" in line)
    assert "within 10 s" in reason
    assert "Error: executed" in end
    assert "gpu-2" in run.operations("no_change")["Verify the node"]
    assert loaded(nodes[1]) == OLD


def test_the_next_run_finds_it_booted_and_does_what_was_left(tmp_path: Path, nodes: tuple[Node, ...]) -> None:
    path = inventory(tmp_path, OLD, "reboot")
    before = boot(nodes[0])
    run = converge(inventory=path)
    assert run.code == 0, run.printed
    # It forgets what the run before asked for, and boots nothing.
    assert not said(run, "reboots, and has")
    assert (boot(nodes[0]), loaded(nodes[0])) == (before, OLD)
    assert drift(path) == (0, {"gpu-1": set(), "gpu-2": set()})


@pytest.fixture
def sick_gpus(nodes: tuple[Node, ...]) -> Iterator[None]:
    """Give the first node two sick GPUs and a kernel log (SIMULATED, as the rest) that tells of one, for one test."""
    program = "#!/bin/sh\necho '[ 9.3] NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.'"
    lab_nodes.set_fault(nodes[0], uncorrected_ecc=1, remap_pending=0)
    out(nodes[0], f"echo {shlex.quote(program)} > /usr/local/bin/dmesg && chmod 755 /usr/local/bin/dmesg")
    yield
    out(nodes[0], "rm -f /usr/local/bin/dmesg")
    lab_nodes.clear_faults(nodes[0])


@pytest.mark.usefixtures("sick_gpus")
def test_a_sick_gpu_fails_the_run_and_is_named_and_a_well_one_is_not(tmp_path: Path) -> None:
    path = inventory(tmp_path, OLD, "restart")
    found = {"uncorrected ECC errors of 0000:40:00.0", "row remapping of 0000:1a:00.0", "Xid 79 of 0000:1a:00"}
    assert drift(path) == (1, {"gpu-1": {(what, "error") for what in found}, "gpu-2": set()})
    run = converge(inventory=path)
    assert (run.code, run.operations("error")["Verify the node"]) == (1, ["gpu-1"])
    assert "nvidia-smi --gpu-reset -i 0000:40:00.0" in run.stderr


def test_gpus_that_are_well_again_are_no_finding(tmp_path: Path) -> None:
    assert drift(inventory(tmp_path, OLD, "restart")) == (0, {"gpu-1": set(), "gpu-2": set()})
