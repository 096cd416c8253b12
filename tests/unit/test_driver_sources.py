"""Where the driver's packages come from: which a node shall have of each source, and which must not stay there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.components.driver.flavour import WantedDriver
from gpunode.facts.apt_archive import AptArchive as AptArchiveFact
from gpunode.facts.driver_packages import DriverOffers, DriverPackages, DriverSimulation
from gpunode.node.preflight.driver import flavour_branch_refusals
from gpunode.operations import driver_packages
from gpunode.packages.driver_packages import (
    COMPANIONS,
    Offers,
    Simulation,
    belongs,
    brings_kernels,
    chosen,
    gate,
    holds_kernels,
    leftovers,
    of_another_source,
    package_set,
    resolve_for_os,
    retained_packages,
    unversioned_packages,
)
from gpunode.packages.driver_packages import DriverPackages as State
from gpunode.settings import SettingsError, settings_from
from gpunode.settings.driver import DriverSettings
from gpunode.system.boot import Boot, Kernel
from tests.support.driver_sources import ARCHIVE, CUDA_SOURCE, DEBIAN_SOURCE, UBUNTU_SOURCE
from tests.support.preflight import DEBIAN, UBUNTU
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure

NO_KERNEL = Boot("6.1.0-40-amd64")
GENERIC = Boot("6.8.0-59-generic", "6.8.0-60-generic", "grub", (Kernel("6.8.0-60-generic", False),))


def settings(**asked: Any) -> Any:
    return settings_from({"driver": {"source": "distribution", **asked}})


def test_debian_s_set_has_no_x_and_the_flavour_s_dkms_package() -> None:
    asked = settings(branch="535").driver
    wanted = package_set(asked, DEBIAN_SOURCE, "proprietary", (), NO_KERNEL)
    assert wanted == {
        "nvidia-smi": "535", "libcuda1": "535", "libnvidia-ml1": "535", "libnvidia-cfg1": "535",
        "nvidia-persistenced": None, "nvidia-kernel-dkms": "535", "nvidia-kernel-support": "535",
    }  # fmt: skip
    opened = package_set(asked, DEBIAN_SOURCE, "open", (), NO_KERNEL)
    closed, other = "nvidia-kernel-", "nvidia-open-kernel-"
    assert set(opened) ^ set(wanted) == {f"{closed}dkms", f"{closed}support", f"{other}dkms", f"{other}support"}
    # With both there, the alternative of the one that went would be taken.
    assert leftovers(DEBIAN_SOURCE, opened, wanted) == ("nvidia-kernel-dkms", "nvidia-kernel-support")


def test_debian_s_set_has_headers_where_they_are_to_be_installed_and_ubuntu_s_never() -> None:
    asked = settings(branch="535", kernel_headers="install").driver
    boot = Boot("6.1.0-40-amd64", "6.1.0-41-amd64", "grub", (Kernel("6.1.0-41-amd64", False),))
    assert "linux-headers-6.1.0-41-amd64" in package_set(asked, DEBIAN_SOURCE, "open", (), boot)
    assert not any("headers" in name for name in package_set(asked, UBUNTU_SOURCE, "open", (), GENERIC))


@pytest.mark.parametrize(("flavour", "mark"), [("open", "-open"), ("proprietary", "")])
def test_ubuntu_s_set_has_built_modules_for_the_next_kernel_and_brings_no_other(flavour: str, mark: str) -> None:
    asked = settings(version="580.95.05").driver
    wanted = package_set(asked, UBUNTU_SOURCE, flavour, ("nvswitch",), GENERIC)
    assert wanted == {
        f"nvidia-headless-no-dkms-580-server{mark}": "580.95.05",
        "nvidia-utils-580-server": "580.95.05",
        "nvidia-fabricmanager-580": "580.95.05",
        f"linux-modules-nvidia-580-server{mark}-6.8.0-60-generic": None,
    }
    assert all(belongs(name) for name in wanted)
    image = package_set(asked, UBUNTU_SOURCE, flavour, (), Boot("5.15.0-1-buildhost"))
    assert not any(name.startswith("linux-") for name in image), "an image has no kernel, its host's is none of it"


def test_built_modules_move_with_the_driver_and_stay_with_it() -> None:
    asked = settings(version="580.95.05").driver
    wanted = package_set(asked, UBUNTU_SOURCE, "open", (), GENERIC)
    module = "linux-modules-nvidia-580-server-open-6.8.0-60-generic"
    assert unversioned_packages(UBUNTU_SOURCE, wanted) == (module,)
    names = [name for name, rule in wanted.items() if rule]
    offered = [(name, "580.95.05-0ubuntu1") for name in names] + [(module, "6.8.0-60.63+1"), (module, "6.8.0-60.63")]
    older = {**dict.fromkeys(names, "580.82.07-0ubuntu1"), module: "6.8.0-60.63"}
    along = unversioned_packages(UBUNTU_SOURCE, wanted)
    assert chosen(wanted, older, offered, along)[module] == "6.8.0-60.63+1"
    there = {**dict.fromkeys(names, "580.95.05-0ubuntu1"), module: "6.8.0-60.63"}
    assert chosen(wanted, there, offered, along)[module] == "6.8.0-60.63"


def test_a_kernel_that_would_come_along_is_refused_and_so_is_one_without_the_driver_s_modules() -> None:
    module = "linux-modules-nvidia-580-server-open-6.8.0-60-generic"
    wanted = {module: "6.8.0-60.63"}
    comes = Simulation((("linux-image-6.8.0-151-generic", None, "6.8.0-151.151"), (module, None, "6.8.0-60.63")), ())
    refused = gate(comes, wanted, "580", False, unbound=[module], built=False)
    assert refused and "linux-modules-extra" in refused[0] and "metapackage" in refused[1]
    error = f"{module} : Depends: nvidia-kernel-common-580-server (<= 580.82.07-1) but 580.95.05 is to be installed"
    refused = gate(Simulation((), (), (error,)), wanted, "580", False, unbound=[module], built=False)
    assert refused and "boot a newer kernel first" in refused[1]


def test_what_was_told_to_go_may_go() -> None:
    old = "linux-modules-nvidia-570-server-open-6.14.0-29-generic"
    goes = Simulation((), ((old, "6.14.0-29.29"),))
    assert gate(goes, {}, "580", True, leaving=[old], built=False) is None
    assert gate(goes, {}, "580", True, built=False) is not None


@pytest.mark.parametrize(
    ("system", "asked", "branch"),
    [
        (DEBIAN, {}, "535"),
        (UBUNTU, {}, "580"),
        (DEBIAN, {"branch": "550"}, "550"),
        (UBUNTU, {"version": "570.172.08"}, "570"),
    ],
)
def test_a_branch_that_nobody_names_is_the_distribution_s(system: Any, asked: dict[str, Any], branch: str) -> None:
    assert resolve_for_os(settings(**asked), system).driver.branch == branch
    other = settings_from({"driver": {"branch": "570"}})
    assert resolve_for_os(other, system) is other, "what is asked for stays"


def test_kernels_are_held_where_modules_come_built() -> None:
    assert holds_kernels(settings(), UBUNTU)
    assert not holds_kernels(settings(), DEBIAN)
    assert holds_kernels(settings(hold_kernel=True), DEBIAN)


LEFT: list[tuple[str, tables.DriverSource, set[str], set[str], set[str]]] = [
    ("Debian's other flavour", DEBIAN_SOURCE, {"nvidia-open-kernel-dkms"}, {"nvidia-kernel-dkms"},
     {"nvidia-kernel-dkms"}),
    ("the same name is NVIDIA's own package", CUDA_SOURCE, {"cuda-drivers"}, {"nvidia-kernel-dkms", "libnvidia-ml1"},
     set()),
    ("NVIDIA's pin", DEBIAN_SOURCE, {"nvidia-kernel-dkms"}, {"nvidia-driver-pinning-580.95.05", "nvidia-open"},
     {"nvidia-driver-pinning-580.95.05", "nvidia-open"}),
    ("another branch's modules", UBUNTU_SOURCE, {"linux-modules-nvidia-580-server-open-generic"},
     {"linux-modules-nvidia-570-server-open-generic", "linux-modules-nvidia-580-server-generic",
      "linux-modules-nvidia-580-server-open-6.8.0-59-generic"},
     {"linux-modules-nvidia-570-server-open-generic", "linux-modules-nvidia-580-server-generic"}),
    ("a module that DKMS would build beside the signed one", UBUNTU_SOURCE, {"nvidia-utils-580-server"},
     {"nvidia-dkms-580-server-open"}, {"nvidia-dkms-580-server-open"}),
    ("what nobody names", DEBIAN_SOURCE, {"nvidia-smi"}, {"nvidia-settings", "nvidia-container-toolkit"}, set()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "wanted", "there", "going"), [row[1:] for row in LEFT], ids=[row[0] for row in LEFT]
)
def test_what_must_not_stay_beside_the_wanted_packages_goes(
    source: tables.DriverSource, wanted: set[str], there: set[str], going: set[str]
) -> None:
    assert set(leftovers(source, wanted, there | wanted)) == going


def test_a_driver_of_another_source_is_known_by_its_packages() -> None:
    assert of_another_source(DEBIAN_SOURCE, ["nvidia-driver-pinning-580", "libnvidia-ml1"])
    assert of_another_source(CUDA_SOURCE, ["nvidia-smi"])
    assert of_another_source(CUDA_SOURCE, ["nvidia-headless-no-dkms-570-server-open"])
    desktop = ["linux-modules-nvidia-580-open-6.8.0-60-generic", "nvidia-driver-580-open", "nvidia-utils-580"]
    assert of_another_source(CUDA_SOURCE, desktop) and not of_another_source(UBUNTU_SOURCE, desktop)
    # NVIDIA's repository has packages of the same names, but for the modules.
    assert not of_another_source(CUDA_SOURCE, ["nvidia-driver-580-open", "nvidia-dkms-580-open", "nvidia-utils-580"])
    assert not of_another_source(DEBIAN_SOURCE, ["nvidia-smi", "nvidia-alternative", "nvidia-kernel-dkms"])


def test_a_library_of_another_source_comes_along_or_goes() -> None:
    others = {"libcuda1": "535.261.03-1", "nvidia-alternative": "535.261.03-1", "nvidia-support": "20220217+3"}
    offered = [("libcuda1", "595.58.03-1"), ("libcuda1", "580.95.05-1"), ("libcuda1", "580.82.07-1")]
    assert retained_packages(others, offered, "580.95.05") == {
        "libcuda1": "580.95.05-1",
        "nvidia-alternative": None,
    }


def test_the_gate_lets_a_driver_of_another_source_go_and_judges_no_branch_by_a_number_that_is_none() -> None:
    simulation = Simulation(
        (("nvidia-smi", None, "550.163.01-1"), ("nvidia-persistenced", "580.95.05-1", "535.171.04-1")),
        (("nvidia-driver-cuda", "580.95.05-1"),),
    )
    wanted = {"nvidia-smi": "550.163.01-1", "nvidia-persistenced": "535.171.04-1"}
    assert gate(simulation, wanted, "550", True, moved=True, unbound=["nvidia-persistenced"]) is None
    reasons = [
        gate(simulation, wanted, "550", True, moved=False, unbound=["nvidia-persistenced"]),
        gate(simulation, wanted, "550", True, moved=True),
        gate(replace(simulation, goes=(("containerd", "1"),)), wanted, "550", True, True, ["nvidia-persistenced"]),
    ]
    assert all(reasons)


def test_the_change_sees_the_distribution_s_archive_alone(host: Host) -> None:
    host.readings[DriverPackages] = State(())
    host.readings[AptArchiveFact] = ARCHIVE
    host.readings[DriverOffers] = Offers((("nvidia-smi", "535.261.03-1"),))
    host.readings[DriverSimulation] = Simulation((("nvidia-smi", None, "535.261.03-1"),), ())
    ask: dict[str, Any] = {
        "desired": {"nvidia-smi": "535"}, "branch": "535", "branch_change": False, "rollback": "required",
        "kernel": None,
    }  # fmt: skip
    asked: list[dict[str, Any]] = []
    answer = host.get_fact
    host.get_fact = lambda fact, **given: asked.append({fact.__name__: given}) or answer(fact)  # type: ignore[method-assign,func-returns-value]
    commands(driver_packages.installed, host, **ask, source=DEBIAN_SOURCE)
    given = {name: values for entry in asked for name, values in entry.items()}
    whole = given["DriverOffers"]["sources"]
    assert "Components: main contrib non-free non-free-firmware" in whole
    assert given["DriverSimulation"]["sources"] == whole
    asked.clear()
    commands(driver_packages.installed, host, **ask, source=CUDA_SOURCE)
    assert {name: values for entry in asked for name, values in entry.items()}["DriverOffers"]["sources"] == ""


def test_an_unknown_source_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match=r"driver\.source"):
        settings_from({"driver": {"source": "backports"}})


def test_of_another_source_s_packages_only_what_would_stay_is_named_and_no_module(host: Host) -> None:
    there = ("nvidia-kernel-dkms", "libcuda1", "nvidia-smi")
    host.readings[DriverPackages] = State(tuple((name, "535.261.03-1") for name in there))
    wanted = {"nvidia-open": "580"}
    offered = [(name, "580.95.05-1") for name in (*wanted, *there)]
    host.readings[DriverOffers] = Offers(tuple(offered))
    host.readings[DriverSimulation] = Simulation((("libcuda1", "535.261.03-1", "580.95.05-1"),), ())
    asked: list[list[str]] = []
    answer = host.get_fact

    def get_fact(fact: type, **given: Any) -> Any:
        asked.extend([given["arguments"]] if "arguments" in given else [])
        return answer(fact)

    host.get_fact = get_fact  # type: ignore[method-assign]
    commands(
        driver_packages.installed, host, desired=wanted, branch="580", branch_change=True, rollback="required",
        kernel=None, source=CUDA_SOURCE,
    )  # fmt: skip
    first, second = asked
    assert first == ["nvidia-open=580.95.05-1"]
    # What comes by itself may be an empty package that another one conflicts with: nvidia-smi since 560.
    assert second == ["nvidia-open=580.95.05-1", "nvidia-smi=580.95.05-1"]


def test_modules_that_ubuntu_left_beside_nvidia_s_driver_neither_go_nor_make_it_another_source_s() -> None:
    left = "linux-modules-nvidia-580-open-6.8.0-60-generic"
    source = tables.driver_source("cuda-repository", "ubuntu")
    assert source is not None
    assert not of_another_source(source, ["nvidia-open", left])
    assert leftovers(source, ["nvidia-open"], ["nvidia-open", left], "580") == ()
    # Where it is Ubuntu's desktop driver that is there, they go with the rest of it, for Ubuntu's server driver, too.
    desktop = ["nvidia-driver-580-open", left, "linux-modules-nvidia-570-generic"]
    assert of_another_source(source, desktop)
    assert leftovers(source, ["nvidia-open"], desktop, "580") == ("linux-modules-nvidia-570-generic", left)
    server = ["linux-modules-nvidia-580-server-open-generic"]
    assert leftovers(UBUNTU_SOURCE, server, desktop, "580") == ("linux-modules-nvidia-570-generic", left)


@pytest.mark.parametrize("source", tables.driver_sources(), ids=lambda row: f"{row.source}-{row.systems[0]}")
def test_all_that_is_asked_for_is_read_back(source: tables.DriverSource) -> None:
    """A package that no probe looks for would be missing for ever, and each run would bring it again."""
    asked = DriverSettings.model_validate({"source": source.source, "branch": "580"})
    boot = Boot(running="6.1.0-40-amd64", next_release="6.1.0-40-amd64")
    for flavour in ("open", "proprietary"):
        wanted = package_set(asked, source.for_kernels(("linux",)), flavour, tuple(source.packages), boot)
        assert wanted
        unread = [name for name in wanted if not belongs(name) and not brings_kernels(name) and name not in COMPANIONS]
        assert [name for name in unread if not name.startswith("linux-")] == []


@pytest.mark.parametrize(("branch", "flavour", "refused"), [
    ("550", "open", True), ("550", "proprietary", False), ("570", "open", False),
])  # fmt: skip
def test_the_open_module_of_a_branch_without_its_package_is_refused_with_the_other_flavour(
    branch: str, flavour: str, refused: bool
) -> None:
    asked = settings_from({"driver": {"branch": branch, "flavour": flavour}})
    found = list(flavour_branch_refusals(asked, WantedDriver(None, branch, flavour), DEBIAN))
    assert [item.remedy.startswith("set driver.flavour = 'proprietary'") for item in found] == [True] * refused
