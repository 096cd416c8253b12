"""A driver below a root of its own: read there, told to all that use it, and neither brought nor loaded by gpunode."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.probe_output import checked
from gpunode.base.shell_file import script_file
from gpunode.components.driver.state import parse_driver
from gpunode.components.runtimes.toolkit.cdi import CdiSpecification
from gpunode.components.runtimes.toolkit.configuration import desired_keys
from gpunode.components.runtimes.toolkit.decide import decide_configuration
from gpunode.components.runtimes.toolkit.specification import Specification, decide_specification
from gpunode.facts import base
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.kubernetes.device_plugin.desired_cluster import desired_cluster
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from gpunode.system.gpu import parse_gpus
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

ROOT = "/run/nvidia/driver"
DATA: dict[str, Any] = {"driver": {"source": "present", "root": ROOT}, "cuda": {"enabled": False}}
ASKED = settings_from(DATA)
LOADED = "580.95.05"
THERE = replace(
    GOOD.driver, module_version=None, module_license=None, root=ROOT, root_folder=True,
    root_smi=f"{ROOT}/usr/bin/nvidia-smi",
)  # fmt: skip
CONFIGURED = f'[nvidia-container-cli]\nroot = "{ROOT}"\n'
BY_US = f'[nvidia-container-cli]\nroot = "{ROOT}" # by gpunode: driver.root\n'
NODE = replace(GOOD, driver=THERE, toolkit=replace(GOOD.toolkit, config_text=CONFIGURED))
OURS = CdiSpecification("/etc/cdi/nvidia.yaml", LOADED, True, (), f"{ROOT}/usr/lib/libcuda.so.{LOADED}")


def test_the_plugin_is_told_the_root_and_one_at_the_node_s_own_is_told_none() -> None:
    cluster = {"kubernetes": {"enabled": True}}
    told = desired_cluster({"a": settings_from({**DATA, **cluster})})
    plain = desired_cluster({"a": settings_from(cluster)})
    assert told is not None and plain is not None
    assert told.values["nvidiaDriverRoot"] == ROOT
    assert "nvidiaDriverRoot" not in plain.values


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({}, None),
        ({"root_smi": None, "root_folder": False, "library_version": None}, "driver root"),
        ({"root_smi": None}, "driver root"),
        ({"library_version": "570.172.08"}, "library"),
        ({"loaded_version": None, "loaded_flavour": None}, "loaded module"),
        ({"uvm_loaded": False}, "nvidia_uvm"),
    ],
)
def test_what_such_a_driver_lacks_is_a_person_s_and_no_run_loads_or_boots_anything(
    change: dict[str, Any], what: str | None
) -> None:
    node = replace(NODE, driver=replace(THERE, **change))
    found = {item.what: item for item in judge(ASKED, node) if item.finding_class.value != "ok"}
    assert what in found if what else found == {}
    assert all(item.by_person for item in found.values())
    assert all(step.pending for step in plan(ASKED, node).steps if step.component == "driver")


@pytest.mark.parametrize(
    "text",
    [
        '[nvidia-container-cli]\nroot = "/opt/nv"\n',
        '[nvidia-container-cli]\nroot = "/opt/nv" # of our driver container\n',
        'nvidia-container-cli = {root = "/opt/nv"}\n',
    ],
)
def test_a_root_that_somebody_else_wrote_is_refused_with_the_setting_and_not_taken_out(text: str) -> None:
    there = replace(GOOD.toolkit, config_text=text)
    decision = decide_configuration(desired_keys(ASKED.toolkit, "/"), there)
    assert not decision.steps and all(item.by_person for item in decision.findings)
    assert "driver.root = '/opt/nv'" in str(decision.refusal)
    # Who says where the driver is has it so: there is nothing to do, and another one is written.
    assert not decide_configuration(desired_keys(ASKED.toolkit, "/opt/nv"), there).findings[0].cause
    (step,) = decide_configuration(desired_keys(ASKED.toolkit, ROOT), there).steps
    assert f'root = "{ROOT}"' in str(step.change)
    # Nothing is known of a driver that gpunode does not look at.
    assert not decide_configuration(desired_keys(ASKED.toolkit, None), there).findings


@given(
    root=st.sampled_from(["/", ROOT, "/opt/nv"]),
    there=st.sampled_from([
        None, "", "[nvidia-container-cli]\n", BY_US, '[nvidia-container-cli]\nroot = "/"\n',
        '[nvidia-container-cli]\n#root = "/commented"\nload-kmods = true\n',
    ]),
)  # fmt: skip
def test_a_step_leaves_nothing_to_do_and_back_at_the_node_s_own_root_the_key_goes(root: str, there: str | None) -> None:
    asked = desired_keys(ASKED.toolkit, root)
    decision = decide_configuration(asked, replace(GOOD.toolkit, config_text=there))
    after = str(decision.steps[0].change) if decision.steps else there
    assert not decide_configuration(asked, replace(GOOD.toolkit, config_text=after)).steps
    if root == "/":
        assert ROOT not in (after or "")
        assert bool(decision.steps) == (there == BY_US)
    else:
        assert f'root = "{root}" # by gpunode: driver.root' in (after or "").splitlines()


def test_what_is_unreadable_is_told_where_something_is_asked_of_it_alone() -> None:
    broken = replace(GOOD.toolkit, config_text="= nonsense")
    assert decide_configuration(desired_keys(ASKED.toolkit, "/"), broken).findings == ()
    assert decide_configuration(desired_keys(ASKED.toolkit, ROOT), broken).refusal


@pytest.mark.parametrize("refresh", [None, "enabled", "masked"])
def test_the_specification_of_such_a_driver_is_gpunode_s_own_whatever_the_toolkit_has(refresh: str | None) -> None:
    bare = replace(GOOD.toolkit, cdi=(), cdi_refresh=refresh)
    (step,) = decide_specification(True, bare, THERE).steps
    assert step.change == Specification((), OURS.path, LOADED, True, (), ROOT)
    assert not decide_specification(True, replace(bare, cdi=(OURS,)), THERE).steps


@pytest.mark.parametrize("library", [f"/usr/lib/libcuda.so.{LOADED}", f"/opt/other/lib64/libcuda.so.{LOADED}"])
def test_a_specification_of_another_root_is_found_and_made_anew_and_so_on_the_way_back(library: str) -> None:
    other = replace(OURS, library=library)
    decision = decide_specification(True, replace(GOOD.toolkit, cdi=(other,)), THERE)
    assert library in str(decision.findings[0].actual) and ROOT in str(decision.findings[0].desired)
    assert [getattr(step.change, "root", None) for step in decision.steps] == [ROOT]
    back = decide_specification(True, replace(GOOD.toolkit, cdi=(OURS,)), GOOD.driver)
    assert [getattr(step.change, "root", None) for step in back.steps] == ["/"]


def at(root: Path, monkeypatch: pytest.MonkeyPatch, fact: Any, changed: tuple[str, str] | None = None) -> list[str]:
    """Run a fact's probe as of a host whose driver.root is `root`."""
    monkeypatch.setattr(base, "driver_root", lambda: str(root))
    command = str(fact().command())
    if changed is not None:
        assert changed[0] in command
        command = command.replace(*changed)
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    return checked(done.stdout.splitlines())


