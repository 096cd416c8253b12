"""What operations decide from a node's reading: commands, a refusal, or nothing. No node: readings are made up."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.base.probe import Probe
from gpunode.base.probe_output import sections
from gpunode.components.containerd.editor import Runtimes, render
from gpunode.components.containerd.state import Containerd, Runtime
from gpunode.components.driver import DriverState, parse_driver
from gpunode.components.toolkit import PACKAGES
from gpunode.deploys import containerd as containerd_deploy
from gpunode.deploys import toolkit as toolkit_deploy
from gpunode.facts.boot import Boot as BootFact
from gpunode.facts.containerd import Containerd as ContainerdFact
from gpunode.facts.deb import AptRepository as AptRepositoryFact
from gpunode.facts.deb import DebPackages as DebPackagesFact
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.unit import Unit as UnitFact
from gpunode.operations import apt, containerd, driver, packages, systemd
from gpunode.packages.installed_packages import InstalledPackages
from gpunode.settings import settings_from
from gpunode.system.boot import Boot
from gpunode.system.unit import Unit
from tests.support.messages import unnamed
from tests.support.operations import REPOSITORY, TRUSTED, Recorder
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure


RIGHT = render(None, "1.6.20", Runtimes())
STATE = Containerd(
    version="1.6.20", binary="/usr/bin/containerd", config_path="/etc/containerd/config.toml", config_text=RIGHT,
    active=True, enabled=True, started_at=10.0, configured_at=5.0, default_runtime="nvidia",
    runtimes=(Runtime("nvidia", None, "/usr/bin/nvidia-container-runtime", True), Runtime("runc", None, None, True)),
    cri_plugin="ok", shims=0,
)  # fmt: skip
ASKED = {"default_runtime": "nvidia", "systemd_cgroup": True, "nvidia": True, "restart_allowed": True}


def test_a_containerd_that_is_right_is_left_alone(host: Host) -> None:
    host.readings[ContainerdFact] = STATE
    assert (commands(containerd.configuration, host, **ASKED), host.refusals) == ([], [])
    (noop,) = host.noops
    assert unnamed(noop, "containerd", "nvidia") == []


@pytest.mark.parametrize(
    "merged, reason",
    [
        ({"default_runtime": "runc"}, "default_runtime_name is runc, not nvidia"),
        ({"runtimes": STATE.runtimes[1:]}, "runtimes.nvidia.options.BinaryName is not said"),
        (
            {"runtimes": (STATE.runtimes[0], replace(STATE.runtimes[1], systemd_cgroup=False))},
            "runtimes.runc.options.SystemdCgroup is false, not true",
        ),
    ],
)
def test_a_merged_configuration_that_is_not_what_a_right_file_says_is_refused(
    host: Host, merged: dict[str, Any], reason: str
) -> None:
    host.readings[ContainerdFact] = replace(STATE, **merged)
    assert commands(containerd.configuration, host, **ASKED) == []
    (refusal,) = host.refusals
    assert reason in refusal
    assert "imports" in refusal


@pytest.mark.parametrize(
    "trouble", [{"config_text": "version = 2\n"}, {"configured_at": 20.0}, {"cri_plugin": "error"}]
)
def test_containerd_is_left_alone_where_containers_run_and_a_restart_is_not_allowed(
    host: Host, trouble: dict[str, Any]
) -> None:
    host.readings[ContainerdFact] = replace(STATE, **trouble, shims=2)
    assert commands(containerd.configuration, host, **{**ASKED, "restart_allowed": False}) == []
    (noop,) = host.noops
    assert host.refusals == [] and unnamed(noop, "restart pending", "2 containers", "disruption.allow", "nothing") == []
    # The same node is changed where a restart is allowed, or where no container would feel it.
    assert len(commands(containerd.configuration, host, **ASKED)) == 1
    host.readings[ContainerdFact] = replace(STATE, **trouble)
    assert len(commands(containerd.configuration, host, **{**ASKED, "restart_allowed": False})) == 1


LOADED = DriverState((), "580.95.05", "Dual MIT/GPL", "580.95.05", "open", "580.95.05", uvm_loaded=True)


@pytest.mark.parametrize(
    "missing, loads",
    [
        ({}, False),
        ({"uvm_loaded": False}, True),
        ({"uvm_without_device": True}, True),
        ({"loaded_version": None, "uvm_loaded": False}, True),
    ],
)
def test_the_kernel_modules_are_loaded_where_either_is_missing(
    host: Host, missing: dict[str, Any], loads: bool
) -> None:
    host.readings[DriverFact] = replace(LOADED, **missing)
    found = commands(driver.module_loaded, host)
    assert (len(found), len(host.noops)) == (int(loads), int(not loads))
    assert all("modprobe nvidia_uvm" in command and "wanted=580.95.05" in command for command in found)


def test_no_kernel_module_is_loaded_while_a_reboot_is_pending(host: Host) -> None:
    host.readings[DriverFact] = replace(LOADED, loaded_version="580.82.07", uvm_loaded=False)
    assert commands(driver.module_loaded, host) == []


@pytest.mark.parametrize("permissions", ["666 root:root", "600 root:root", "644 operator:root", "777 root:root", None])
def test_a_keyring_that_root_does_not_guard_is_written_anew(host: Host, permissions: str | None) -> None:
    host.readings[AptRepositoryFact] = replace(TRUSTED, permissions=permissions)
    (command,) = commands(apt.repository, host, **REPOSITORY)
    assert "install -m 644 -o root -g root" in command
    host.readings[AptRepositoryFact] = TRUSTED
    assert commands(apt.repository, host, **REPOSITORY) == []


@pytest.mark.parametrize(
    "one_version, ends",
    [(True, [f"{name}=1.17.8" for name in sorted(PACKAGES)]), (False, [])],
)
def test_packages_at_different_versions_are_brought_together_where_they_belong_together(
    host: Host, one_version: bool, ends: list[str]
) -> None:
    installed = {**dict.fromkeys(PACKAGES, "1.17.8-1"), "libnvidia-container1": "1.17.7-1"}
    host.readings[DebPackagesFact] = InstalledPackages(tuple(sorted(installed.items())))
    found = commands(packages.installed, host, family="apt", desired=dict.fromkeys(PACKAGES), one_version=one_version)
    assert [command.split()[-len(PACKAGES) :] for command in found] == ([ends] if ends else [])


def deployed(
    module: Any, function: Any, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the calls that a deploy's body makes under the settings that are asked for."""
    recorder = Recorder()
    monkeypatch.setattr(module, "settings", lambda: settings_from(asked))
    monkeypatch.setattr(module, "trust", lambda name: None, raising=False)
    monkeypatch.setattr(module, "drain", lambda: None, raising=False)
    monkeypatch.setattr(module, "distribution", lambda: tables.distribution("debian", "12"), raising=False)
    for name in ("packages", "runtime_packages", "files", "kernel", "systemd", "runtime", "container_toolkit"):
        monkeypatch.setattr(module, name, recorder, raising=False)
    monkeypatch.setattr(module, "own_file", recorder.own_file, raising=False)
    inspect.unwrap(function)()
    return recorder.calls


