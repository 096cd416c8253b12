"""The life of a machine with a kernel of its own: what is said of its next boot is proven by booting it.

Real: kernels, GRUB, initial file systems, DKMS, modprobe, reboots. SIMULATED: the GPU, for which QEMU's test device
stands in, nvidia-smi, and what the modules nvidia and nouveau do once they are loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpunode.lab.vm import machine as vm
from gpunode.lab.vm.machine import VirtualMachine
from tests.molecule.conftest import Run, command, inventory_with
from tests.molecule.vm.vm_nodes import ALONE, NEW, OLD, machine, out

# Fixtures.
__all__ = ["machine"]

pytestmark = [pytest.mark.simulated, pytest.mark.life]

REBUILD = "Make initial file systems that load nouveau anew"
REBOOT = "Reboot into the driver on disk"
PENDING = ("loaded module", "reboot pending")


class Driver:
    """Ask for a driver on the machine, and for nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def inventory(self, version: str, allow: str = "restart", **asked: object) -> str:
        settings = {"driver": {"version": version, **asked}, "disruption": {"allow": allow, "reboot_timeout": 600}}
        return inventory_with(self.folder, {vm.NAME: {**ALONE, **settings}})

    def run(self, version: str, allow: str = "restart", **asked: object) -> Run:
        path = self.inventory(version, allow, **asked)
        return command("pyinfra", "-y", "--json", path, "deploys/gpu_node.py")

    def drift(self, version: str, **asked: object) -> tuple[int, set[tuple[str, str]]]:
        """Return drift's exit code, and (what, class) of what is not as desired."""
        found = command("gpunode", "drift", "--json", self.inventory(version, "restart", **asked))
        items = found.findings[vm.NAME]
        return found.code, {(item["what"], item["class"]) for item in items if item["class"] != "ok"}

    def plan(self, version: str) -> tuple[int, dict[str, Any]]:
        found = command("gpunode", "plan", "--json", self.inventory(version))
        return found.code, json.loads(found.stdout)["hosts"][vm.NAME]

    def boot(self, version: str) -> dict[str, Any]:
        """Return what gpunode knows of the machine's boots."""
        found = command("gpunode", "facts", self.inventory(version))
        assert found.code == 0, found.printed
        boot: dict[str, Any] = json.loads(found.stdout)["hosts"][vm.NAME]["facts"]["boot"]
        return boot


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


def modules(machine: VirtualMachine) -> set[str]:
    """Return which of the modules are loaded, by the kernel's own list."""
    loaded = {line.split()[0] for line in out(machine, "cat /proc/modules").splitlines()}
    return loaded & {"nvidia", "nvidia_uvm", "nouveau"}


def loaded(machine: VirtualMachine) -> str:
    return out(machine, "cat /sys/module/nvidia/version")


def image(machine: VirtualMachine) -> set[str]:
    """Return the names of nouveau's module and blacklists in the running kernel's initial file system."""
    inside = out(machine, 'lsinitramfs "/boot/initrd.img-$(uname -r)"').splitlines()
    return {line.rpartition("/")[2] for line in inside if line.endswith(("/nouveau.ko", "-nouveau.conf"))}


@pytest.fixture
def boot_without_room(machine: VirtualMachine) -> Iterator[None]:
    """Give the machine a /boot of its own that is full as soon as an initial file system is being made."""
    hook = "/etc/initramfs-tools/hooks/zz-fill"
    out(
        machine,
        "cp -a /boot /root/boot && mount -t tmpfs -o size=120m tmpfs /boot && cp -a /root/boot/. /boot/ && "
        f"printf '#!/bin/sh\\n[ \"$1\" = prereqs ] || cat /dev/zero > /boot/filler\\nexit 0\\n' > {hook} && "
        f"chmod 755 {hook}",
    )
    yield
    out(machine, f"rm {hook}; umount /boot && rm -r /root/boot")


