"""A driver that is there, and a boot away: the kernel that boots next alone has it, or it is loaded otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpunode.base.findings import FindingClass
from gpunode.facts.node import PARTS, parse_parts
from gpunode.node import Node
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from gpunode.system.boot import Boot, Kernel
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

RUNS, NEXT = "6.1.0-40-amd64", "6.1.0-41-amd64"
BOOT = Boot(
    RUNS, NEXT, "grub",
    (Kernel(RUNS, headers=False), Kernel(NEXT, headers=True, module_version="580.95.05")), blacklist_written=5.0,
)  # fmt: skip
# What the probe of the driver tells there: the packages' library, and no module.
ABSENT = replace(GOOD.driver, module_version=None, module_license=None, loaded_version=None, loaded_flavour=None)


def test_what_is_read_together_is_told_so() -> None:
    answers = {"driver": [], "boot": [f"running={RUNS}", f"kernel={NEXT} headers=yes initramfs= module=580.95.05"]}
    lines = [line for name, found in answers.items() for line in (f"gpunode:section {name}", *found)]
    read = parse_parts({name: PARTS[name] for name in answers}, lines)["driver"]
    assert (read.waits_for_kernel, read.module_version) == (NEXT, "580.95.05")


@pytest.mark.parametrize(
    ("node", "what", "actual", "desired"),
    [
        (
            replace(GOOD, driver=ABSENT.with_next_kernel(BOOT), boot=BOOT),
            "loaded module", "none", f"580.95.05 with kernel {NEXT}",
        ),
        (
            replace(GOOD, driver=replace(GOOD.driver, parameters=(("EnableGpuFirmware", "18"),))),
            "module parameters", "NVreg_EnableGpuFirmware=18", "NVreg_EnableGpuFirmware=0",
        ),
    ],
)  # fmt: skip
def test_the_verdict_is_a_pending_reboot_and_nothing_else(node: Node, what: str, actual: str, desired: str) -> None:
    driver = {"version": "580.95.05", "module_parameters": {"NVreg_EnableGpuFirmware": "0"}}
    found = judge(settings_from({"driver": driver, "toolkit": {"version": "1.17.8"}}), node)
    (item,) = [item for item in found if item.finding_class is not FindingClass.OK]
    assert (item.what, item.finding_class) == (what, FindingClass.REBOOT_PENDING)
    assert (item.actual, item.desired) == (actual, desired)
