"""A first boot of the lab's virtual machine by cloud-init's user data, as a cloud makes one: from a disk called CIDATA.

Real: the machine's boot, Debian's cloud-init, and its datasource NoCloud. Without such a disk cloud-init sees that it
is in no cloud, and leaves the machine alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from gpunode.lab.chroot import run as run_here
from gpunode.lab.vm import machine as vm

# Seconds for a machine that is emulated to stop all that runs on it.
_OFF_SECONDS = 180.0


def first_boot(
    machine: vm.VirtualMachine, user_data: str, instance: str, report: vm.Report = lambda line: None
) -> None:
    """Power the machine off, and have it begin its life as another instance; return as soon as it has begun.

    user_data: what the instance is told, in any of cloud-init's forms
    instance: its instance-id, by which cloud-init knows that it is a new one
    Raises LabError where it does not power off.
    """
    vm.power_off(machine, _OFF_SECONDS)
    with tempfile.TemporaryDirectory() as name:
        meta = f"instance-id: {instance}\nlocal-hostname: {machine.name}\n"
        for file, text in (("user-data", user_data), ("meta-data", meta)):
            (Path(name) / file).write_text(text, encoding="utf-8")
        image = machine.folder / vm.SEED
        image.unlink(missing_ok=True)
        run_here(
            ["genisoimage", "-quiet", "-output", str(image), "-volid", "CIDATA", "-joliet", "-rock", name],
            "genisoimage",
        )
    vm.start(machine)
    report(f"{machine.name}: begins its life as {instance}")