def _root(folder: Path) -> Path:
    root = folder / "driver"
    libraries = root / "usr/lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (root / "usr/bin").mkdir()
    (libraries / f"libnvidia-ml.so.{LOADED}").write_text("SIMULATED")
    (libraries / "libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{LOADED}")
    smi = root / "usr/bin/nvidia-smi"
    smi.write_text('#!/bin/sh\n# SIMULATED\necho "SIMULATED $0 by $LD_PRELOAD"; exit 9\n')
    smi.chmod(0o755)
    return root


@pytest.mark.parametrize(("made", "told"), [((), True), (("dev",), True), (("dev", "dev/nvidiactl"), False)])
def test_a_specification_takes_the_devices_from_dev_where_the_root_shows_none(
    made: tuple[str, ...], told: bool, tmp_path: Path
) -> None:
    root, programs = tmp_path / "root", tmp_path / "bin"
    for folder in (root, programs, *(root / each for each in made)):
        folder.mkdir()
    program = programs / "nvidia-ctk"
    program.write_text(f'#!/bin/sh\n# SIMULATED\necho "$@" > {tmp_path}/asked; exit 1\n')
    program.chmod(0o755)
    text = f"set -eu\ntarget={tmp_path}/etc/cdi/nvidia.yaml; root={root}\n{script_file('cdi_generate')}"
    subprocess.run(["sh", "-c", text], env={"PATH": f"{programs}:/usr/bin:/bin"}, capture_output=True, check=False)
    asked = (tmp_path / "asked").read_text()
    assert f"--driver-root={root}" in asked and ("--dev-root=/ " in asked) is told


@pytest.mark.real
def test_the_probe_reads_the_driver_below_its_root_and_no_module_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _root(tmp_path)
    found = parse_driver(at(root, monkeypatch, DriverFact))
    assert (found.root, found.root_folder, found.root_devices) == (str(root), True, False)
    assert found.root_smi == f"{root}/usr/bin/nvidia-smi"
    assert found.library_version == LOADED and found.module_version is None and not found.reboot_pending
    # An empty folder, as of a driver that is a read-only image, has no devices.
    (root / "dev").mkdir()
    assert not parse_driver(at(root, monkeypatch, DriverFact)).root_devices
    (root / "dev/nvidiactl").touch()
    assert parse_driver(at(root, monkeypatch, DriverFact)).root_devices
    shutil.rmtree(root)
    gone = parse_driver(at(root, monkeypatch, DriverFact))
    assert (gone.root_folder, gone.root_smi, gone.library_version) == (False, None, None)


@pytest.mark.real
def test_nvidia_smi_of_the_root_is_asked_once_with_its_own_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = _root(tmp_path)
    # What would have the module of this machine loaded.
    loaded = ("/sys/module/nvidia ]", f"{root} ]")
    found = parse_gpus(at(root, monkeypatch, GpusFact, loaded))
    assert found.status == "no driver" and found.exit_code == 9
    library = root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    assert found.message == f"SIMULATED {root}/usr/bin/nvidia-smi by {library}"
    (root / "usr/bin/nvidia-smi").unlink()
    assert parse_gpus(at(root, monkeypatch, GpusFact, loaded)).status == "absent"


def test_a_driver_at_the_node_s_own_root_is_asked_as_before() -> None:
    assert base.driver_root() == "/"
    assert "DRIVER_ROOT=/" not in str(DriverFact().command())
