"""`make test-hardware`: what it compares, what it asks of a machine, and that nothing simulated comes into its page."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpunode.base.findings import FindingClass, NodeReport
from gpunode.base.probe_output import checked
from gpunode.base.reading import Unknown
from gpunode.components.driver.loading import LOADED_MODULE
from gpunode.components.mig.state import Mig
from gpunode.facts.node import Node as NodeFacts
from gpunode.fleet import nodes as fleet
from gpunode.lab.hardware.simulated.smi.main import call
from gpunode.system.gpu import Gpus
from tests.hardware import __main__ as hardware
from tests.hardware.compared import of_daemon, of_discovery
from tests.hardware.log import parse_log
from tests.support.hardware import LOG, NODE
from tests.support.messages import unnamed
from tests.support.nvidia_smi import VERSION, machine_with
from tests.support.verify import GPU

pytestmark = pytest.mark.tier2
DATA = Path(__file__).parent / "data"


@pytest.mark.simulated
def test_the_simulated_nvidia_smi_prints_the_log_that_is_read(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"gpu": "a100-40gb", "count": 2})

    def smi(line: str) -> str:
        printed, status = call(line.split(), VERSION, machine)
        assert status == 0, printed
        return printed.decode()

    smi("-i 1 -mig 1")
    smi("mig -i 1 -cgi 19,19 -C")
    log = parse_log(smi("-q -x"))
    listed = smi("--query-gpu=uuid,memory.total,mig.mode.current --format=csv,noheader,nounits").splitlines()
    assert [f"{gpu.uuid}, {gpu.memory_mib}, {gpu.mig_current}" for gpu in log.gpus] == listed
    assert (log.driver_version, [len(gpu.instances) for gpu in log.gpus]) == (VERSION, [0, 2])
    assert [gpu.remap_pending for gpu in log.gpus] == [False, False]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return a folder with the programs of a machine with a GPU, and what they say."""
    return shutil.copytree(DATA / "hardware", tmp_path, dirs_exist_ok=True)


def started(machine: Path, loaded: bool = True) -> subprocess.Popen[str]:
    """Start the shell part."""
    module = machine / "module"
    if loaded:
        module.mkdir(exist_ok=True)
    # gpunode's own question travels in it as base64, and looks for the module, too.
    probe, own = str(hardware.MachineFact().command()), hardware.question()
    changed = own.replace("/sys/module/nvidia", str(module))
    inner, other = (base64.b64encode(text.encode()).decode() for text in (own, changed))
    probe = probe.replace(inner, other).replace("/sys/module/nvidia", str(module))
    probe = probe.replace("command -v cc ", f"[ -x {machine}/cc ] ").replace("TMPDIR=/tmp", f"TMPDIR={machine}")
    environment = {"PATH": f"{machine}:/usr/bin:/bin", "LAB": str(machine)}
    return subprocess.Popen(
        ["sh", "-c", probe], env=environment, text=True, start_new_session=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )  # fmt: skip


def asked(machine: Path, loaded: bool = True) -> hardware.Machine:
    """Run the shell part to its end."""
    printed, _ = started(machine, loaded).communicate(timeout=100)
    return hardware.parse_machine(checked(printed.splitlines()))


@pytest.mark.simulated
def test_a_machine_with_a_compiler_and_mps_tells_of_its_client_and_leaves_nothing(machine: Path) -> None:
    found = asked(machine)
    assert found.log is not None and found.log.gpus[0].name == "Tesla T4"
    assert (found.cuda, found.mps, found.client) == ("PASSED", "100.0", "PASSED, by a server, 1 client")
    assert found.faults == () and found.kernel == os.uname().release
    asked_of_it = (machine / "mps-calls").read_text().splitlines()
    assert asked_of_it[-1] == "quit"
    assert {"set_default_device_pinned_mem_limit 0 8155M", "set_default_active_thread_percentage 10"} <= {*asked_of_it}
    assert found.plugin is not None
    (daemon,) = found.plugin.daemons
    assert (daemon.resource, daemon.answers, daemon.percentage, daemon.limits) == (
        "nvidia.com/gpu", True, "10.0", ((0, "7G"),),
    )  # fmt: skip
    assert daemon.clients == (4712,) and [each.type for each in found.plugin.processes] == ["M+C"]
    assert not [*machine.glob("tmp.*")]


