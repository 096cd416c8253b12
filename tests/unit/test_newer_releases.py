"""Debian 13 and Ubuntu 26.04: keys, branches and toolkits of their own at NVIDIA; and what Debian's own archive has."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.base.verdicts import Refusal
from gpunode.components.driver.sides import desired
from gpunode.deploys import driver as driver_deploy
from gpunode.facts.apt_archive import AptArchive as AptArchiveFact
from gpunode.facts.driver import Driver
from gpunode.facts.driver_packages import DriverOffers, DriverPackages, DriverSimulation
from gpunode.lab.world.cuda import oldest_toolkit
from gpunode.node.preflight import cautions, refusals
from gpunode.operations import driver_packages
from gpunode.packages.driver_packages import DriverPackages as State
from gpunode.packages.driver_packages import Offers, Simulation, archive_components, package_set, resolve_for_os
from gpunode.settings import settings_from
from tests.support.driver_sources import ARCHIVE, DEBIAN_SOURCE
from tests.support.messages import unnamed
from tests.support.operations import Recorder
from tests.support.preflight import B200, DEBIAN, H100, NO_DRIVER, V100, machine
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure

TRIXIE = replace(DEBIAN, version_id="13", codename="trixie", name="Debian GNU/Linux 13 (trixie)", kernel="6.12.0-1")
RESOLUTE = replace(DEBIAN, id="ubuntu", version_id="26.04", codename="resolute", name="Ubuntu 26.04 LTS")
OLD_KEY = "EB693B3035CD5710E231E123A4B469963BF863CC"
FULL = {row["fingerprint"] for row in tables.content("signing_keys.yaml")["keys"] if row["agree"] == "full"}


def asked_of(system: Any, data: dict[str, Any] | None = None, **more: Any) -> tuple[Refusal, ...]:
    return refusals(settings_from(data or {}), machine(system, **more))


# --- keys ------------------------------------------------------------------------------------------------------------


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
    checked = 0
    for row in tables.distributions():
        signers = [key for key in keys if row.repository is not None and row.repository in key["repositories"]]
        if row.repository is None:
            continue
        (key,) = signers
        if row.unverified_key:
            assert (key["agree"], row.unverified_key.rpartition("/")[2]) == ("id_only", key["file"]), row.name
        else:
            public = tables.repositories(row.family, row.repository)["cuda"]
            assert (public.key_fingerprint, public.key_url.rpartition("/")[2]) == (key["fingerprint"], key["file"])
            assert key["fingerprint"].endswith(key["id"])
        checked += 1
    assert checked == len([row for row in tables.distributions() if row.repository])


def test_the_oldest_toolkit_of_a_repository_is_the_one_that_was_seen_there() -> None:
    rows = [row for row in tables.distributions() if row.repository]
    assert {row.repository for row in rows if row.oldest_cuda} == {"ubuntu2604", "rhel10", "fedora42"}
    assert all(row.oldest_cuda == oldest_toolkit(str(row.repository)) for row in rows)


def test_a_key_that_debian_13_s_apt_does_not_take_is_refused_where_the_settings_name_it() -> None:
    named = {"repositories": {"cuda": {"key_fingerprint": OLD_KEY}}}
    (refusal,) = asked_of(TRIXIE, named)
    assert "SHA-1" in refusal.reason and "leave key_url and key_fingerprint out" in refusal.remedy
    assert asked_of(DEBIAN, named) == ()
    assert asked_of(TRIXIE, {"repositories": {"cuda": {"key_fingerprint": "A" * 40}}}) == ()
    nothing = {"driver": {"source": "distribution", "flavour": "proprietary"}, "cuda": {"enabled": False}}
    assert not any("SHA-1" in each.reason for each in asked_of(TRIXIE, {**named, **nothing}))


# --- branches and toolkits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", [TRIXIE, RESOLUTE, replace(TRIXIE, architecture="aarch64")])
def test_a_bare_node_is_accepted_with_what_its_repository_has(system: Any) -> None:
    assert asked_of(system) == ()


@pytest.mark.parametrize(
    ("system", "data", "branch", "cuda"),
    [
        (TRIXIE, {}, "595", "13.2"),
        (RESOLUTE, {}, "595", "13.3"),
        (DEBIAN, {}, "580", "12.9"),
        (TRIXIE, {"driver": {"source": "distribution"}}, "550", "13.2"),
        (DEBIAN, {"driver": {"source": "distribution"}}, "535", "12.9"),
        (TRIXIE, {"driver": {"version": "610.57.04"}, "cuda": {"version": "13.4"}}, "610", "13.4"),
        (TRIXIE, {"cuda": {"version": "12.9"}}, "595", "12.9"),
    ],
)
def test_what_the_settings_leave_out_is_the_distribution_s(
    system: Any, data: dict[str, Any], branch: str, cuda: str
) -> None:
    found = resolve_for_os(settings_from(data), system)
    assert (found.driver.branch, found.cuda.version) == (branch, cuda)
    assert resolve_for_os(found, system) is found


def test_a_driver_that_is_there_is_of_no_branch_that_anybody_asked_for() -> None:
    for source in ("present", "absent"):
        alone = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd", "docker")}
        assert resolve_for_os(settings_from({"driver": {"source": source}, **alone}), TRIXIE).driver.branch is None


@pytest.mark.parametrize(
    ("system", "driver", "says"),
    [
        (TRIXIE, {"branch": "580"}, "no driver branch 580, only 590, 595, 610, 615"),
        (TRIXIE, {"version": "570.211.01"}, "no driver branch 570, only 590, 595, 610, 615"),
        (RESOLUTE, {"branch": "590"}, "no driver branch 590, only 595, 610, 615"),
    ],
)
def test_a_branch_that_the_repository_lacks_is_refused_with_those_it_has(
    system: Any, driver: dict[str, Any], says: str
) -> None:
    (refusal,) = asked_of(system, {"driver": driver, "cuda": {"enabled": False}})
    assert says in refusal.reason and "driver.branch" in refusal.remedy and "runfile" in refusal.remedy
    assert ("'distribution' (branch 550)" in refusal.remedy) is (system is TRIXIE)


def test_a_branch_that_came_after_the_table_is_the_repository_s_to_judge() -> None:
    assert asked_of(TRIXIE, {"driver": {"branch": "620"}}) == ()
    assert asked_of(DEBIAN, {"driver": {"branch": "550"}}) == ()


def test_a_gpu_whose_last_branch_the_repository_lacks_is_not_sent_there() -> None:
    found = asked_of(TRIXIE, {"cuda": {"enabled": False}}, gpus=(V100,))
    (refusal,) = found
    assert refusal.code == "preflight.driver-dropped-gpu" and unnamed(refusal.reason, "595", "580") == []
    assert "driver.branch = '580'" not in refusal.remedy and "'runfile'" in refusal.remedy
    own = {"driver": {"source": "distribution"}, "cuda": {"enabled": False}}
    assert asked_of(TRIXIE, own, gpus=(V100,)) == ()


def test_a_toolkit_older_than_ubuntu_26_04_s_repository_is_refused() -> None:
    (refusal,) = asked_of(RESOLUTE, {"cuda": {"version": "12.9"}})
    assert "no CUDA 12.9: its oldest is 13.3" in refusal.reason and "'runfile'" in refusal.remedy
    assert asked_of(RESOLUTE, {"cuda": {"version": "13.4"}}) == ()


# --- components of Debian's own archive ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "driver", "wanted"),
    [
        (DEBIAN, {"branch": "550"}, ("Debian", ("contrib",))),
        (DEBIAN, {"version": "550.90.12"}, ("Debian", ("contrib",))),
        (DEBIAN, {"branch": "570"}, None),
        (DEBIAN, {}, None),
        (replace(RESOLUTE, version_id="24.04"), {"branch": "550"}, None),
        (DEBIAN, {"source": "distribution"}, ("Debian", ("contrib", "non-free", "non-free-firmware"))),
        (DEBIAN, {"source": "present"}, None),
    ],
)
def test_which_components_of_debian_s_archive_the_driver_needs(
    system: Any, driver: dict[str, Any], wanted: Any
) -> None:
    assert archive_components(resolve_for_os(settings_from({"driver": driver}), system), system) == wanted


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
    monkeypatch.setattr(driver_deploy, "apt_archive", archive)
    archive.SOURCE = AptArchiveFact.__module__  # type: ignore[attr-defined]
    for name in ("driver_packages", "files"):
        monkeypatch.setattr(driver_deploy, name, others)
    asked = desired(settings, machine().operating_system, machine().boot, machine().pci)
    inspect.unwrap(driver_deploy._packages)(asked, tables.driver_sources()[0])
    assert [(call["origin"], call["desired"]) for call in archive.calls] == (
        [("Debian", ("contrib",))] if enabled else []
    )
    assert trusted == ["cuda"]
    forgotten = [call["name"] for call in others.calls if call["operation"] == "absent"]
    assert forgotten == ([] if enabled else ["Remove the entry of the distribution's archive"])


# --- Debian 13's own driver, whose parts are not all numbered alike ---------------------------------------------------

# As apt has it from Debian's live archive (trixie), 2026-11-23.
TRIXIE_COMES = {
    "nvidia-open-kernel-dkms": "550.163.01-2", "nvidia-open-kernel-support": "550.163.01-2",
    "nvidia-smi": "550.163.01-2", "libcuda1": "550.163.01-2", "libnvidia-ml1": "550.163.01-2",
    "libnvidia-cfg1": "550.163.01-2",
    "nvidia-persistenced": "550.163.01-1", "nvidia-modprobe": "570.133.07-1", "firmware-nvidia-gsp": "550.163.01-2",
    "nvidia-kernel-common": "20240109+1", "dkms": "3.2.2-1~deb13u1",
}  # fmt: skip


def test_debian_13_s_nvidia_modprobe_is_of_no_other_branch(host: Host) -> None:
    settings = resolve_for_os(settings_from({"driver": {"source": "distribution"}}), TRIXIE).driver
    wanted = package_set(settings, DEBIAN_SOURCE, "open", (), machine().boot)
    host.readings[DriverPackages] = State(())
    host.readings[AptArchiveFact] = ARCHIVE
    host.readings[Driver] = NO_DRIVER
    host.readings[DriverOffers] = Offers(tuple(TRIXIE_COMES.items()))
    host.readings[DriverSimulation] = Simulation(tuple((name, None, new) for name, new in TRIXIE_COMES.items()), ())
    asked: dict[str, Any] = {"branch": "550", "branch_change": False, "rollback": "required", "kernel": None}
    _, transaction = commands(driver_packages.installed, host, desired=wanted, **asked, source=DEBIAN_SOURCE)
    assert host.refusals == [] and "name=driver" in transaction
    # A package that is numbered with the driver, at another branch, is refused as ever.
    other = (("libcuda1", None, "570.133.07-1"),)
    host.readings[DriverSimulation] = Simulation(other, ())
    commands(driver_packages.installed, host, desired=wanted, **asked, source=DEBIAN_SOURCE)
    assert unnamed(host.refusals[0], "branch 550") == []


def test_what_nvidia_s_repository_left_of_it_is_not_told_to_go(host: Host) -> None:
    settings = resolve_for_os(settings_from({"driver": {"source": "distribution"}}), TRIXIE).driver
    wanted = package_set(settings, DEBIAN_SOURCE, "open", (), machine().boot)
    there = {"nvidia-open": "595.71.05-1", "libcuda1": "595.71.05-1", "nvidia-modprobe": "595.71.05-1"}
    host.readings[DriverPackages] = State(tuple(there.items()))
    host.readings[AptArchiveFact] = ARCHIVE
    host.readings[Driver] = NO_DRIVER
    host.readings[DriverOffers] = Offers(tuple(TRIXIE_COMES.items()))
    moves = [(name, there.get(name), new) for name, new in TRIXIE_COMES.items() if name != "nvidia-modprobe"]
    host.readings[DriverSimulation] = Simulation(tuple(moves), (("nvidia-open", "595.71.05-1"),))
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


# --- Debian 12's own open module, which bookworm-security has left behind --------------------------------------------

OPEN = {"driver": {"source": "distribution"}, "cuda": {"enabled": False}}
OFFERS = (
    ("nvidia-kernel-dkms", "535.309.01-0+deb12u1"),
    ("nvidia-kernel-dkms", "535.261.03-1"),
    ("nvidia-open-kernel-dkms", "535.261.03-1"),
)
BEHIND = "has nvidia-open-kernel-dkms at 535.261.03 and the rest of its driver at 535.309.01"


def test_an_open_module_that_security_updates_left_behind_is_refused_by_the_archive_s_lists() -> None:
    (refusal,) = asked_of(DEBIAN, OPEN, offers=OFFERS)
    assert BEHIND in refusal.reason
    for way in ("driver.flavour = 'proprietary'", "'cuda-repository'", "driver.version = '535.261.03'"):
        assert way in refusal.remedy
    (refusal,) = asked_of(DEBIAN, OPEN, offers=OFFERS, gpus=(B200,))
    assert "driver.flavour" not in refusal.remedy, "only the open module drives it"


@pytest.mark.parametrize(
    ("driver", "offers"),
    [
        ({"flavour": "proprietary"}, OFFERS),
        ({"version": "535.261.03"}, OFFERS),
        ({}, (*OFFERS, ("nvidia-open-kernel-dkms", "535.309.01-1"))),
        ({}, (("nvidia-open-kernel-dkms", "550.163.01-2"), ("nvidia-kernel-dkms", "550.163.01-2"), *OFFERS)),
    ],
)
def test_an_open_module_of_the_same_version_and_another_choice_are_accepted(
    driver: dict[str, Any], offers: tuple[tuple[str, str], ...]
) -> None:
    branch = {"branch": "550"} if offers[0][1].startswith("550") else {}
    data = {**OPEN, "driver": {**OPEN["driver"], **driver, **branch}}  # type: ignore[dict-item]
    assert asked_of(DEBIAN, data, offers=offers) == ()


def test_where_the_lists_say_nothing_it_is_a_caution_by_the_table() -> None:
    def told(data: dict[str, Any], system: Any = DEBIAN, **more: Any) -> list[str]:
        found = cautions(settings_from(data), machine(system, gpus=(H100,), **more))
        return [each.reason for each in found if "the rest of its driver" in each.reason]

    assert len(told(OPEN)) == 1 and BEHIND in told(OPEN)[0]
    assert told(OPEN, offers=OFFERS) == [], "the refusal tells it"
    assert told(OPEN, TRIXIE) == []
    for change in ({"flavour": "proprietary"}, {"version": "535.261.03"}, {"source": "cuda-repository"}):
        assert told({**OPEN, "driver": {**OPEN["driver"], **change}}) == []  # type: ignore[dict-item]


def test_a_run_refuses_it_after_the_lists_were_read_and_changes_nothing(host: Host) -> None:
    wanted = {"nvidia-open-kernel-dkms": "535", "libcuda1": "535", "nvidia-persistenced": None}
    host.readings[DriverPackages] = State(())
    host.readings[AptArchiveFact] = ARCHIVE
    host.readings[DriverOffers] = Offers(
        (
            ("libcuda1", "535.309.01-0+deb12u1"), ("libcuda1", "535.261.03-1"),
            ("nvidia-open-kernel-dkms", "535.261.03-1"), ("nvidia-persistenced", "535.171.04-1~deb12u1"),
        )
    )  # fmt: skip
    host.readings[DriverSimulation] = Simulation((), ())
    asked: dict[str, Any] = {"branch": "535", "branch_change": False, "rollback": "required", "kernel": None}
    (refresh,) = commands(driver_packages.installed, host, desired=wanted, **asked, source=DEBIAN_SOURCE)
    assert refresh.endswith("gpunode distribution"), "the lists are read, and nothing else is done"
    assert BEHIND in host.refusals[0] and "nothing was changed" in host.refusals[0]
    host.refusals.clear()
    exact = {name: rule and "535.261.03" for name, rule in wanted.items()}
    assert commands(driver_packages.installed, host, desired=exact, **asked, source=DEBIAN_SOURCE)
    assert not any(BEHIND in said for said in host.refusals)
    host.refusals.clear()
    # A driver that is there stays, whatever else is asked for beside it.
    host.readings[DriverPackages] = State((("nvidia-open-kernel-dkms", "535.261.03-1"), ("libcuda1", "535.261.03-1")))
    assert commands(driver_packages.installed, host, desired=wanted, **asked, source=DEBIAN_SOURCE)
    assert not any(BEHIND in said for said in host.refusals)
    host.refusals.clear()
