"""A first boot of a machine with a kernel of its own by cloud-init, behind the story of test_vm.py; `gpunode ci` waits.

Real: the boot, a disk called CIDATA as clouds give it, Debian's cloud-init, systemd, pyinfra on the machine. SIMULATED:
the GPU. Its bundle lies in a folder of the machine's own, for its network has no way out; it asks for the driver that
is there already, and for the container toolkit.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from gpunode.agent.files import SERVICE, TIMER
from gpunode.lab import access
from gpunode.lab.state import lab_folder
from gpunode.lab.vm import machine as vm
from gpunode.lab.vm.machine import VirtualMachine
from gpunode.lab.vm.seed import first_boot
from tests.molecule.conftest import LAB, command, inventory_with
from tests.molecule.vm.vm_nodes import ALONE, NEW, machine, out

__all__ = ["machine"]
pytestmark = [pytest.mark.simulated]

BUNDLES = "/srv/bundles"
# Emulated, each start of Python takes seconds.
SECONDS = 1800


@dataclass
class Site:
    """Hold the machine's inventory, and the user data of its first boot."""

    inventory: str
    user_data: str


@pytest.fixture(scope="module")
def site(machine: VirtualMachine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Make the machine's bundle, put it where the machine will look, and make its user data."""
    folder = tmp_path_factory.mktemp("first-boot")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")], check=True)
    asked = {**ALONE, "toolkit": {}, "driver": {"version": NEW}}
    inventory = inventory_with(folder, {vm.NAME: asked})
    made = command("gpunode", "agent", "bundle", "--key", str(folder / "key"), "--out", str(folder / "out"), inventory)
    assert made.code == 0, made.printed
    packed = subprocess.run(["tar", "-C", str(folder / "out"), "-c", "."], capture_output=True, check=True)
    unpacks = [*access.ssh_command(lab_folder(LAB), machine.address, port=machine.port),
               f"mkdir -p {BUNDLES} && tar -C {BUNDLES} -x"]  # fmt: skip
    subprocess.run(unpacks, input=packed.stdout, check=True, timeout=600)
    run = command(
        "gpunode", "agent", "user-data", "--from", f"file://{BUNDLES}", "--public-key", str(folder / "key.pub"),
        "--every", "6h",
    )  # fmt: skip
    assert run.code == 0, run.printed
    yield Site(inventory, run.stdout)


def test_a_boot_without_user_data_is_none_of_cloud_init_s(machine: VirtualMachine) -> None:
    assert "status: disabled" in vm.run(machine, "cloud-init status --long").stdout
    assert out(machine, "ls -A /var/lib/cloud 2>/dev/null | head -1") == ""


def test_a_machine_that_boots_brings_itself_to_its_bundle_while_ci_waits(machine: VirtualMachine, site: Site) -> None:
    assert vm.run(machine, "command -v nvidia-ctk").returncode == 1
    first_boot(machine, site.user_data, "i-1", print)
    run = command("gpunode", "ci", "--wait", str(SECONDS), site.inventory)
    assert run.code == 0, run.printed
    said = [line for line in run.printed.splitlines() if line.startswith(f"{vm.NAME}: ")]
    assert any("no connection" in line for line in said), run.printed
    assert any("cloud-init is running" in line for line in said), run.printed
    assert f"{vm.NAME}: ready: cloud-init: done" in said, run.printed
    # Nothing was left to do for ci's own run, which waits for its turn.
    assert run.printed.count(f"[{vm.NAME}] Success") == 1, run.printed
    told = json.loads(out(machine, "cat /run/cloud-init/result.json"))["v1"]
    assert told["errors"] == [] and told["datasource"].startswith("DataSourceNoCloud [seed=/dev/vd"), told
    report = json.loads(out(machine, "cat /var/lib/gpunode/agent/report.json"))
    assert (report["exit_code"], list(report["hosts"])) == (0, [vm.NAME]), report
    assert out(machine, "command -v nvidia-ctk; cat /sys/module/nvidia/version").splitlines()[1:] == [NEW]
    assert out(machine, f"systemctl is-active {TIMER}; systemctl is-enabled {TIMER}") == "active\nenabled"


def test_its_next_boot_is_left_to_the_timer(machine: VirtualMachine, site: Site) -> None:
    vm.reboot(machine)
    out(machine, "cloud-init status --wait >/dev/null")
    assert out(machine, f"journalctl -b -u {SERVICE} -o cat | wc -l") == "0"
    # This machine has no nvidia-modprobe: udev makes nvidia_uvm's devices, by gpunode's rule.
    found = command("gpunode", "drift", "--json", site.inventory).findings[vm.NAME]
    assert [each for each in found if each["class"] != "ok"] == []
    assert out(machine, "stat -c '%F %a' /dev/nvidia-uvm /dev/nvidia-uvm-tools") == "\n".join(
        2 * ["character special file 666"]
    )