def test_nouveau_comes_with_the_initial_file_system_and_the_plan_says_what_is_to_be_done(
    machine: VirtualMachine, driver: Driver
) -> None:
    assert modules(machine) == {"nouveau"}
    assert image(machine) == {"nouveau.ko"}
    code, found = driver.plan(OLD)
    assert (code, found["verdict"], found["disruption"]) == (0, "can be done", "nothing")
    told = {step["action"]: step["disruption"] for step in found["steps"] if "next boot" in step["action"]}
    assert told == {
        "keep nouveau out, in effect at the next boot": "nothing",
        "make the initial file systems anew without nouveau, in effect at the next boot": "nothing",
    }


@pytest.mark.usefixtures("boot_without_room")
def test_a_full_boot_keeps_the_old_initial_file_system_and_the_run_says_so(
    machine: VirtualMachine, driver: Driver
) -> None:
    before = out(machine, "sha256sum /boot/initrd*")
    run = driver.run(OLD)
    # Where no host is left, pyinfra ends without its JSON.
    last = [line for line in run.stderr.splitlines() if "Starting operation" in line][-1]
    assert run.code == 1 and last.strip().endswith(REBUILD), run.printed
    assert "No space left" in run.stderr and "the old one stays" in run.stderr
    assert "Traceback" not in run.printed
    assert out(machine, "sha256sum /boot/initrd*") == before


def test_dkms_has_built_the_driver_and_the_next_run_heals_and_waits_for_a_boot(
    machine: VirtualMachine, driver: Driver
) -> None:
    run = driver.run(OLD)
    assert run.code == 0, run.printed
    assert REBUILD in run.operations("success")
    assert "module is nouveau" in run.stderr
    assert f"nvidia/{OLD}" in out(machine, "dkms status")
    assert out(machine, "modinfo -F version nvidia") == OLD
    assert "SIMULATED" in out(machine, "modinfo -F description nvidia")
    assert image(machine) == {"nouveau.ko", "gpunode-nouveau.conf"}
    assert out(machine, "ls /boot | grep -c initrd") == "1"
    assert modules(machine) == {"nouveau"}
    assert driver.drift(OLD) == (2, {PENDING})
    second = driver.run(OLD)
    assert (second.code, second.operations("success")) == (0, {}), second.printed


def test_an_allowed_reboot_ends_in_a_new_boot_with_the_driver_and_without_nouveau(
    machine: VirtualMachine, driver: Driver
) -> None:
    before = vm.boot_id(machine)
    run = driver.run(OLD, "reboot")
    assert run.code == 0, run.printed
    assert REBOOT in run.operations("success")
    assert vm.boot_id(machine) not in ("", before)
    assert (modules(machine), loaded(machine)) == ({"nvidia", "nvidia_uvm"}, OLD)
    # By the number that the module has from the kernel: there is no nvidia-modprobe on this machine.
    number = out(machine, "sed -n 's/^ *\\([0-9]*\\) nvidia-uvm$/\\1/p' /proc/devices")
    assert number and int(out(machine, "stat -c %t /dev/nvidia-uvm"), 16) == int(number)
    assert f"SIMULATED: loading the module of gpunode's lab {OLD}" in out(machine, "dmesg")
    assert driver.drift(OLD) == (0, set())
    before = vm.boot_id(machine)
    second = driver.run(OLD, "reboot")
    assert (second.code, second.operations("success"), vm.boot_id(machine)) == (0, {}, before), second.printed


def test_a_kernel_that_comes_with_its_headers_will_have_the_driver(machine: VirtualMachine, driver: Driver) -> None:
    runs, comes, _ = machine.kernels
    out(machine, f"apt-get update && apt-get install -y linux-image-{comes} linux-headers-{comes}")
    boot = driver.boot(OLD)
    kernels = {kernel["release"]: kernel["module_version"] for kernel in boot["kernels"]}
    assert (boot["running"], boot["next_release"], boot["decided_by"]) == (runs, comes, "grub")
    assert kernels == {runs: OLD, comes: OLD}
    assert driver.drift(OLD) == (0, set())


