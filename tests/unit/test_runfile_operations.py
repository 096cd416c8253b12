"""What a run does about .run files: the plan's steps, and what operations decide from a node's reading."""

from __future__ import annotations

import base64
import inspect
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from gpunode.components import runfile
from gpunode.components.cuda import CudaToolkits
from gpunode.components.cuda.decide import Desired
from gpunode.components.driver import DriverState
from gpunode.deploys import cuda as cuda_deploy
from gpunode.facts.boot import Boot as BootFact
from gpunode.facts.cuda import CudaToolkits as CudaFact
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.driver_packages import DriverPackages as PackagesFact
from gpunode.facts.driver_packages import DriverSimulation as SimulationFact
from gpunode.facts.runfile import FetchedRunfile as FetchedFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.node.own_files import cuda
from gpunode.node.plan import plan
from gpunode.operations import cuda as operations_cuda
from gpunode.operations import runfile as operations_runfile
from gpunode.operations.transaction import target_digest
from gpunode.packages.driver_packages import DriverPackages, Simulation
from gpunode.settings import settings_from
from gpunode.system.boot import Kernel
from gpunode.system.transaction import Journal
from tests.support.messages import unnamed
from tests.support.runfile import ASKED, SHA, TOOLS, toolkits_of
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure


def _steps(more: dict[str, Any], **node: Any) -> list[tuple[str | None, str, str, bool]]:
    """Return code, both sides, and whether the desired version is named, of each of the plan's steps for the driver."""
    settings = settings_from({"driver": {**ASKED, **more}})
    found = plan(settings, replace(GOOD, boot=TOOLS, **node))
    assert found.refusals == ()
    version = settings.driver.version
    return [
        (step.code, str(step.actual), str(step.desired), unnamed(step.action, version) == [])
        for step in found.steps
        if step.component == "driver"
    ]


def test_the_plan_names_the_runfile_and_the_way_that_is_left() -> None:
    by_runfile = replace(GOOD.driver, packages=(), held=(), runfile=True, dkms=True)
    assert _steps({}, driver=by_runfile) == []
    (change, *_) = _steps({"version": "580.82.07"}, driver=by_runfile)
    assert change == ("driver.module-on-disk", "580.95.05", "580.82.07", True)
    of_packages = replace(GOOD.driver, packages=(("nvidia-open", "580.95.05-1"),))
    assert _steps({"migrate": True}, driver=of_packages)[:2] == [
        ("driver.installed-by", "packages", "runfile", False), ("driver.installed-by", "packages", "runfile", True),
    ]  # fmt: skip
    packages = {"source": "cuda-repository", "version": "580.95.05", "migrate": True}
    assert _steps(packages, driver=by_runfile)[:2] == [
        ("driver.installed-by", "runfile", "packages", False), ("driver.installed-by", "runfile", "packages", True),
    ]  # fmt: skip


def test_what_builds_the_module_is_a_step_where_it_is_to_be_installed() -> None:
    bare = replace(GOOD.driver, packages=(), module_version=None, loaded_version=None, library_version=None)
    settings = settings_from({"driver": {**ASKED, "kernel_headers": "install"}})
    found = plan(settings, replace(GOOD, boot=replace(TOOLS, build_tools=("gcc",)), driver=bare))
    assert found.steps[0].action == "install make, dkms"


def test_a_registration_with_dkms_that_is_not_as_asked_is_drift() -> None:
    by_runfile = replace(GOOD.driver, packages=(), held=(), runfile=True, dkms=False)
    assert _steps({}, driver=by_runfile) == [("driver.dkms", "not registered", "registered", True)]
    assert _steps({"dkms": False}, driver=by_runfile) == []


def test_the_link_of_cuda_is_a_step_of_its_own_where_the_toolkit_is_there() -> None:
    toolkits = CudaToolkits(("12.8", "12.9"), "/usr/local/cuda-12.8", "12.8.93", True)
    found = plan(settings_from({}), replace(GOOD, cuda=toolkits))
    assert [(step.action, step.pending) for step in found.steps if step.component == "cuda"] == [
        ("point /usr/local/cuda at 12.9", False)
    ]


# --- the operations --------------------------------------------------------------------------------------------------