# While the script is about to print, and while it ends the daemon.
@pytest.mark.parametrize("held", ["PIDS", "quit"])
@pytest.mark.simulated
def test_an_interruption_ends_the_daemon_and_leaves_nothing(machine: Path, held: str) -> None:
    hold = machine / f"hold-{held}"
    hold.touch()
    process = started(machine)
    try:
        _until(lambda: (machine / "held").exists())
        # As a terminal does it: all that runs in it hears of it.
        os.killpg(process.pid, signal.SIGINT)
        if held == "quit":
            hold.unlink()
        _until(lambda: "quit" in (machine / "mps-calls").read_text().splitlines() and not [*machine.glob("tmp.*")])
    finally:
        hold.unlink(missing_ok=True)
        process.communicate(timeout=30)


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _changed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.simulated
def test_a_gpu_without_memory_of_its_own_gets_no_limit_and_the_rest_is_seen(machine: Path) -> None:
    _changed(machine / "nvidia-smi", "echo '0, 81559'", "echo '0, [N/A]'")
    found = asked(machine)
    assert found.faults == () and found.client == "PASSED, by a server, 1 client" and found.plugin is not None
    assert "pinned_mem_limit 0 " not in (machine / "mps-calls").read_text().replace("get_default_device_", "")


@pytest.mark.simulated
def test_a_client_that_fails_by_the_daemon_or_of_which_nothing_is_heard_is_a_fault(machine: Path) -> None:
    _changed(machine / "client", '"$LAB/served"; }', '"$LAB/served"; touch "$LAB/client-fails"; }')
    (fault,) = asked(machine).faults
    assert fault.startswith("client by MPS: out of memory, by ")
    (fault,) = replace(REAL, client="").faults
    assert fault.startswith("client by MPS: ")


@pytest.mark.simulated
def test_where_discovery_is_there_it_is_asked_for_each_sharing_and_its_failure_is_a_fault(machine: Path) -> None:
    (machine / "discovery/gpu-feature-discovery").rename(machine / "gpu-feature-discovery")
    found = asked(machine)
    told = {way: labels["nvidia.com/gpu.sharing-strategy"] for way, labels in found.labels.items()}
    assert told == {"none": "none 1", "time-slicing": "timeSlicing 4", "mps": "mps 10"}
    assert found.discovery == "asked" and found.faults == ()
    (machine / "discovery-fails").touch()
    found = asked(machine)
    assert found.labels == {} and found.faults == ("GPU feature discovery: failed: no GPU",)


@pytest.mark.simulated
def test_what_fails_is_a_fault_and_what_is_not_there_is_left_out(machine: Path) -> None:
    (machine / "cc-fails").touch()
    found = asked(machine)
    assert found.faults == ("CUDA client: cc failed: fatal: none",)
    (machine / "cc").unlink()
    (machine / "nvidia-cuda-mps-control").unlink()
    found = asked(machine)
    assert found.faults == () and found.cuda.startswith("left out") and found.mps.startswith("left out")
    log = (machine / "log").read_text()
    (machine / "log").write_text("Unable to determine the device handle for gpu 0000:1A:00.0: GPU is lost.")
    (machine / "rc").write_text("15")
    assert asked(machine).refused.startswith("Unable to determine")
    (machine / "log").write_text(log + "WARNING: infoROM is corrupted at gpu 0000:1A:00.0\n")
    assert asked(machine).log is not None
    (machine / "log").write_text("No devices were found")
    assert (asked(machine).refused, asked(machine).log) == ("", None)


@pytest.mark.simulated
def test_without_a_program_or_its_module_nothing_is_asked_and_a_simulated_one_compiles_nothing(machine: Path) -> None:
    assert asked(machine, loaded=False) == hardware.Machine()
    (machine / "help").write_text("NVIDIA System Management Interface (SIMULATED, gpunode's lab)")
    found = asked(machine)
    assert found.simulated and found.cuda == "left out: the GPU is SIMULATED"
    (machine / "nvidia-smi").unlink()
    assert asked(machine) == hardware.Machine()


