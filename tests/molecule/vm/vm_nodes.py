"""Helpers and data for the tests of vm."""

from __future__ import annotations

import pytest

from gpunode.lab.vm import machine as vm
from gpunode.lab.vm.machine import VirtualMachine
from tests.molecule.conftest import LAB

ALONE: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}


OLD, NEW = "580.82.07", "580.95.05"


@pytest.fixture(scope="module")
def machine() -> VirtualMachine:
    return vm.machine(LAB)


def out(machine: VirtualMachine, text: str) -> str:
    # apt unpacks a kernel and its headers: emulated, on a busy machine, that has taken more than ten minutes.
    done = vm.run(machine, text, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()
