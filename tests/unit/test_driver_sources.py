"""Where the driver's packages come from: which a node shall have of each source, and which must not stay there."""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.base import tables
from gpunode.facts.driver import DriverOffers, DriverPackages, DriverSimulation
from gpunode.facts.packages import AptArchive as AptArchiveFact
from gpunode.operations import driver_packages
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.installed import DriverPackages as State
from gpunode.packages.driver_packages.names import COMPANIONS, belongs, brings_kernels
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.driver_packages.sources import package_set
from gpunode.settings.driver import DriverSettings
from gpunode.system.boot import Boot
from tests.support.driver_sources import ARCHIVE, CUDA_SOURCE, DEBIAN_SOURCE
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure


@pytest.fixture
def asked(host: Host, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return what each fact about the repositories is asked with."""
    found: list[dict[str, Any]] = []
    answer = host.get_fact

    def get_fact(fact: type, **given: Any) -> Any:
        found.extend([given] if fact in (DriverOffers, DriverSimulation) else [])
        return answer(fact)

    monkeypatch.setattr(host, "get_fact", get_fact)
    return found


CHANGE: dict[str, Any] = {"rollback": "required", "kernel": None}


@pytest.mark.parametrize("source", [DEBIAN_SOURCE, CUDA_SOURCE], ids=["distribution", "cuda"])
def test_the_change_sees_the_distribution_s_archive_alone(
    host: Host, asked: list[dict[str, Any]], source: tables.DriverSource
) -> None:
    host.readings |= {
        DriverPackages: State(()), AptArchiveFact: ARCHIVE, DriverOffers: Offers((("nvidia-smi", "535.261.03-1"),)),
        DriverSimulation: Simulation((("nvidia-smi", None, "535.261.03-1"),), ()),
    }  # fmt: skip
    change = {"desired": {"nvidia-smi": "535"}, "branch": "535", "branch_change": False, **CHANGE}
    commands(driver_packages.installed, host, **change, source=source)
    offers, simulation = (given["sources"] for given in asked)
    assert simulation == offers
    assert ("Components: main contrib non-free non-free-firmware" in offers) is (source is DEBIAN_SOURCE)
    assert bool(offers) is (source is DEBIAN_SOURCE)


def test_of_another_source_s_packages_only_what_would_stay_is_named_and_no_module(
    host: Host, asked: list[dict[str, Any]]
) -> None:
    there = ("nvidia-kernel-dkms", "libcuda1", "nvidia-smi")
    host.readings |= {
        DriverPackages: State(tuple((name, "535.261.03-1") for name in there)),
        DriverOffers: Offers(tuple((name, "580.95.05-1") for name in ("nvidia-open", *there))),
        DriverSimulation: Simulation((("libcuda1", "535.261.03-1", "580.95.05-1"),), ()),
    }  # fmt: skip
    change = {"desired": {"nvidia-open": "580"}, "branch": "580", "branch_change": True, **CHANGE}
    commands(driver_packages.installed, host, **change, source=CUDA_SOURCE)
    # What comes by itself may be an empty package that another one conflicts with: nvidia-smi since 560.
    assert [given["arguments"] for given in asked if "arguments" in given] == [
        ["nvidia-open=580.95.05-1"], ["nvidia-open=580.95.05-1", "nvidia-smi=580.95.05-1"],
    ]  # fmt: skip


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