def looked(monkeypatch: pytest.MonkeyPatch, machine: Any, after: str = "ok", node: Any = NODE) -> None:
    """Have one host of an inventory answer so."""
    monkeypatch.setattr(hardware, "load_inventory", lambda _: [SimpleNamespace(name="@local")])
    answers = {NodeFacts: node, hardware.MachineFact: machine}
    monkeypatch.setattr(
        fleet, "read", lambda _, fact, **__: (SimpleNamespace(reading=answers[fact], reason="no answer"),)
    )
    found = iter(["ok", after])
    monkeypatch.setattr(
        hardware, "inspect",
        lambda *_, **__: (NodeReport("@local", (LOADED_MODULE.finding(FindingClass.OK, next(found)),)),),
    )  # fmt: skip


REAL = hardware.Machine(LOG, "", False, "6.8.0", "PASSED", "100.0", "PASSED, by a server, 1 client")


@pytest.mark.pure
def test_a_look_takes_the_place_of_the_last_one_at_such_a_machine_and_leaves_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    to = tmp_path / "hardware.md"
    looked(monkeypatch, REAL)
    assert hardware.main([], to) == 0
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    assert unnamed(to.read_text(), GPU.name, today, "CUDA 13.0", "kernel 6.8.0", "19 of 19", "1 findings") == []
    for seen in (replace(REAL, log=replace(LOG, driver_version="570.1")), replace(REAL, kernel="6.9.1")):
        looked(monkeypatch, seen)
        hardware.main([], to)
    text = to.read_text()
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Hardware", f"## 1 × {GPU.name}, driver 570.1", f"## 1 × {GPU.name}, driver 580.95.05",
    ]  # fmt: skip
    assert text.count("kernel 6.9.1") == 1 and text.count("kernel 6.8.0") == 1 and "SIMULATED" not in text


@pytest.mark.pure
def test_labels_of_discovery_are_held_against_what_is_expected_by_sharing() -> None:
    assert [*of_daemon(NODE, None)] == []
    node = replace(
        NODE,
        gpus=Gpus(
            "ok", 0, None, (replace(GPU, name="NVIDIA H100 80GB HBM3", memory_mib=81559, driver_version="580.159.04"),)
        ),
    )
    names = {"time-slicing": "time-slicing-4", "mps": "mps-10"}
    files = {way: DATA / "feature-discovery" / f"h100-80gb.{name}.txt" for way, name in names.items()}
    labels = {way: dict(line.split("=") for line in path.read_text().splitlines()) for way, path in files.items()}
    assert [each for each in of_discovery(node, labels) if not each.agrees] == [] and len(labels) == 2
    unread = replace(node, mig=Mig("unreadable", "no answer", ()), gpus=Gpus("no driver", 9, None, ()))
    assert {each.by_gpunode for each in of_discovery(unread, labels) if not each.agrees} == {"nobody can say"}
    labels["mps"]["nvidia.com/gpu.replicas"] = "9"
    wrong = [each for each in of_discovery(node, labels) if not each.agrees]
    assert [each.what for each in wrong] == ["labels, sharing mps"] and "gpu.replicas=9" in wrong[0].by_nvidia


@pytest.mark.pure
@pytest.mark.parametrize(
    ("machine", "after", "told"),
    [
        (replace(REAL, log=replace(LOG, driver_version="570.1")), "ok", ["loaded driver", "580.95.05", "570.1"]),
        (replace(REAL, cuda="no device is detected"), "ok", ["CUDA client: no device is detected"]),
        (replace(REAL, client="PASSED, by no server"), "ok", ["client by MPS: PASSED, by no server"]),
        (REAL, "570", ["loaded module 570"]),
        (hardware.Machine(refused="GPU is lost"), "ok", ["nvidia-smi -q -x: GPU is lost"]),
        (Unknown(), "ok", ["no answer"]),
    ],
)
def test_what_differs_is_told_and_fails(
    machine: Any, after: str, told: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    looked(monkeypatch, machine, after)
    assert hardware.main([], tmp_path / "hardware.md") == 1
    assert unnamed(capsys.readouterr().err, *told) == []


@pytest.mark.pure
def test_without_a_gpu_one_line_is_said_and_of_a_simulated_one_no_page_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated = replace(REAL, simulated=True)
    for machine, said in ((hardware.Machine(), f"@local: {hardware.NO_GPU}"), (simulated, "SIMULATED")):
        looked(monkeypatch, machine)
        assert hardware.main([], tmp_path / "hardware.md") == 0
        assert said in capsys.readouterr().out and not (tmp_path / "hardware.md").exists()
    client = (Path(hardware.__file__).parent / "client.c").read_bytes()
    assert base64.b64encode(client).decode() in str(hardware.MachineFact.probe)
