"""The driver's packages: which a node shall have, at which versions, and what may not happen on the way there."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.explanations import explained
from gpunode.base.findings import FindingClass
from gpunode.base.reading import ParseError
from gpunode.base.template import rendered
from gpunode.components.driver.state import DriverState, Service
from gpunode.facts.driver import DriverPackages, DriverSimulation
from gpunode.node.verdict import judge
from gpunode.operations import driver_packages
from gpunode.operations.families import FAMILIES
from gpunode.packages.driver_packages.choice import parse_offers
from gpunode.packages.driver_packages.installed import DriverPackages as State
from gpunode.packages.driver_packages.installed import parse_driver_packages
from gpunode.packages.driver_packages.names import FOREIGN, OWN, belongs
from gpunode.packages.driver_packages.simulation import Simulation, parse_simulation
from gpunode.settings import settings_from
from gpunode.system.pci import PciGpus
from tests.support.driver_packages import INSTALLED
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD, H100, SETTINGS

pytestmark = pytest.mark.pure

DRIVERS = (
    "nvidia-open", "cuda-drivers", "cuda-drivers-570", "nvidia-kernel-open-dkms", "nvidia-fabricmanager-570",
    "libcuda1", "nvidia-driver-pinning-580.95.05", "nvidia-persistenced", "libnvidia-ml1", "libnvidia-compute-580",
    "nvlsm", "linux-modules-nvidia-580-server-open-generic", "firmware-nvidia-gsp", "nvidia-cuda-mps",
)  # fmt: skip
OTHERS = (
    "nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container1", "libnvidia-container-tools",
    "nvidia-docker2", "nvidia-cuda-toolkit", "cuda-toolkit-12-9", "containerd", "linux-image-amd64", "nvidia-fs-dkms",
)  # fmt: skip


def test_packages_of_the_driver_are_known_by_their_names() -> None:
    assert tuple(name for name in (*DRIVERS, *OTHERS) if belongs(name)) == DRIVERS


@pytest.mark.real
@pytest.mark.skipif(shutil.which("awk") is None, reason="needs awk")
def test_awk_on_the_node_draws_the_same_line() -> None:
    listed = "".join(f"{name} 1\n" for name in (*DRIVERS, *OTHERS))
    done = subprocess.run(
        ["awk", "-v", f"own={OWN}", "-v", f"foreign={FOREIGN}", "$1 ~ own && $1 !~ foreign {print $1}"],
        input=listed, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert tuple(done.stdout.split()) == DRIVERS


_NAME = st.from_regex(r"[a-z0-9][a-z0-9+.-]{1,30}", fullmatch=True)
_VERSION = st.from_regex(r"[0-9][A-Za-z0-9.+~:-]{0,20}", fullmatch=True)


@given(
    st.lists(st.tuples(_NAME, st.none() | _VERSION, _VERSION), max_size=6),
    st.lists(st.tuples(_NAME, _VERSION), max_size=6),
)
def test_any_name_and_version_are_read_back(
    comes: list[tuple[str, str | None, str]], goes: list[tuple[str, str]]
) -> None:
    lines = [
        f"line=Inst {name} {f'[{old}] ' if old else ''}({new} Lab:1/stable, Lab:2 [amd64]) [x:amd64 ]"
        for name, old, new in comes
    ]
    lines += [f"line=Remv {name} [{old}] []" for name, old in goes]
    assert parse_simulation(["status=0", *lines]) == Simulation(tuple(comes), tuple(goes))


@given(st.lists(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60), max_size=5))
def test_whatever_a_node_answers_is_a_reading_or_a_parse_error(lines: list[str]) -> None:
    for parse in (parse_simulation, parse_driver_packages, parse_offers):
        for answer in (lines, [f"line=Inst {line}" for line in lines], ["status=0", "dpkg=installed", "apt=0", *lines]):
            try:
                parse(answer)
            except ParseError:
                continue


def holding(state: State, kernel: bool = False) -> State:
    """Return the state after gpunode has held it."""
    keep = state.to_hold(kernel)
    by_version: dict[str, list[str]] = {}
    for name, version in keep.items():
        by_version.setdefault(version, []).append(name)
    names = [name.replace(".", "[.]").replace("+", "[+]") for name in keep]
    return replace(
        state,
        held=tuple(sorted(keep)),
        preferences=rendered("driver-preferences", by_version=by_version),
        unattended=rendered("driver-unattended-upgrades.conf", names=names),
    )


def test_the_whole_set_is_held_and_the_second_time_there_is_nothing_to_do(host: Host) -> None:
    host.readings[DriverPackages] = INSTALLED
    hold, *writes, note = commands(driver_packages.held, host, family="apt", hold=True, kernel=False)
    assert "'hold=libnvidia-ml1 nvidia-driver-pinning-580 nvidia-open'" in hold and "unhold=" in hold
    assert len(writes) == 2
    # A driver that is undone after the boot takes these files along, which are nobody else's.
    assert f"gpunode {' '.join(FAMILIES['apt'].holding)}" in note and "note_files" in note
    host.readings[DriverPackages] = holding(INSTALLED)
    assert commands(driver_packages.held, host, family="apt", hold=True, kernel=False) == []
    # The kernel alone is added, and goes again, when the settings say so.
    (hold, *writes, note) = commands(driver_packages.held, host, family="apt", hold=True, kernel=True)
    assert "hold=linux-image-amd64" in hold and len(writes) == 2
    host.readings[DriverPackages] = holding(INSTALLED, kernel=True)
    (hold, *writes, note) = commands(driver_packages.held, host, family="apt", hold=True, kernel=False)
    assert "unhold=linux-image-amd64" in hold and len(writes) == 2


@pytest.mark.parametrize(
    ("state", "unheld"),
    [
        (holding(INSTALLED), "'unhold=libnvidia-ml1 nvidia-driver-pinning-580 nvidia-open'"),
        (INSTALLED, None),
        # A hold of another's.
        (replace(INSTALLED, held=("nvidia-open",)), None),
    ],
)
def test_only_gpunode_s_own_hold_is_released_with_its_files(host: Host, state: State, unheld: str | None) -> None:
    host.readings[DriverPackages] = state
    found = commands(driver_packages.held, host, family="apt", hold=False, kernel=False)
    if unheld is None:
        assert found == []
    else:
        unhold, *removals, _ = found
        assert unheld in unhold and ["rm -f" in removal for removal in removals] == [True, True]


@pytest.mark.parametrize("executing", [True, False])
def test_a_hold_before_any_package_is_forecast(host: Host, executing: bool) -> None:
    host.readings[DriverPackages] = State(())
    host.state.is_executing = executing
    found = commands(driver_packages.held, host, family="apt", hold=True, kernel=False)
    assert found == ([] if executing else ["true"])


def test_module_parameters_become_lines_that_modprobe_reads() -> None:
    parameters = settings_from(
        {"driver": {"module_parameters": {"NVreg_EnableGpuFirmware": "0", "NVreg_RegistryDwords": "A=0x1;B=0x2"}}}
    ).driver.module_parameters
    text = rendered("nvidia-parameters.conf", parameters=parameters, modules=["nvidia", "nvidia-current"])
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        "options nvidia NVreg_EnableGpuFirmware=0", "options nvidia NVreg_RegistryDwords=A=0x1;B=0x2",
        "options nvidia-current NVreg_EnableGpuFirmware=0", "options nvidia-current NVreg_RegistryDwords=A=0x1;B=0x2",
    ]  # fmt: skip


DRIVER = DriverState(
    (("libnvidia-ml1", "580.95.05-1"), ("nvidia-fabricmanager", "580.95.05-1"), ("nvidia-open", "580.95.05-1")),
    "580.95.05", "Dual MIT/GPL", "580.95.05", "open", "580.95.05", uvm_loaded=True,
    held=("libnvidia-ml1", "nvidia-fabricmanager", "nvidia-open"), kernels=("linux-image-amd64",),
    services=(Service("nvidia-fabricmanager", True, True), Service("nvidia-persistenced", True, True)),
)  # fmt: skip
NODE = replace(GOOD, driver=DRIVER, pci=PciGpus((H100,), 4))


def bad(driver: DriverState, settings: Any) -> list[tuple[str, FindingClass]]:
    findings = judge(settings, replace(NODE, driver=driver))
    return [(item.what, item.finding_class) for item in findings if item.finding_class is not FindingClass.OK]


FABRIC, PERSISTENCED = DRIVER.services


@pytest.mark.parametrize(
    ("change", "asked", "what"),
    [
        ({}, {}, None),
        ({"held": ("nvidia-open",)}, {}, "held"),
        ({"packages": (*DRIVER.packages[:1], ("nvidia-fabricmanager", "580.82.07-1"), *DRIVER.packages[2:])}, {},
         "fabric manager"),
        ({"packages": (DRIVER.packages[0], DRIVER.packages[2])}, {}, "fabric manager"),
        ({"services": (replace(FABRIC, active=False), PERSISTENCED)}, {}, "service nvidia-fabricmanager"),
        ({"services": (PERSISTENCED,)}, {}, "service nvidia-fabricmanager"),
        ({"services": (FABRIC, replace(PERSISTENCED, enabled=False))}, {}, "service nvidia-persistenced"),
        ({"services": (FABRIC,)}, {}, None),
        ({"held": (), "services": (FABRIC,)}, {"hold": False}, None),
        ({}, {"hold": True, "hold_kernel": True}, "held"),
        ({"services": (FABRIC, replace(PERSISTENCED, active=False, enabled=False))}, {"persistenced": False}, None),
    ],
)  # fmt: skip
def test_what_is_loose_or_stopped_or_of_another_version_is_drift_where_the_settings_ask_for_it(
    change: dict[str, Any], asked: dict[str, Any], what: str | None
) -> None:
    settings = settings_from({"driver": {"version": "580.95.05", **asked}, "toolkit": {"version": "1.17.8"}})
    assert bad(replace(DRIVER, **change), settings) == ([(what, FindingClass.DRIFT)] if what else [])


def test_a_fabric_manager_that_waits_for_the_boot_is_no_drift_beside_the_pending_reboot() -> None:
    pending = replace(DRIVER, loaded_version="580.82.07", services=(replace(FABRIC, active=False), PERSISTENCED))
    assert bad(pending, SETTINGS) == [("loaded module", FindingClass.REBOOT_PENDING)]


@pytest.mark.real
@pytest.mark.skipif(shutil.which("apt-config") is None, reason="apt's own reader is needed")
def test_apt_reads_the_list_for_unattended_upgrades(tmp_path: Any) -> None:
    path = tmp_path / "52gpunode-driver"
    path.write_text(str(holding(INSTALLED).unattended))
    done = subprocess.run(["apt-config", "-c", path, "dump"], capture_output=True, text=True, check=True)
    listed = [line for line in done.stdout.splitlines() if line.startswith("Unattended-Upgrade::Package-Blacklist::")]
    assert [line.split('"')[1] for line in listed][-3:] == [
        "^libnvidia-ml1$", "^nvidia-driver-pinning-580$", "^nvidia-open$",
    ]  # fmt: skip


def test_a_simulation_that_fails_is_asked_down_to_the_package_that_is_missing(tmp_path: Path) -> None:
    """apt-get is SIMULATED: it tells of one package what that needs, as the real one does."""
    (tmp_path / "apt-get").write_text(
        '#!/bin/sh\nfor last in "$@"; do :; done\ncase "$last" in\n'
        "aa=*) echo ' aa : Depends: bb (= 2) but it is not going to be installed';;\n"
        "bb=*) echo ' bb : Depends: c.d (= 1:2-3) but it is not installable';;\n"
        "*) echo \"E: Version '1:2-3' for 'c.d' was not found\";;\nesac\nexit 100\n"
    )
    (tmp_path / "apt-get").chmod(0o755)
    probe = DriverSimulation().command(arguments=["aa=1"], pin="")
    said = subprocess.run(
        ["sh", "-c", str(probe)], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    found = DriverSimulation().process(said.stdout.splitlines())
    needs, lacks = (item.cause for item in explained(found.errors))
    assert unnamed(needs, "aa", "bb (= 2)") == [] and unnamed(lacks, "c.d", "1:2-3") == []
