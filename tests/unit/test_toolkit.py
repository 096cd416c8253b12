"""The container toolkit beyond its packages: readings, preflight, verdict, and what the operations do."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from gpunode.base.probe_output import checked
from gpunode.base.reading import Unknown
from gpunode.components.runtimes.runtime import CDI_MARK
from gpunode.components.runtimes.toolkit.cdi import CdiSpecification
from gpunode.components.runtimes.toolkit.configuration import desired_keys
from gpunode.components.runtimes.toolkit.state import PACKAGES, ContainerToolkit, parse_toolkit
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.packages import DebPackages as DebPackagesFact
from gpunode.facts.toolkit import ContainerToolkit as ToolkitFact
from gpunode.lab.world.toolkit import modes
from gpunode.node.preflight import refusals
from gpunode.operations import packages, toolkit
from gpunode.packages.families.dnf import LOCKLIST
from gpunode.packages.installed_packages import InstalledPackages
from gpunode.settings import settings_from
from gpunode.settings.runtimes import ToolkitSettings
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.toolkit import LOADED, REFRESHED
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure


HostWith = Callable[..., Host]


@pytest.fixture
def host_with(host: Host) -> HostWith:
    """Return a function that gives a host with a reading of the toolkit, and other values of the driver's."""

    def make(reading: ContainerToolkit | Unknown, **driver: Any) -> Host:
        host.readings = {ToolkitFact: reading, DriverFact: replace(GOOD.driver, **driver), MigFact: GOOD.mig}
        host.noops.clear()
        host.refusals.clear()
        return host

    return make


def _probe(root: Path) -> ContainerToolkit:
    """Run the probe's part on CDI and links on a folder that stands for the node's root."""
    part = ToolkitFact().command().replace("/etc/cdi", f"{root}/etc/cdi").replace("/var/run/cdi", f"{root}/run")
    done = subprocess.run(["sh", "-c", part], capture_output=True, text=True, check=True)
    return parse_toolkit(checked(done.stdout.splitlines()))


def _text(kind: str = "nvidia.com/gpu", driver: str = LOADED, hook: str = "update-ldcache") -> str:
    library, args = f"/usr/lib/libcuda.so.{driver}", ["nvidia-cdi-hook", hook]
    edits: dict[str, Any] = {"mounts": [{"hostPath": library, "containerPath": library}]}
    edits["hooks"] = [{"hookName": "createContainer", "path": "/gone/nvidia-cdi-hook", "args": args}]
    devices = [{"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/null", "major": 7}]}}]
    return json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices, "containerEdits": edits})


