"""What operations decide from a node's reading: commands, a refusal, or nothing. No node: readings are made up."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyinfra.context import ctx_host

from gpunode.base import tables
from gpunode.base.disruption import Disruption
from gpunode.base.probe import Probe
from gpunode.base.probe_output import sections
from gpunode.components.driver.state import parse_driver
from gpunode.components.runtimes.containerd.decide import desired_of
from gpunode.components.runtimes.toolkit.state import PACKAGES
from gpunode.deploys import containerd as containerd_deploy
from gpunode.deploys import toolkit as toolkit_deploy
from gpunode.facts.driver import Driver as DriverFact
from gpunode.operations import driver
from gpunode.settings import settings_from
from tests.support.operations import Recorder
from tests.support.shell import programs, sh
from tests.support.simulated_host import Host
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure


def deployed(
    module: Any, function: Any, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the calls that a deploy's body makes under the settings that are asked for."""
    recorder = Recorder()
    monkeypatch.setattr(module, "settings", lambda: settings_from(asked))
    monkeypatch.setattr(module, "trust", lambda name: None, raising=False)
    monkeypatch.setattr(module, "drain", lambda: None, raising=False)
    monkeypatch.setattr(module, "node", lambda: GOOD, raising=False)
    monkeypatch.setattr(module, "distribution", lambda: tables.distribution("debian", "12"), raising=False)
    for name in ("packages", "repositories", "files", "kernel", "systemd", "runtime", "container_toolkit"):
        monkeypatch.setattr(module, name, recorder, raising=False)
    monkeypatch.setattr(module, "own_file", recorder.own_file, raising=False)
    with ctx_host.use(Host({})):
        inspect.unwrap(function)()
    return recorder.calls


def test_no_more_nodes_than_allowed_restart_containerd_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"disruption": {"allow": "nothing", "max_parallel": 3}}
    calls = deployed(containerd_deploy, containerd_deploy.containerd, monkeypatch, asked)
    (call,) = [call for call in calls if call["operation"] == "configuration"]
    assert (call["_parallel"], call["desired"]) == (3, desired_of(settings_from(asked)))
    assert call["desired"].allowed is Disruption.nothing


def test_the_toolkit_s_packages_are_kept_together(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = deployed(toolkit_deploy, toolkit_deploy.toolkit, monkeypatch, {})
    (call,) = [call for call in calls if call["operation"] == "installed"]
    assert (call["desired"], call["one_version"]) == (dict.fromkeys(PACKAGES), True)


@pytest.mark.parametrize(("bound", "has"), [([], False), (["bind"], False), (["bind", "0000:1a:00.0"], True)])
def test_nouveau_that_is_loaded_and_bound_to_no_gpu_has_none(tmp_path: Path, bound: list[str], has: bool) -> None:
    for path in ("sys/module/nouveau", "sys/bus/pci/drivers/nouveau"):
        (tmp_path / path).mkdir(parents=True)
    for name in bound:
        (tmp_path / "sys/bus/pci/drivers/nouveau" / name).touch()
    text = re.sub(r"(?<![\w.])/sys/", f"{tmp_path}/sys/", Probe([("driver", DriverFact.probe)]))
    found = parse_driver(sections(sh(text).stdout.splitlines()[:-1])["driver"])
    assert found.nouveau_bound == has
    assert replace(found, loaded_version=None, module_version="580.95.05").reboot_pending == has


@pytest.mark.parametrize(
    "before", ["packages nvidia-open 570.172.08-1 install installed", "runfile x 570.172.08 /x.run"]
)
@pytest.mark.parametrize("unproven", [True, False])
def test_a_driver_that_has_worked_is_not_undone_because_it_does_not_load_today(
    tmp_path: Path, unproven: bool, before: str
) -> None:
    saved, journal = tmp_path / "driver", tmp_path / "driver.json"
    saved.mkdir()
    (saved / "packages").touch()
    name, _, line = before.partition(" ")
    (saved / name).write_text(f"{line}\n")
    journal.write_text('{"schema": 1, "state": "done", "target": "x", "reason": ""}')
    if unproven:
        (saved / "unproven").touch()
    path = programs(tmp_path, modprobe="exit 1", systemd_run=f"touch {tmp_path}/undone", dmesg=":")
    text = "\n".join([f"folder={tmp_path}", "transaction=driver", "wanted=580.95.05", driver._LOAD])
    done = sh(text, shell=("sh", "-eu"), env={"PATH": path})
    assert done.returncode == 1
    assert (tmp_path / "undone").exists() == unproven, done.stderr