def test_no_more_nodes_than_allowed_restart_containerd_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"disruption": {"allow": "nothing", "max_parallel": 3}}
    calls = deployed(containerd_deploy, containerd_deploy.containerd, monkeypatch, asked)
    (call,) = [call for call in calls if call["operation"] == "configuration"]
    assert (call["_parallel"], call["restart_allowed"]) == (3, False)


def test_the_toolkit_s_packages_are_kept_together(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = deployed(toolkit_deploy, toolkit_deploy.toolkit, monkeypatch, {})
    (call,) = [call for call in calls if call["operation"] == "installed"]
    assert (call["desired"], call["one_version"]) == (dict.fromkeys(PACKAGES), True)


PROVEN_LATER = replace(LOADED, unproven=True)


def test_a_driver_that_a_boot_has_loaded_is_proven_and_only_then_left_alone(host: Host) -> None:
    host.readings[DriverFact] = PROVEN_LATER
    (command,) = commands(driver.module_loaded, host)
    assert "unproven" in command
    host.readings[DriverFact] = LOADED
    assert commands(driver.module_loaded, host) == []


def test_a_machine_whose_gpus_nouveau_has_waits_for_a_reboot(host: Host) -> None:
    host.readings[DriverFact] = replace(LOADED, loaded_version=None, uvm_loaded=False, nouveau_bound=True)
    assert (commands(driver.module_loaded, host), host.refusals) == ([], [])
    assert "nouveau is loaded" in host.noops[0]


def test_a_machine_under_nouveau_without_a_module_on_disk_is_refused(host: Host) -> None:
    nothing = replace(LOADED, module_version=None, loaded_version=None, uvm_loaded=False, nouveau_bound=True)
    host.readings |= {DriverFact: nothing, BootFact: Boot("6.1.0", "6.1.0")}
    assert commands(driver.module_loaded, host) == []
    (said,) = host.refusals
    assert "there is no nvidia module on disk" in said


@pytest.mark.parametrize(("bound", "has"), [([], False), (["bind"], False), (["bind", "0000:1a:00.0"], True)])
def test_nouveau_that_is_loaded_and_bound_to_no_gpu_has_none(tmp_path: Path, bound: list[str], has: bool) -> None:
    for path in ("sys/module/nouveau", "sys/bus/pci/drivers/nouveau"):
        (tmp_path / path).mkdir(parents=True)
    for name in bound:
        (tmp_path / "sys/bus/pci/drivers/nouveau" / name).touch()
    text = re.sub(r"(?<![\w.])/sys/", f"{tmp_path}/sys/", Probe([("driver", DriverFact.probe)]))
    done = subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True)
    found = parse_driver(sections(done.stdout.splitlines()[:-1])["driver"])
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
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"modprobe": "exit 1", "systemd-run": f"touch {tmp_path}/undone", "dmesg": ":"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    script = "\n".join([f"folder={tmp_path}", "transaction=driver", "wanted=580.95.05", driver._LOAD])
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert (tmp_path / "undone").exists() == unproven, done.stderr


@pytest.mark.parametrize("operation", [systemd.running, systemd.at_boot])
def test_a_masked_unit_is_named_as_that_and_not_started(host: Host, operation: Any) -> None:
    host.readings[UnitFact] = Unit("masked", "inactive", "dead", "masked")
    assert commands(operation, host, unit="docker.service") == []
    assert "docker.service is masked" in host.refusals[0] and "systemctl unmask docker.service" in host.refusals[0]


def test_a_masked_containerd_is_refused_before_a_change_that_would_be_blamed_for_it(host: Host) -> None:
    state = replace(STATE, config_text="version = 2\n", active=False, started_at=None, cri_plugin=None, masked=True)
    host.readings[ContainerdFact] = state
    assert commands(containerd.configuration, host, **ASKED) == []
    assert "systemctl unmask containerd.service" in host.refusals[0]