@pytest.mark.real
def test_specifications_are_read_with_what_the_node_lacks_of_them_and_drafts_are_none(tmp_path: Path) -> None:
    (tmp_path / "etc/cdi").mkdir(parents=True)
    (tmp_path / "run").mkdir()
    later = "disable-device-node-modification"
    files = {
        "etc/cdi/nvidia.yaml": f"{CDI_MARK}\n---\n{_text(hook=later)}",
        "etc/cdi/nvidia.yaml.gpunode-new.AbC123": _text(),
        "etc/cdi/nvidia.yaml.gpunode-new.AbC123.yaml": _text(),
        "etc/cdi/plugin.yaml": _text("k8s.device-plugin.nvidia.com/gpu"),
        "etc/cdi/other.yaml": "kind: [",
        "run/empty.yaml": "",
        "run/n.json": _text(driver="570.172.08"),
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    state = _probe(tmp_path)
    own, other = state.cdi
    assert own == CdiSpecification(
        f"{tmp_path}/etc/cdi/nvidia.yaml", LOADED, True, ("nvidia-cdi-hook", later), f"/usr/lib/libcuda.so.{LOADED}",
        "0.5.0", devices=(("0", ("/dev/null",)),),
        lost=("/gone/nvidia-cdi-hook, which is not there", f"/usr/lib/libcuda.so.{LOADED}, which is not there"),
    )  # fmt: skip
    assert (other.path, other.driver_version, other.ours) == (f"{tmp_path}/run/n.json", "570.172.08", False)
    assert len(state.cdi_drafts) == 2
    assert state.of_other_kind == (f"{tmp_path}/etc/cdi/plugin.yaml",)
    assert replace(GOOD.toolkit, version="1.18.2").hooks_lacking(own) == ()
    assert replace(GOOD.toolkit, version="1.17.9").hooks_lacking(own) == (later,)


REFRESH_UNIT = """show_units() { :; }
unit() {
  case "$1" in
    *.path) unit="UnitFileState=enabled";;
    *) unit="Environment=NVIDIA_CTK_DEBUG=1 NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=$ROOT/unit.yaml";;
  esac
}
says() { SAID=${unit#"$1="}; }
"""


@pytest.mark.real
@pytest.mark.parametrize(
    "settings, name",
    [
        (None, "unit.yaml"),
        ("# NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/no.yaml\n", "unit.yaml"),
        ("NVIDIA_CTK_DEBUG=1\n NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=ROOT/moved.yaml", "moved.yaml"),
        ("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH='ROOT/quoted.json' \r\n", "quoted.json"),
    ],
)
def test_the_specification_of_the_toolkit_s_unit_is_looked_for_where_its_settings_say(
    tmp_path: Path, host_with: HostWith, settings: str | None, name: str
) -> None:
    (tmp_path / "sys/systemd/system").mkdir(parents=True)
    (tmp_path / "sys/systemd/system/nvidia-cdi-refresh.service").touch()
    if settings is not None:
        (tmp_path / "refresh.env").write_text(settings.replace("ROOT", str(tmp_path)))
    (tmp_path / name).write_text(_text())
    part = f"{REFRESH_UNIT.replace('$ROOT', str(tmp_path))}{ToolkitFact.probe}".replace(
        "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env", f"{tmp_path}/refresh.env"
    ).replace("for folder in /etc /run", f"modules=/none\nfor folder in {tmp_path}/sys /run")
    done = subprocess.run(["sh", "-c", f"NL='\n'\n{part}"], capture_output=True, text=True, check=True)
    reading = parse_toolkit(done.stdout.splitlines())
    assert (reading.cdi_refresh, reading.cdi_output) == ("enabled", f"{tmp_path}/{name}"), done.stderr
    assert [item.path for item in reading.cdi if item.path.startswith(str(tmp_path))] == [f"{tmp_path}/{name}"]
    there = replace(GOOD.toolkit, cdi=(replace(REFRESHED, path=f"{tmp_path}/{name}"),), cdi_refresh="enabled",
                    cdi_output=f"{tmp_path}/{name}")  # fmt: skip
    assert commands(toolkit.specification, host_with(there), generate=True) == []
    (command,) = commands(toolkit.specification, host_with(replace(there, cdi=(REFRESHED,))), generate=True)
    assert f"target={tmp_path}/{name}" in command


LEGACY = replace(GOOD.toolkit, packages=(*GOOD.toolkit.packages, ("nvidia-docker2", "2.13.0-1")))


@pytest.mark.parametrize("toolkit", [{"hold": True}, {"migrate": True}])
def test_a_package_manager_that_cannot_do_it_is_said_beforehand(
    toolkit: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpunode.node.preflight.runtimes._HOLDING", ("dnf",))
    reasons = [item.reason for item in refusals(settings_from({"toolkit": toolkit}), replace(GOOD, toolkit=LEGACY))]
    assert any("with apt" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("reading", "names"),
    [
        (Unknown("silence"), ["silence"]),
        (replace(GOOD.toolkit, config_text="= nonsense"), ["/etc/nvidia-container-runtime/config.toml", "TOML"]),
        (replace(GOOD.toolkit, config_text="a = true"), None),
    ],
)
def test_a_configuration_that_is_unknown_or_no_toml_or_right_is_left_as_it_is(
    host_with: HostWith, reading: Any, names: list[str] | None
) -> None:
    host = host_with(reading)
    assert commands(toolkit.configuration, host, desired={("a",): True}) == []
    assert [unnamed(text, *(names or [])) for text in host.refusals] == ([] if names is None else [[]])


def test_a_mode_that_the_installed_toolkit_does_not_know_is_not_written(host_with: HostWith) -> None:
    asked = desired_keys(settings_from({"toolkit": {"mode": "jit-cdi"}}).toolkit)
    host = host_with(GOOD.toolkit)
    assert commands(toolkit.configuration, host, desired=asked) == []
    assert unnamed(host.refusals[0], "jit-cdi", "1.18.0", "1.17.8") == []
    (command,) = commands(toolkit.configuration, host_with(replace(GOOD.toolkit, version="1.20.0")), desired=asked)
    assert "config.toml" in command
    # Every mode that gpunode takes is one that the newest toolkit knows.
    assert set(get_args(get_args(ToolkitSettings.model_fields["mode"].annotation)[0])) <= set(modes("1.20.0"))


def test_with_dnf_the_lock_is_a_part_of_versionlock_s_list_beside_the_driver_s(host_with: HostWith) -> None:
    others = "# gpunode: locked with the driver\nnvidia-open-3:580.95.05-1.el9.*\n# gpunode: end\nkernel-0:5.14*\n"
    host = host_with(replace(GOOD.toolkit, hold_text=others))
    command, note = commands(toolkit.held, host, family="dnf")
    assert "checkpoint=/var/lib/gpunode/transactions/driver" in note and f"gpunode {LOCKLIST}" in note
    text = base64.b64decode(command.split(" <<< ")[1]).decode()
    assert text.startswith(others) and "\nnvidia-container-toolkit-0:1.17.8-1.*\n" in text
    held = host_with(replace(GOOD.toolkit, hold_text=text, held=PACKAGES))
    assert commands(toolkit.held, held, family="dnf") == []
    command, _ = commands(toolkit.released, held, family="dnf", version=None, hold=False)
    assert base64.b64decode(command.split(" <<< ")[1]).decode() == others
    assert commands(toolkit.held, host_with(GOOD.toolkit), family="dnf") == []


def _generated(root: Path, made: str, there: str | None, read: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the script that makes a specification, with an nvidia-ctk that makes one of the driver `made`.

    read: whether what is there was read, and is known for stale
    """
    (root / "bin").mkdir()
    program = root / "bin/nvidia-ctk"
    # As the real one does for GPUs with coherent memory, it writes a second file beside the one that is named.
    program.write_text(
        f"#!/bin/sh\noutput=${{3#--output=}}\nls {root}/cdi > {root}/meanwhile 2>&1\n"
        f"printf 'kind: nvidia.com/gpu\\nhostPath: /lib/libcuda.so.{made}\\n' > \"$output\"\n"
        "printf 'kind: nvidia.com/gpu.coherent\\n' > \"${output%.yaml}.coherent.yaml\"\n"
        f"ls {root}/cdi >> {root}/meanwhile\n"
    )
    program.chmod(0o755)
    target = root / "cdi/nvidia.yaml"
    if there is not None:
        target.parent.mkdir()
        target.write_text(there)
    return subprocess.run(
        ["sh", "-eu", "-c", toolkit._GENERATE], capture_output=True, text=True, check=False,
        env={
            "PATH": f"{root}/bin:/usr/bin:/bin", "target": str(target), "own": "yes", "version": LOADED,
            "mark": CDI_MARK, "stale": str(target) if there is not None and read else "",
        },
    )  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize(
    ("made", "there", "read", "says", "beside"),
    [
        (LOADED, None, True, "", []),
        (LOADED, f"{CDI_MARK}\nkind: ours\n", True, "", []),
        (LOADED, "kind: mine\n", True, "", ["nvidia.yaml.gpunode-before"]),
        # An empty one is nobody's.
        (LOADED, "", False, "", []),
        ("535.261.03", "kind: mine\n", True, f"libcuda.so.{LOADED}", []),
        # It was made since the node was read.
        (LOADED, "kind: mine\n", False, "was written", []),
    ],
)
def test_a_specification_takes_the_place_of_the_old_one_and_a_stranger_s_is_kept(
    tmp_path: Path, made: str, there: str | None, read: bool, says: str, beside: list[str]
) -> None:
    done = _generated(tmp_path, made, there, read)
    text = (tmp_path / "cdi/nvidia.yaml").read_text()
    assert done.returncode == bool(says) and says in done.stderr, done.stderr
    assert text == there if says else text.startswith(f"{CDI_MARK}\nkind: nvidia.com/gpu\n")
    assert set((tmp_path / "meanwhile").read_text().split()) <= {"nvidia.yaml"}
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".gpunode-cdi")]
    assert sorted(path.name for path in (tmp_path / "cdi").iterdir()) == ["nvidia.yaml", *beside]


def test_what_the_toolkit_replaces_goes_in_the_transaction_in_which_it_comes(host: Host) -> None:
    there = InstalledPackages((("nvidia-container-toolkit", "1.16.2-1"), ("nvidia-docker2", "2.13.0-1")))
    wanted = dict.fromkeys(PACKAGES, "1.17.8")
    host.readings[DebPackagesFact] = there
    (command,) = commands(packages.installed, host, family="apt", desired=wanted, replaces=("nvidia-docker2",))
    assert "nvidia-docker2-" in command and "nvidia-container-toolkit=1.17.8" in command
    whole = InstalledPackages((*((name, "1.17.8-1") for name in PACKAGES), ("nvidia-docker2", "2.13.0-1")))
    host.readings[DebPackagesFact] = whole
    assert commands(packages.installed, host, family="apt", desired=wanted) == []
    assert commands(packages.installed, host, family="apt", desired=wanted, replaces=("nvidia-docker2",))