FILE = runfile.Runfile("NVIDIA-Linux-x86_64-580.95.05.run", "https://x/y.run", SHA)
INSTALL: dict[str, Any] = {
    "family": "apt", "file": FILE, "version": "580.95.05", "flavour": "open", "dkms": True, "rollback": "required",
    "kernel": None,
}  # fmt: skip
THERE = DriverState(
    (), "580.95.05", "Dual MIT/GPL", "580.95.05", "open", "580.95.05", uvm_loaded=True, runfile=True, dkms=True
)


def test_a_file_that_is_there_is_not_fetched_again(host: Host) -> None:
    host.readings[FetchedFact] = runfile.FetchedRunfile(True, SHA)
    asked: dict[str, Any] = {"file": FILE, "proxies": {"https_proxy": "http://p:1"}, "setting": "driver.runfile_sha256"}
    assert commands(operations_runfile.fetched, host, **asked) == []
    host.readings[FetchedFact] = runfile.FetchedRunfile(True, "f" * 64)
    (command,) = commands(operations_runfile.fetched, host, **asked)
    assert "https_proxy=http://p:1" in command and SHA in command and "--continue-at -" in command


@pytest.mark.parametrize(
    "strays, changes",
    [
        ({}, False),
        ({"module_version": "580.82.07"}, True),
        ({"library_version": "580.82.07"}, True),
        ({"module_license": "NVIDIA"}, True),
        ({"dkms": False}, True),
        ({"runfile": False}, True),
    ],
)
def test_a_driver_that_is_not_as_asked_is_installed_in_one_transaction(
    host: Host, strays: dict[str, Any], changes: bool
) -> None:
    host.readings |= {DriverFact: replace(THERE, **strays), BootFact: TOOLS, PackagesFact: DriverPackages(())}
    assert len(commands(operations_runfile.installed, host, **INSTALL)) == int(changes)
    assert host.refusals == []


def told(command: Any) -> str:
    """Return the script that a transaction's command is given on its standard input."""
    (line,) = command.connector_arguments["_stdin"]
    return base64.b64decode(line).decode()


def test_packages_of_cuda_come_after_an_interrupted_runfile_was_undone_and_not_over_what_that_brings_back(
    host: Host,
) -> None:
    host.readings |= {
        CudaFact: CudaToolkits((), None, None, False), TransactionJournal: Journal("began", "t", None, False)
    }  # fmt: skip
    (command,) = commands(operations_cuda.none_half_installed, host, desired=Desired("12.9"))
    assert "undo" in command and "name=cuda" in command
    host.readings[CudaFact] = toolkits_of(("12.9",))
    commands(operations_cuda.none_half_installed, host, desired=Desired("12.9"))
    assert "packages would be mixed" in host.refusals[0]
    host.state.is_executing, host.refusals = False, []
    commands(operations_cuda.none_half_installed, host, desired=Desired("12.9"))
    assert host.refusals == []


def test_packages_in_another_folder_come_over_nothing_that_a_runfile_brought(host: Host) -> None:
    host.readings |= {
        CudaFact: toolkits_of(("12.9",)), TransactionJournal: Journal("began", "t", None, False)
    }  # fmt: skip
    asked = Desired("12.9", "distribution")
    (command,) = commands(operations_cuda.none_half_installed, host, desired=asked)
    assert "undo" in command
    assert host.refusals == []


@pytest.mark.parametrize("interrupted", ["12.9", None])
@pytest.mark.parametrize("source", ["cuda-repository", "distribution"])
def test_the_deploy_asks_for_packages_of_cuda_only_after_that(
    monkeypatch: pytest.MonkeyPatch, source: str, interrupted: str | None
) -> None:
    calls: list[str] = []
    for name in ("toolkits", "packages"):
        monkeypatch.setattr(cuda_deploy, name, Mock())
        for called in ("none_half_installed", "installed", "linked"):
            recorder = Mock(side_effect=lambda *, told=f"{name}.{called}", **_: calls.append(told))
            setattr(getattr(cuda_deploy, name), called, recorder)
    monkeypatch.setattr(cuda_deploy, "own_file", lambda path, **_: calls.append(path))
    monkeypatch.setattr(cuda_deploy, "settings", lambda: settings_from({"cuda": {"source": source}}))
    found = replace(GOOD, cuda=replace(GOOD.cuda, interrupted=interrupted))
    monkeypatch.setattr(cuda_deploy, "node", lambda: found)
    monkeypatch.setattr(cuda_deploy, "distribution", Mock())
    monkeypatch.setattr(cuda_deploy, "trust", lambda name: None)
    inspect.unwrap(cuda_deploy.cuda)()
    profile = cuda.ARCH_PROFILE if source == "distribution" else cuda.PROFILE
    undone = ["toolkits.none_half_installed"] if interrupted else []
    assert calls == [*undone, "packages.installed", "toolkits.linked", profile]
    if not interrupted:
        return
    ((_, told),) = vars(cuda_deploy)["toolkits"].none_half_installed.call_args_list
    assert told["desired"].source == source


