"""Parameters of the loaded kernel module: other ones than are asked for wait for a boot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpunode.base.findings import FindingClass
from gpunode.components.driver import parse_driver
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

ASKED = {"NVreg_EnableGpuFirmware": "0"}
LOADED = parse_driver(
    ["parameter=EnableGpuFirmware 18", 'parameter=RegistryDwords "A=1"', "parameter=DebugLevel 4294967295"]
)


@pytest.mark.parametrize(
    ("asked", "others"),
    [
        ({"NVreg_EnableGpuFirmware": "18"}, ()),
        ({"NVreg_EnableGpuFirmware": "0x12"}, ()),
        ({"NVreg_DebugLevel": "-1"}, ()),
        ({"NVreg_RegistryDwords": "A=1"}, ()),
        # The module does not tell of it.
        ({"NVreg_Unknown": "1"}, ()),
        ({}, ()),
        (ASKED, ("NVreg_EnableGpuFirmware=18",)),
        ({"NVreg_RegistryDwords": "A=2", **ASKED}, ('NVreg_RegistryDwords="A=1"', "NVreg_EnableGpuFirmware=18")),
    ],
)
def test_a_parameter_is_another_one_by_its_value_however_that_is_written(
    asked: dict[str, str], others: tuple[str, ...]
) -> None:
    assert LOADED.other_parameters(asked) == others


@pytest.mark.parametrize("allow", ["restart", "reboot"])
def test_another_parameter_is_a_reboot_pending_and_a_step_of_the_plan(allow: str) -> None:
    settings = settings_from({
        "driver": {"version": "580.95.05", "module_parameters": ASKED}, "toolkit": {"version": "1.17.8"},
        "disruption": {"allow": allow},
    })  # fmt: skip
    node = replace(GOOD, driver=replace(GOOD.driver, parameters=LOADED.parameters))
    (item,) = [item for item in judge(settings, node) if item.finding_class is not FindingClass.OK]
    assert (item.what, item.finding_class) == ("module parameters", FindingClass.REBOOT_PENDING)
    assert (item.actual, item.desired) == ("NVreg_EnableGpuFirmware=18", "NVreg_EnableGpuFirmware=0")
    (step,) = plan(settings, node).steps
    assert (step.disruption.name, step.pending) == ("reboot", allow != "reboot")
    assert "new parameters" in step.action
    right = replace(GOOD, driver=replace(GOOD.driver, parameters=(("EnableGpuFirmware", "0"),)))
    assert plan(settings, right).steps == ()


def test_parameters_that_gpunode_did_not_write_are_not_judged() -> None:
    settings = settings_from({
        "driver": {"source": "present", "module_parameters": ASKED}, "toolkit": {"version": "1.17.8"},
    })  # fmt: skip
    node = replace(GOOD, driver=replace(GOOD.driver, parameters=LOADED.parameters))
    assert plan(settings, node).steps == ()
