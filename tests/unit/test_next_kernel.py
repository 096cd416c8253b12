"""A machine on which only the kernel that boots next has the module: the driver is there, and a boot away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpunode.base.findings import FindingClass
from gpunode.base.reading import Unknown
from gpunode.facts.boot import Boot as BootFact
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.node import PARTS, parse_parts
from gpunode.facts.unit import Unit as UnitFact
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.operations import driver
from gpunode.settings import settings_from
from gpunode.system.boot import Boot, Kernel
from gpunode.system.unit import Unit
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD, SETTINGS

pytestmark = pytest.mark.pure

RUNS, NEXT = "6.1.0-40-amd64", "6.1.0-41-amd64"
BOOT = Boot(
    RUNS, NEXT, "grub",
    (Kernel(RUNS, headers=False), Kernel(NEXT, headers=True, module_version="580.95.05")), blacklist_written=5.0,
)  # fmt: skip
# What the probe of the driver tells there: the packages' library, and no module.
ABSENT = replace(GOOD.driver, module_version=None, module_license=None, loaded_version=None, loaded_flavour=None)


@pytest.mark.parametrize(
    ("boot", "waits"),
    [
        (BOOT, NEXT),
        # The kernel that runs is the next one, too; the next one has no module either; a container.
        (replace(BOOT, next_release=RUNS, kernels=(Kernel(RUNS, True, "580.95.05"),)), None),
        (replace(BOOT, kernels=(Kernel(NEXT, headers=True),)), None),
        (Boot(RUNS), None),
    ],
)
def test_the_module_of_the_next_kernel_counts_where_the_running_one_has_none(boot: Boot, waits: str | None) -> None:
    found = ABSENT.with_next_kernel(boot)
    assert (found.waits_for_kernel, found.reboot_pending) == (waits, waits is not None)
    assert found.module_version == ("580.95.05" if waits else None)


def test_a_module_that_the_running_kernel_has_counts_whatever_the_next_one_has() -> None:
    assert GOOD.driver.with_next_kernel(replace(BOOT, kernels=(Kernel(NEXT, True, "590.48.01"),))) == GOOD.driver


def test_what_is_read_together_is_told_so() -> None:
    answers = {"driver": [], "boot": [f"running={RUNS}", f"kernel={NEXT} headers=yes initramfs= module=580.95.05"]}
    lines = [line for name, found in answers.items() for line in (f"gpunode:section {name}", *found)]
    read = parse_parts({name: PARTS[name] for name in answers}, lines)["driver"]
    assert (read.waits_for_kernel, read.module_version) == (NEXT, "580.95.05")


@pytest.fixture
def waiting(host: Host) -> Host:
    host.readings |= {DriverFact: ABSENT, BootFact: BOOT}
    return host


def test_the_run_goes_on_and_says_that_a_reboot_is_pending(waiting: Host) -> None:
    assert (commands(driver.module_loaded, waiting), waiting.refusals) == ([], [])
    assert waiting.noops == [f"reboot pending: none is loaded, 580.95.05 with kernel {NEXT} is to come"]


def test_a_service_that_would_not_start_is_only_enabled(waiting: Host) -> None:
    waiting.readings[UnitFact] = Unit("loaded", "inactive", "dead", "disabled")
    unit = "nvidia-persistenced.service"
    assert commands(driver.service, waiting, unit=unit, required=False) == [f"systemctl enable {unit}"]


@pytest.mark.parametrize("boot", [replace(BOOT, kernels=()), Unknown("timed out")])
def test_a_machine_without_any_module_fails_as_before(waiting: Host, boot: Boot | Unknown) -> None:
    waiting.readings[BootFact] = boot
    assert commands(driver.module_loaded, waiting) == []
    (said,) = waiting.refusals
    assert ("dkms status" if isinstance(boot, Boot) else "unknown (timed out)") in said


def test_the_verdict_is_a_pending_reboot_and_nothing_else() -> None:
    node = replace(GOOD, driver=ABSENT.with_next_kernel(BOOT), boot=BOOT)
    (item,) = [item for item in judge(SETTINGS, node) if item.finding_class is not FindingClass.OK]
    assert (item.what, item.finding_class) == ("loaded module", FindingClass.REBOOT_PENDING)
    assert (item.actual, item.desired) == ("none", f"580.95.05 with kernel {NEXT}")
    assert RUNS in (item.cause or "")


def test_the_plan_is_a_boot_that_is_done_where_it_is_allowed() -> None:
    node = replace(GOOD, driver=ABSENT.with_next_kernel(BOOT), boot=BOOT)
    (step,) = plan(SETTINGS, node).steps
    assert (step.code, step.disruption.name, step.pending) == ("driver.loaded-module", "reboot", True)
    assert (step.actual, step.desired) == ("none", f"580.95.05 with kernel {NEXT}")
    allowed = settings_from({
        "driver": {"version": "580.95.05"}, "toolkit": {"version": "1.17.8"}, "disruption": {"allow": "reboot"},
    })  # fmt: skip
    (step,) = plan(allowed, node).steps
    assert not step.pending