@pytest.mark.parametrize("dkms", [True, False])
@pytest.mark.parametrize("running_has_it", [True, False])
def test_a_next_kernel_without_the_module_gets_it_and_then_waits_for_the_boot(
    host: Host, dkms: bool, running_has_it: bool
) -> None:
    kernel = Kernel("6.1.0-41-amd64", headers=True)
    boot = replace(TOOLS, next_release=kernel.release, kernels=(kernel,))
    driver = replace(THERE, dkms=dkms)
    if not running_has_it:
        driver = replace(driver, module_version=None, module_license=None)
    host.readings |= {DriverFact: driver, BootFact: boot, PackagesFact: DriverPackages(())}
    asked = {**INSTALL, "dkms": dkms, "kernel": kernel.release}
    (command,) = operations_runfile.installed._inner(**asked)
    text = told(command)
    # The installer alone would first take the running kernel's module away.
    assert ("install=''" in text, "--kernel-module-only" in text) == (dkms, not dkms)
    host.readings[BootFact] = replace(boot, kernels=(replace(kernel, module_version="580.95.05"),))
    assert commands(operations_runfile.installed, host, **asked) == []


def test_packages_that_would_take_others_with_them_are_left_alone(host: Host) -> None:
    host.readings |= {
        DriverFact: replace(THERE, runfile=False, packages=(("nvidia-open", "580.95.05-1"),)), BootFact: TOOLS,
        PackagesFact: DriverPackages((("nvidia-open", "580.95.05-1"),)),
        SimulationFact: Simulation((), (("nvidia-open", "1"), ("my-gpu-service", "1"))),
    }  # fmt: skip
    assert commands(operations_runfile.installed, host, **INSTALL) == []
    assert "my-gpu-service would go" in host.refusals[0] and "nothing was changed" in host.refusals[0]
    host.readings[SimulationFact] = Simulation((), (("nvidia-open", "1"),))
    assert len(commands(operations_runfile.installed, host, **INSTALL)) == 1


def test_a_runfile_that_was_proven_not_to_work_is_not_tried_again(host: Host) -> None:
    built_with = repr((TOOLS.running, None, False, None, TOOLS.build_tools, False))
    target = target_digest(FILE.name, SHA, "open", "True", built_with)
    host.readings |= {
        DriverFact: replace(THERE, runfile=False), BootFact: TOOLS, PackagesFact: DriverPackages(()),
        TransactionJournal: Journal("failed", target, "no load", False),
    }  # fmt: skip
    assert commands(operations_runfile.installed, host, **INSTALL) == []
    assert unnamed(host.refusals[0], "no load") == []
    kernel = Kernel("6.1.0-41-amd64", headers=False)
    other = replace(TOOLS, next_release=kernel.release, kernels=(kernel,))
    for boot in (replace(TOOLS, compiler="13"), replace(TOOLS, build_tools=("gcc", "make")), other):
        host.readings[BootFact] = boot
        assert len(commands(operations_runfile.installed, host, **INSTALL)) == 1


def test_cuda_is_fetched_and_installed_only_where_its_release_is_not_there(host: Host) -> None:
    file = runfile.Runfile("cuda_12.9.1_575.57.08_linux.run", "https://x/y.run", SHA)
    desired = Desired("12.9", "runfile", "12.9.1")
    asked: dict[str, Any] = {"file": file, "desired": desired, "proxies": {}}
    host.readings[CudaFact] = toolkits_of(("12.9",))
    assert commands(operations_cuda.installed, host, **asked) == []
    other = replace(desired, release="12.9.0")
    assert len(commands(operations_cuda.installed, host, **{**asked, "desired": other})) == 2
    host.readings[CudaFact] = replace(toolkits_of(("12.9",)), nvcc_version=None)
    assert len(commands(operations_cuda.installed, host, **asked)) == 2
    host.readings[CudaFact] = CudaToolkits((), None, None, False)
    assert len(commands(operations_cuda.installed, host, **asked)) == 2
    assert len(commands(operations_cuda.linked, host, desired=desired)) == 1
