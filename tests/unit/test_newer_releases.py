"""Debian 13 and Ubuntu 26.04: keys, branches and toolkits of their own at NVIDIA; and what Debian's own archive has."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from typing import Any

import pytest
from pyinfra.context import ctx_host

from gpunode.base import tables
from gpunode.components.driver.sides import desired
from gpunode.deploys import driver as driver_deploy
from gpunode.facts.driver import Driver, DriverOffers, DriverPackages, DriverSimulation
from gpunode.facts.packages import AptArchive as AptArchiveFact
from gpunode.lab.world.cuda import oldest_toolkit
from gpunode.operations import driver_packages
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.installed import DriverPackages as State
from gpunode.packages.driver_packages.simulation import Simulation
from gpunode.packages.driver_packages.sources import package_set, resolve_for_os
from gpunode.settings import settings_from
from tests.support.driver_sources import ARCHIVE, DEBIAN_SOURCE, RESOLUTE, TRIXIE
from tests.support.operations import Recorder
from tests.support.preflight import DEBIAN, NO_DRIVER, machine
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure

OLD_KEY = "EB693B3035CD5710E231E123A4B469963BF863CC"
FULL = {row["fingerprint"] for row in tables.content("signing_keys.yaml")["keys"] if row["agree"] == "full"}


@pytest.mark.parametrize(
    ("system", "fingerprint", "file"),
    [
        (TRIXIE, "02182E60104FCDC26EAE1B8597A5D4CB8793F200", "8793F200.pub"),
        (RESOLUTE, "14BAFBC7562AD710CA04E69905FBB6DA60DF8A40", "60DF8A40.pub"),
        (DEBIAN, OLD_KEY, "3bf863cc.pub"),
        (replace(RESOLUTE, version_id="24.04"), OLD_KEY, "3bf863cc.pub"),
    ],
)
def test_each_distribution_s_repository_is_trusted_by_its_own_key(system: Any, fingerprint: str, file: str) -> None:
    found = tables.distribution(system.id, system.version_id)
    assert found is not None
    for data in ({}, {"repositories": {"cuda": {"url": "https://mirror.example/cuda"}}}):
        cuda = settings_from(data).repositories.on("cuda", found.family, found.unverified_key, found.repository)
        assert (cuda.key_fingerprint, cuda.key_url.rpartition("/")[2]) == (fingerprint, file)
    assert tables.repositories(found.family, found.repository)["docker"] == tables.repositories()["docker"]


def test_no_key_is_trusted_that_two_sources_do_not_give_in_full() -> None:
    ours = {key.fingerprint for key in tables.drivers().signing_keys.values()}
    for row in tables.distributions():
        if row.repository is not None:
            known = tables.repositories(row.family, row.repository)
            ours |= {each.key_fingerprint for name, each in known.items() if name != "cuda" or not row.unverified_key}
    assert ours - FULL == set()
    assert all(re.fullmatch(r"[0-9A-F]{40}", fingerprint) for fingerprint in FULL)


def test_each_repository_s_key_is_the_one_that_signs_it_or_is_to_be_named() -> None:
    keys = tables.content("signing_keys.yaml")["keys"]
    for row in (each for each in tables.distributions() if each.repository):
        (key,) = (key for key in keys if row.repository in key["repositories"])
        if row.unverified_key:
            assert (key["agree"], row.unverified_key.rpartition("/")[2]) == ("id_only", key["file"]), row.name
        else:
            public = tables.repositories(row.family, row.repository)["cuda"]
            assert (public.key_fingerprint, public.key_url.rpartition("/")[2]) == (key["fingerprint"], key["file"])
            assert key["fingerprint"].endswith(key["id"])


def test_the_oldest_toolkit_of_a_repository_is_the_one_that_was_seen_there() -> None:
    rows = [row for row in tables.distributions() if row.repository]
    assert {row.repository for row in rows if row.oldest_cuda} == {"ubuntu2604", "rhel10", "fedora42"}
    assert all(row.oldest_cuda == oldest_toolkit(str(row.repository)) for row in rows)


@pytest.mark.parametrize(("branch", "enabled"), [("550", True), ("580", False)])
def test_nvidia_s_packages_to_550_bring_contrib_of_debian_s_archive(
    monkeypatch: pytest.MonkeyPatch, branch: str, enabled: bool
) -> None:
    archive, others = Recorder(), Recorder()
    trusted: list[str] = []
    settings = settings_from({"driver": {"branch": branch}})
    monkeypatch.setattr(driver_deploy, "settings", lambda: settings)
    monkeypatch.setattr(driver_deploy, "node", lambda: machine())
    monkeypatch.setattr(driver_deploy, "trust", trusted.append)
    monkeypatch.setattr(driver_deploy, "drain", lambda: None)
    monkeypatch.setattr(driver_deploy, "apt", archive)
    archive.SOURCE = AptArchiveFact.__module__  # type: ignore[attr-defined]
    for name in ("driver_packages", "files"):
        monkeypatch.setattr(driver_deploy, name, others)
    asked = desired(settings, machine().operating_system, machine().boot, machine().pci)
    with ctx_host.use(Host({})):
        inspect.unwrap(driver_deploy._packages)(asked, tables.driver_sources()[0])
    assert [(call["origin"], call["desired"]) for call in archive.calls] == (
        [("Debian", ("contrib",))] if enabled else []
    )
    assert trusted == ["cuda"]
    forgotten = [call["operation"] for call in others.calls if call["operation"] == "absent"]
    assert forgotten == ([] if enabled else ["absent"])


# As apt has it from Debian's live archive (trixie), 2026-11-23.
TRIXIE_COMES = {
    "nvidia-open-kernel-dkms": "550.163.01-2", "nvidia-open-kernel-support": "550.163.01-2",
    "nvidia-smi": "550.163.01-2", "libcuda1": "550.163.01-2", "libnvidia-ml1": "550.163.01-2",
    "libnvidia-cfg1": "550.163.01-2",
    "nvidia-persistenced": "550.163.01-1", "nvidia-modprobe": "570.133.07-1", "firmware-nvidia-gsp": "550.163.01-2",
    "nvidia-kernel-common": "20240109+1", "dkms": "3.2.2-1~deb13u1",
}  # fmt: skip


def test_what_nvidia_s_repository_left_of_it_is_not_told_to_go(host: Host) -> None:
    settings = resolve_for_os(settings_from({"driver": {"source": "distribution"}}), TRIXIE).driver
    wanted = package_set(settings, DEBIAN_SOURCE, "open", (), machine().boot)
    there = {"nvidia-open": "595.71.05-1", "libcuda1": "595.71.05-1", "nvidia-modprobe": "595.71.05-1"}
    moves = [(name, there.get(name), new) for name, new in TRIXIE_COMES.items() if name != "nvidia-modprobe"]
    host.readings |= {
        DriverPackages: State(tuple(there.items())), AptArchiveFact: ARCHIVE, Driver: NO_DRIVER,
        DriverOffers: Offers(tuple(TRIXIE_COMES.items())),
        DriverSimulation: Simulation(tuple(moves), (("nvidia-open", "595.71.05-1"),)),
    }  # fmt: skip
    asked: dict[str, Any] = {"branch": "550", "branch_change": True, "rollback": "required", "kernel": None}
    arguments: list[str] = []
    answer = host.get_fact

    def get_fact(fact: type, **given: Any) -> Any:
        arguments.extend(given.get("arguments", ()))
        return answer(fact)

    host.get_fact = get_fact  # type: ignore[method-assign]
    commands(driver_packages.installed, host, desired=wanted, **asked, source=DEBIAN_SOURCE)
    assert "nvidia-open-" in arguments and "libcuda1=550.163.01-2" in arguments
    assert not any(argument.startswith("nvidia-modprobe") for argument in arguments)