def test_a_newer_module_on_disk_waits_for_the_boot_and_is_loaded_by_it_with_the_new_kernel(
    machine: VirtualMachine, driver: Driver
) -> None:
    _, comes, _ = machine.kernels
    parameters = {"NVreg_EnableGpuFirmware": "0"}
    run = driver.run(OLD, module_parameters=parameters)
    assert run.code == 0, run.printed
    assert "reboot pending: module parameters is NVreg_EnableGpuFirmware=18" in run.stderr
    run = driver.run(NEW)
    assert run.code == 0, run.printed
    assert f"reboot pending: loaded module is {OLD} (open), {NEW} (open) is to come" in run.stderr
    assert (loaded(machine), out(machine, "modinfo -F version nvidia")) == (OLD, NEW)
    assert driver.drift(NEW) == (2, {PENDING})
    before = vm.boot_id(machine)
    run = driver.run(NEW, "reboot", module_parameters=parameters)
    assert run.code == 0, run.printed
    assert vm.boot_id(machine) not in ("", before)
    assert (out(machine, "uname -r"), loaded(machine), modules(machine)) == (comes, NEW, {"nvidia", "nvidia_uvm"})
    assert out(machine, "cat /proc/driver/nvidia/params") == "EnableGpuFirmware: 0"
    assert driver.drift(NEW, module_parameters=parameters) == (0, set())
    assert {name for _, name in driver.drift(NEW)[1]} == {"drift"}


def test_a_kernel_without_headers_is_told_of_before_a_boot_and_the_boot_proves_it(
    machine: VirtualMachine, driver: Driver
) -> None:
    *_, comes = machine.kernels
    out(machine, f"apt-get install -y linux-image-{comes}")
    code, differs = driver.drift(NEW)
    assert code == 2 and ("preflight", "unsupported") in differs
    code, found = driver.plan(NEW)
    (refusal,) = found["refusals"]
    assert (code, found["verdict"]) == (2, "refused")
    assert f"kernel {comes} boots next" in refusal["reason"] and f"linux-headers-{comes}" in refusal["remedy"]
    before = vm.boot_id(machine)
    run = driver.run(NEW, "reboot")
    assert run.code == 1 and f"install linux-headers-{comes}" in run.stderr
    assert vm.boot_id(machine) == before
    vm.reboot(machine)
    assert (out(machine, "uname -r"), modules(machine)) == (comes, set())


def test_a_driver_that_only_the_next_kernel_has_is_a_reboot_pending_and_the_run_goes_on(
    machine: VirtualMachine, driver: Driver
) -> None:
    _, second, newest = machine.kernels
    # The submenu has the newest kernel first.
    out(machine, 'sed -i \'s/set default="0"/set default="1>1"/\' /boot/grub/grub.cfg')
    boot = driver.boot(NEW)
    assert (boot["running"], boot["next_release"]) == (newest, second)
    run = driver.run(NEW)
    assert run.code == 0, run.printed
    assert f"reboot pending: loaded module is none, {NEW} with kernel {second} is to come" in run.stderr
    assert driver.drift(NEW) == (2, {PENDING})
    out(machine, 'sed -i \'s/set default="1>1"/set default="0"/\' /boot/grub/grub.cfg')


def test_headers_heal_it_without_another_boot(machine: VirtualMachine, driver: Driver) -> None:
    before = vm.boot_id(machine)
    run = driver.run(NEW, kernel_headers="install")
    assert run.code == 0, run.printed
    assert vm.boot_id(machine) == before
    assert (loaded(machine), modules(machine)) == (NEW, {"nvidia", "nvidia_uvm"})
    assert driver.drift(NEW) == (0, set())
