"""What a run does about .run files: the plan's steps, and what operations decide from a node's reading."""

from __future__ import annotations

import base64
import inspect
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from gpunode.components import runfile
from gpunode.components.cuda import state as cuda
from gpunode.components.cuda.decide import Desired
from gpunode.deploys import cuda as cuda_deploy
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.driver import DriverPackages as PackagesFact
from gpunode.facts.system import Boot as BootFact
from gpunode.facts.toolkit import CudaToolkits as CudaFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.operations import cuda as operations_cuda
from gpunode.operations import runfile as operations_runfile
from gpunode.packages.driver_packages.installed import DriverPackages
from gpunode.settings import settings_from
from gpunode.system.boot import Kernel
from gpunode.system.transaction import Journal
from tests.support.runfile import BY_RUNFILE, SHA, TOOLS, toolkits_of
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure


FILE = runfile.Runfile("NVIDIA-Linux-x86_64-580.95.05.run", "https://x/y.run", SHA)
INSTALL: dict[str, Any] = {
    "family": "apt", "file": FILE, "version": "580.95.05", "flavour": "open", "dkms": True, "rollback": "required",
    "kernel": None,
}  # fmt: skip


def told(command: Any) -> str:
    """Return the script that a transaction's command is given on its standard input."""
    (line,) = command.connector_arguments["_stdin"]
    return base64.b64decode(line).decode()


def test_a_forecast_undoes_nothing_and_refuses_nothing_of_what_that_brings_back(host: Host) -> None:
    host.readings |= {
        CudaFact: toolkits_of(("12.9",)), TransactionJournal: Journal("began", "t", None, False)
    }  # fmt: skip
    host.state.is_executing = False
    commands(operations_cuda.none_half_installed, host, desired=Desired("12.9"))
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
    driver = replace(BY_RUNFILE, dkms=dkms)
    if not running_has_it:
        driver = replace(driver, module_version=None, module_license=None)
    host.readings |= {DriverFact: driver, BootFact: boot, PackagesFact: DriverPackages(())}
    asked = {**INSTALL, "dkms": dkms, "kernel": kernel.release}
    (command,) = operations_runfile.installed._inner(**asked)
    text = told(command)
    # The installer alone would first take the running kernel's module away.
    assert ("install=''" in text, "--kernel-module-only" in text) == (dkms, not dkms)
