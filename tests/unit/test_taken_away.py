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
from gpunode.components.driver import DriverState, parse_driver
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.driver_packages import DriverOffers, DriverPackages, DriverSimulation
from gpunode.node.own_files.holds import PREFERENCES
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.operations import driver_packages
from gpunode.packages.driver_packages import DriverPackages as State
from gpunode.packages.driver_packages import Offers, Simulation, pinned_by_apt, taken_away
from gpunode.packages.families import dnf, dnf5
from gpunode.settings import settings_from
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

CUDA, DEBIAN, UBUNTU, RPM, *_ = tables.driver_sources()
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


@pytest.mark.parametrize("names", [(LOST,), ("libnvidia-cfg1", LOST), ("nvidia-driver-cuda",)])
def test_what_is_kept_and_gone_is_missing_at_the_version_of_the_driver(names: tuple[str, ...]) -> None:
    assert taken_away(CUDA, ASKED, without(*names), WHOLE) == dict.fromkeys(sorted(names), "580")


def test_what_is_numbered_apart_comes_back_at_any_version() -> None:
    assert taken_away(CUDA, ASKED, without("nvidia-modprobe"), WHOLE) == {"nvidia-modprobe": None}


@pytest.mark.parametrize(
    ("asked", "installed", "pinned"),
    [
        pytest.param(ASKED, WHOLE, WHOLE, id="nothing is gone"),
        pytest.param(ASKED, without(LOST), {}, id="nothing is kept"),
        pytest.param(
            {"cuda-drivers": "580"},
            {**without("nvidia-open", "nvidia-kernel-open-dkms"), "cuda-drivers": f"{VERSION}-1"},
            WHOLE,
            id="another flavour at the same version, which this run has just brought",
        ),
        pytest.param(
            ASKED,
            {name: version.replace(VERSION, "580.105.08") for name, version in without(LOST).items()},
            WHOLE,
            id="another version, which has no such package",
        ),
        pytest.param({"nvidia-open": "595"}, without(LOST), WHOLE, id="another branch is asked for"),
        pytest.param(ASKED, without(LOST, "nvidia-open"), WHOLE, id="what is asked for is gone, and brings the rest"),
        pytest.param(
            {**ASKED, "nvidia-fabricmanager": "580"},
            {**without(LOST), "nvidia-fabricmanager": f"{VERSION}-1"},
            {**WHOLE, "nvidia-fabricmanager": f"{OLDER}-1"},
            id="one of those that are asked for is pinned at another version",
        ),
        pytest.param(ASKED, WHOLE, {**WHOLE, "linux-image-amd64": "6.1.1-1"}, id="a kernel is none of the driver's"),
        pytest.param(ASKED, WHOLE, {**WHOLE, "cuda-drivers": f"{VERSION}-1"}, id="the other flavour's metapackage"),
    ],
)
def test_what_went_with_a_change_is_not_missing(
    asked: dict[str, str | None], installed: dict[str, str], pinned: dict[str, str]
) -> None:
    assert taken_away(CUDA, asked, installed, pinned) == {}


def test_what_else_is_missing_hides_nothing() -> None:
    asked = {**ASKED, "nvidia-fabricmanager": "580"}
    assert taken_away(CUDA, asked, without(LOST), WHOLE) == {LOST: "580"}


def test_the_module_of_a_kernel_goes_with_that_and_is_not_missing() -> None:
    asked: dict[str, str | None] = {"nvidia-headless-no-dkms-580-server-open": "580", "nvidia-utils-580-server": "580"}
    there = dict.fromkeys((*asked, "nvidia-compute-utils-580-server"), f"{VERSION}-0ubuntu1")
    of_a_kernel = [f"linux-{part}-nvidia-580-server-open-6.8.0-40-generic" for part in ("modules", "objects")]
    assert taken_away(UBUNTU, asked, there, {**there, **dict.fromkeys(of_a_kernel, "6.8.0-40.40+1")}) == {}
    assert taken_away(UBUNTU, asked, dict.fromkeys(asked, f"{VERSION}-0ubuntu1"), there) == {
        "nvidia-compute-utils-580-server": "580"
    }


def test_nothing_that_a_file_says_ends_in_an_error() -> None:
    odd = {"nvidia-open": "no version", LOST: "-"}
    assert taken_away(CUDA, ASKED, odd, odd) == {} == taken_away(CUDA, {}, odd, odd)


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


def test_a_whole_driver_is_as_desired() -> None:
    (item,) = [item for item in judge(SETTINGS, node(WHOLE)) if item.code == "driver.packages"]
    assert item.finding_class == "ok" and item.actual == "all"
    assert plan(SETTINGS, node(WHOLE)).steps == ()


@pytest.mark.parametrize(
    ("gone", "cause"),
    [
        ((LOST,), "somebody took away nvidia-persistenced, which gpunode holds"),
        (("nvidia-open",), "no run has brought them yet, or somebody took them away"),
    ],
)
def test_drift_is_not_silent_about_a_package_that_is_gone_and_the_plan_says_what_a_run_does(
    gone: tuple[str, ...], cause: str
) -> None:
    # The daemon's unit went with it, so that no finding on the service says so.
    lost = node(without(*gone), services=())
    (item,) = [item for item in judge(SETTINGS, lost) if item.finding_class != "ok"]
    assert (item.code, item.actual, item.desired) == ("driver.packages", f"not {', '.join(gone)}", "all")
    assert (item.cause, item.by_person) == (cause, False)
    first, hold = plan(SETTINGS, lost).steps
    assert (first.code, first.actual, first.pending) == (item.code, item.actual, False)
    assert (first.packages, hold.desired) == (gone, "all held")


def test_a_driver_that_changes_brings_what_is_missing_in_one_step() -> None:
    settings = settings_from({"driver": {"version": VERSION}, "toolkit": {"version": "1.17.8"}})
    steps = plan(settings, node(without("nvidia-open"), module_version=OLDER)).steps
    assert [step.action for step in steps if "install" in step.action or "change" in step.action] == [
        f"change to driver {VERSION}, open kernel module"
    ]


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
    listed = dnf.locked("", {LOST: "3:580.95.05-1.el9"})
    assert parse_driver([f"lock={line}" for line in listed.splitlines()]).pinned == ((LOST, "3:580.95.05-1.el9"),)
    listed = dnf5.locked("", {LOST: "3:580.95.05-1.fc41"})
    found = parse_driver([f"versionlock={line}" for line in listed.splitlines()])
    assert found.pinned == ((LOST, "3:580.95.05-1.fc41"),)
