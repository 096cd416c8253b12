"""nvidia_peermem: read on the node, loaded where it can be, and else told with what is in its way."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.comparison import BY_HAND
from gpunode.base.decision import bad
from gpunode.base.shell_file import script_file
from gpunode.components.driver.services import FORMER, MODULE, NO_STACK, decide_peermem
from gpunode.components.driver.state import DriverState, parse_driver
from gpunode.facts.driver import Driver as DriverFact
from gpunode.lab.hardware.simulated import kmod, module
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.node.own_files.driver import PEERMEM, files
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from tests.support.installed_driver import install
from tests.support.messages import unnamed
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

LOADED = replace(GOOD.driver, rdma=True)
ASKED = settings_from({"driver": {"version": "580.95.05", "peermem": True}})
# Where the file of the settings that are asked for is written.
DONE = "load nvidia_peermem, now and at boot"


@given(peermem=st.sampled_from([None, MODULE, FORMER]), rdma=st.booleans(), asked=st.booleans(), old=st.booleans())
def test_every_difference_is_a_step_s_or_a_person_s_and_the_step_leaves_none(
    peermem: str | None, rdma: bool, asked: bool, old: bool
) -> None:
    actual = replace(LOADED, peermem=peermem, rdma=rdma, loaded_version="570.172.08" if old else "580.95.05")
    decision = decide_peermem(asked, actual)
    different = bad(*decision.findings)
    assert bool(different) == (asked and not old and peermem != MODULE)
    assert [item for step in decision.steps for item in step.settles] == (
        list(different) if rdma and peermem is None else []
    )
    if decision.steps:
        assert not bad(*decide_peermem(asked, replace(actual, peermem=MODULE)).findings)
    elif different:
        assert different[0].remedy == BY_HAND


@pytest.mark.parametrize(
    ("state", "cause"),
    [({"rdma": False}, NO_STACK), ({"peermem": FORMER}, "nv_peer_mem is loaded"), ({}, "GPUDirect RDMA")],
)
def test_drift_names_what_is_in_the_way_and_the_plan_loads_it_where_nothing_is(
    state: dict[str, Any], cause: str
) -> None:
    node = replace(GOOD, driver=replace(LOADED, **state))
    (found,) = [item for item in bad(*judge(ASKED, node)) if item.what == MODULE]
    assert cause in str(found.cause)
    assert (DONE in [step.action for step in plan(ASKED, node).steps]) == (not state)
    assert not [
        item for item in judge(settings_from({"driver": {"version": "580.95.05"}}), node) if item.what == MODULE
    ]


def test_at_boot_a_file_loads_it_that_goes_with_the_setting() -> None:
    machine = GOOD
    text = files(ASKED, machine)[PEERMEM]
    assert text is not None and text.splitlines()[-1] == MODULE
    assert files(settings_from({"driver": {"version": "580.95.05"}}), machine)[PEERMEM] is None
    without: dict[str, Any] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
    absent = settings_from({"driver": {"source": "absent"}, "disruption": {"allow": "reboot"}, **without})
    assert files(absent, machine)[PEERMEM] is None


@pytest.mark.real
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("ERROR: could not insert 'nvidia_peermem': Invalid argument", "DOCA-OFED"),
        ("ERROR: could not insert 'nvidia_peermem': Unknown symbol in module, or unknown parameter", "another ib_core"),
        ("FATAL: Module nvidia_peermem not found in directory /lib/modules/6.1.0", "no such module"),
        ("ERROR: could not insert 'nvidia_peermem': Key was rejected by service", "see dmesg"),
        (None, None),
    ],
)
def test_what_modprobe_says_is_explained(tmp_path: Path, words: str | None, said: str | None) -> None:
    program = tmp_path / "modprobe"
    ends = "exit 0" if words is None else f'echo "modprobe: {words}" >&2; exit 1'
    program.write_text(f'#!/bin/sh\n[ "$*" = nvidia_peermem ] || exit 9\n{ends}\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", script_file("driver_peermem")],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if said is None:
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    else:
        assert done.returncode == 1 and unnamed(done.stderr, words, said, "dma-buf") == []


@pytest.mark.real
def test_the_probe_reads_the_module_and_the_rdma_stack(tmp_path: Path) -> None:
    def state() -> DriverState:
        probe = DriverFact.probe.replace("/sys/", f"{tmp_path}/sys/")
        done = subprocess.run(["sh", "-c", probe], capture_output=True, text=True, check=False)
        return parse_driver(done.stdout.splitlines())

    assert (state().peermem, state().rdma) == (None, False)
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    (tmp_path / "sys/module/nv_peer_mem").mkdir(parents=True)
    assert (state().peermem, state().rdma) == (FORMER, True)
    (tmp_path / "sys/module/nv_peer_mem").rmdir()
    (tmp_path / "sys/class/infiniband").rmdir()
    for name in ("nvidia_peermem", "ib_core"):
        (tmp_path / "sys/module" / name).mkdir()
    assert (state().peermem, state().rdma) == (MODULE, True)


@pytest.mark.simulated
def test_the_simulated_module_refuses_to_load_where_nothing_was_there_to_build_it_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = Machine(tmp_path)
    machine.write_json("/etc/gpunode-lab/hardware.json", {"gpu": "h100-80gb", "count": 2})
    install(machine, "580.95.05")
    known = machine.read(f"/lib/modules/{machine.kernel}/updates/dkms/nvidia.ko")
    machine.write(f"/lib/modules/{machine.kernel}/updates/dkms/nvidia-peermem.ko", known)
    assert kmod.main(["modprobe", "nvidia_peermem"], machine) == 1
    assert capsys.readouterr().err == "modprobe: ERROR: could not insert 'nvidia_peermem': Invalid argument\n"
    machine.write(module.PEER_MEMORY, "")
    assert kmod.main(["modprobe", "nvidia_peermem"], machine) == 0
    assert machine.path("/sys/module/nvidia_peermem").exists()
