"""A package of the driver that somebody took away by force: drift tells of it, and the next run brings it back."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import tables
from gpunode.base.template import rendered
from gpunode.components.driver.state import DriverState, parse_driver
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.driver import DriverOffers, DriverPackages, DriverSimulation
from gpunode.node.own_files.holds import PREFERENCES
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.operations import driver_packages
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.installed import DriverPackages as State
from gpunode.packages.driver_packages.installed import pinned_by_apt
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.families import dnf, dnf5
from gpunode.settings import settings_from
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

CUDA, *_ = tables.driver_sources()
VERSION, OLDER = "580.95.05", "580.82.07"
# What the driver of NVIDIA's repository consists of on Debian 12, from its published listings.
NAMES = (
    "firmware-nvidia-gsp", "libcuda1", "libnvidia-cfg1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1",
    "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-kernel-support", "nvidia-open", "nvidia-persistenced",
)  # fmt: skip
OF_ONE_VERSION = dict.fromkeys(NAMES, f"{VERSION}-1")
# Debian's own, which is numbered apart.
WHOLE = {**OF_ONE_VERSION, "nvidia-modprobe": "570.133.07-1"}
ASKED: dict[str, str | None] = {"nvidia-open": "580"}
LOST = "nvidia-persistenced"


def preferences(packages: dict[str, str]) -> str:
    """Return our file of a node with these packages, as a run writes it."""
    by_version: dict[str, list[str]] = {}
    for name, version in packages.items():
        by_version.setdefault(version, []).append(name)
    return rendered("driver-preferences", by_version=by_version)


def without(*names: str) -> dict[str, str]:
    return {name: version for name, version in WHOLE.items() if name not in names}


def test_our_preferences_tell_what_they_keep_at_which_version() -> None:
    assert pinned_by_apt(preferences(WHOLE)) == WHOLE
    assert pinned_by_apt("") == {} and pinned_by_apt("Package: $(x) a\nPin: version 1;2\n") == {}


PACKAGES = st.dictionaries(
    st.from_regex(r"(lib)?nvidia-[a-z]{1,9}(-[0-9]{3})?", fullmatch=True),
    st.from_regex(r"([1-9]:)?[0-9]{3}\.[0-9]{2}\.[0-9]{2}-[0-9](\.el9)?", fullmatch=True),
    min_size=1,
    max_size=9,
)


@given(PACKAGES)
def test_what_each_manager_is_told_to_keep_is_read_back(packages: dict[str, str]) -> None:
    assert pinned_by_apt(preferences(packages)) == packages
    theirs = "# somebody's\nvim-2:9.0-1.el9.*\n"
    assert dnf.pinned(dnf.locked(theirs, packages)) == packages
    assert dnf.pinned(dnf.locked(dnf.locked(theirs, packages), {"x": "1-1"}, group="toolkit")) == packages
    assert dnf5.pinned(dnf5.locked("", packages)) == packages
    assert dnf.pinned(theirs) == dnf5.pinned("no toml [") == {}


def node(packages: dict[str, str], pinned: dict[str, str] = WHOLE, **fields: Any) -> Any:
    driver = replace(
        GOOD.driver, packages=tuple(sorted(packages.items())), held=tuple(packages),
        pinned=tuple(sorted(pinned.items())), **fields,
    )  # fmt: skip
    return replace(GOOD, driver=driver)


SETTINGS = settings_from({"driver": {"branch": "580"}, "toolkit": {"version": "1.17.8"}})


@pytest.mark.parametrize("gone", [(), (LOST,), ("nvidia-open",)])
def test_drift_is_not_silent_about_a_package_that_is_gone_and_the_plan_says_what_a_run_does(
    gone: tuple[str, ...],
) -> None:
    # The daemon's unit went with it, so that no finding on the service says so.
    lost = node(without(*gone), services=() if gone else GOOD.driver.services)
    (item,) = [item for item in judge(SETTINGS, lost) if item.code == "driver.packages" or item.finding_class != "ok"]
    steps = plan(SETTINGS, lost).steps
    if not gone:
        assert (item.code, item.finding_class, item.actual, steps) == ("driver.packages", "ok", "all", ())
        return
    assert (item.code, item.actual, item.desired) == ("driver.packages", f"not {', '.join(gone)}", "all")
    assert item.cause and not item.by_person
    first, hold = steps
    assert (first.code, first.actual, first.pending) == (item.code, item.actual, False)
    assert (first.packages, hold.component) == (gone, "driver")


def test_a_driver_that_changes_brings_what_is_missing_in_one_step() -> None:
    settings = settings_from({"driver": {"version": VERSION}, "toolkit": {"version": "1.17.8"}})
    steps = plan(settings, node(without("nvidia-open"), module_version=OLDER)).steps
    (change,) = [step for step in steps if "install" in step.action or "change" in step.action]
    assert unnamed(change.action, VERSION, "change") == []


def test_the_next_run_brings_it_back_at_the_driver_s_version_and_keeps_its_pin(host: Host) -> None:
    left = {name: version for name, version in OF_ONE_VERSION.items() if name != LOST}
    state = State(tuple(sorted(left.items())), held=tuple(left), preferences=preferences(OF_ONE_VERSION))
    host.readings |= {
        DriverPackages: state,
        DriverOffers: Offers(tuple((name, f"{each}-1") for each in ("580.105.08", VERSION) for name in NAMES)),
        DriverSimulation: Simulation(((LOST, None, f"{VERSION}-1"),), ()),
        DriverFact: DriverState((), VERSION, "Dual MIT/GPL", VERSION, "open", VERSION),
    }
    asked: dict[str, Any] = {
        "desired": ASKED, "branch": "580", "branch_change": False, "rollback": "required", "kernel": None,
        "source": CUDA,
    }  # fmt: skip
    refresh, change = commands(driver_packages.installed, host, **asked)
    assert host.refusals == [] and "refresh" in refresh
    script = base64.b64decode(change.rpartition("<<< ")[2]).decode()
    assert f"arguments='nvidia-open={VERSION}-1 {LOST}={VERSION}-1'" in script
    # It came as a dependency: nobody asked for it by its name.
    assert "names=nvidia-open\n" in script
    host.readings[DriverPackages] = replace(state, packages=tuple(sorted(OF_ONE_VERSION.items())))
    assert commands(driver_packages.installed, host, **asked) == []


@pytest.mark.real
@pytest.mark.skipif(shutil.which("dpkg-query") is None or os.geteuid() != 0, reason="needs dpkg and root")
def test_the_probe_reads_our_preferences_on_a_node(
    run_shell: Callable[[str], tuple[int, list[str]]], tmp_path: Path
) -> None:
    file = tmp_path / "gpunode-driver"
    file.write_text(preferences(WHOLE))
    code, lines = run_shell(DriverFact().command().replace(PREFERENCES, str(file)))
    assert code == 0
    found = DriverFact().process(lines)
    assert dict(found.pinned) == WHOLE


def test_locks_of_both_dnfs_are_read_on_a_node() -> None:
    kept = {LOST: "3:580.95.05-1.el9"}
    for key, listed in (("lock", dnf.locked("", kept)), ("versionlock", dnf5.locked("", kept))):
        assert dict(parse_driver([f"{key}={line}" for line in listed.splitlines()]).pinned) == kept
