"""`make test-hardware`: what it compares, what it asks of a machine, and that nothing simulated comes into its page."""

from __future__ import annotations

import base64
import os
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

from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.base.probe_output import checked
from gpunode.base.reading import ParseError, Unknown
from gpunode.components.mig.state import ComputeInstance, GpuInstance, Mig, MigGpu
from gpunode.components.mps.plugin import parse_plugin_mps
from gpunode.facts.node import Node as NodeFacts
from gpunode.fleet import nodes as fleet
from gpunode.lab.hardware.simulated.smi.main import call
from gpunode.system.gpu import Gpus
from gpunode.system.health import Health
from tests.hardware import __main__ as hardware
from tests.hardware.compared import comparisons, of_daemon, of_discovery
from tests.hardware.log import Log, LoggedGpu, parse_log
from tests.support.messages import unnamed
from tests.support.nvidia_smi import VERSION, machine_with
from tests.support.verify import GOOD, GPU

LOGGED = LoggedGpu(
    GPU.uuid, GPU.name, GPU.pci_address, "2330", GPU.memory_mib, "Disabled", "Disabled", GPU.compute_mode,
    GPU.persistence_mode, 0, 0, False, False,
)  # fmt: skip
LOG = Log("580.95.05", "13.0", (LOGGED,))
NODE = replace(
    GOOD, health=Health(0, (replace(GOOD.health.gpus[0], uncorrected_errors_ever=0),), (), log_read=True),
    mig=Mig("ok", None, (MigGpu(0, GPU.uuid, GPU.pci_address, "2330", GPU.name, "Disabled", "Disabled", ()),)),
)  # fmt: skip


def differing(node: Any = NODE, log: Log = LOG) -> list[tuple[str, str, str]]:
    return [(each.what, each.by_gpunode, each.by_nvidia) for each in comparisons(node, log) if not each.agrees]


@pytest.mark.pure
@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({}, None),
        ({"uuid": "GPU-other"}, "UUID"),
        ({"name": "NVIDIA H200"}, "name"),
        ({"pci_address": "0000:ff:00.0"}, "PCI address"),
        ({"device_id": "2335"}, "PCI device"),
        ({"memory_mib": 1}, "memory in MiB"),
        ({"mig_current": "Enabled"}, "MIG mode"),
        ({"mig_pending": "Enabled"}, "MIG mode to come"),
        ({"compute_mode": "Prohibited"}, "compute mode"),
        ({"persistence_mode": "Enabled"}, "persistence mode"),
        ({"uncorrected_errors": 2}, "uncorrected errors"),
        ({"uncorrected_errors_ever": None}, "uncorrected errors ever"),
        ({"remap_pending": True}, "remapping pending"),
        ({"remap_failed": None}, "remapping failed"),
        ({"instances": ((1, 0),)}, "MIG devices"),
    ],
)
def test_every_fact_of_a_gpu_is_compared(change: dict[str, Any], what: str | None) -> None:
    found = [each[0] for each in differing(log=replace(LOG, gpus=(replace(LOGGED, **change),)))]
    assert f"GPU 0: {what}" in found if what else found == []
    assert len([*comparisons(NODE, LOG)]) == 19


@pytest.mark.pure
def test_what_only_one_side_has_is_told() -> None:
    second = replace(LOGGED, uuid="GPU-2", pci_address="0000:2a:00.0")
    found = differing(log=replace(LOG, driver_version="570.1", gpus=(LOGGED, second)))
    assert ("GPUs by nvidia-smi", "1", "2") in found and ("GPU 1: there", "no", "yes") in found
    assert ("loaded driver", "580.95.05", "570.1") in found
    divided = GpuInstance(3, 0, "1g.10gb", 0, 1, (ComputeInstance(0, 0, "1g.10gb", 0, 1),))
    gpu = replace(NODE.mig.gpus[0], instances=(divided,))
    assert ("GPU 0: MIG devices", "[(3, 0)]", "[]") in differing(replace(NODE, mig=Mig("ok", None, (gpu,))))


_XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log><driver_version>580.65.06</driver_version><cuda_version>13.0</cuda_version><gpu id="00000000:1A:00.0">
<product_name>Tesla T4</product_name><persistence_mode>Enabled</persistence_mode><uuid>GPU-1</uuid>
<mig_mode><current_mig>N/A</current_mig><pending_mig>N/A</pending_mig></mig_mode><mig_devices>None</mig_devices>
<pci><pci_device_id>1EB810DE</pci_device_id><pci_bus_id>00000000:1A:00.0</pci_bus_id></pci>
<fb_memory_usage><total>15360 MiB</total></fb_memory_usage><compute_mode>Exclusive_Process</compute_mode>
<ecc_errors>
<volatile><sram_correctable>5</sram_correctable><sram_uncorrectable>1</sram_uncorrectable>
<dram_uncorrectable>2</dram_uncorrectable></volatile>
<aggregate><sram_uncorrectable>N/A</sram_uncorrectable><dram_uncorrectable>N/A</dram_uncorrectable></aggregate>
</ecc_errors><remapped_rows>N/A</remapped_rows></gpu></nvidia_smi_log>"""


@pytest.mark.pure
def test_the_log_of_a_card_without_mig_and_row_remapper_is_read() -> None:
    assert parse_log(_XML).gpus == (
        LoggedGpu(
            "GPU-1", "Tesla T4", "0000:1a:00.0", "1EB8", 15360, "N/A", "N/A", "Exclusive_Process", "Enabled", 3, None,
            None, None,
        ),
    )  # fmt: skip
    with pytest.raises(ParseError):
        parse_log("<nvidia_smi_log>")


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


# Each writes down what it is asked, and is SIMULATED.
_SMI = """#!/bin/sh
case "$*" in
  -h) cat "$LAB/help";;
  "-q -x") cat "$LAB/log"; exit "$(cat "$LAB/rc")";;
  "-q -d PIDS")
    while [ -e "$LAB/hold-PIDS" ]; do : > "$LAB/held"; sleep 0.02; done
    printf 'GPU 0:1\n  Process ID : 4712\n  Type : M+C\n  Name : client\n';;
  --query-gpu=index,memory.total*) echo '0, 81559';;
  --query-gpu=*) echo '0, GPU-1';;
  *) exit 9;;
esac
"""
_NVCC = (
    '#!/bin/sh\n[ ! -e "$LAB/nvcc-fails" ] || { echo "fatal: none"; exit 1; }\ncp "$LAB/client" "$2"; chmod +x "$2"\n'
)
_CLIENT = """#!/bin/sh
[ -z "$CUDA_MPS_PIPE_DIRECTORY" ] || { sleep 1; touch "$LAB/served"; }
[ ! -e "$LAB/client-fails" ] || { echo "out of memory"; exit 1; }
while [ -e "$1" ]; do sleep 0.1; done
echo PASSED
"""
_MPS = """#!/bin/sh
echo "${1:-asked}" >> "$LAB/mps-calls"
if [ "$1" = -d ]; then
  cd "$CUDA_MPS_PIPE_DIRECTORY"; exec python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("control")'
fi
[ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
IFS= read -r question; echo "$question" >> "$LAB/mps-calls"
case "$question" in
  quit) while [ -e "$LAB/hold-quit" ]; do : > "$LAB/held"; sleep 0.02; done;;
  get_default_active*) if [ -e "$LAB/told" ]; then cat "$LAB/told"; else echo 100.0; fi;;
  get_default_device*) echo 7G;;
  set_default_active*) echo "${question##* }.0" > "$LAB/told";;
  "get_server_status 4711") echo ACTIVE;;
  get_server_list) [ ! -e "$LAB/served" ] || echo 4711;;
  "get_client_list 4711") echo 4712;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return a folder with the programs of a machine with a GPU, and what they say."""
    programs = {
        "nvidia-smi": _SMI, "nvcc": _NVCC, "client": _CLIENT, "nvidia-cuda-mps-control": _MPS,
        "pidof": "#!/bin/sh\nexit 1\n", "help": "NVIDIA System Management Interface", "log": _XML, "rc": "0",
    }  # fmt: skip
    for name, text in programs.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    return tmp_path


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
    probe = probe.replace("/usr/local/cuda/bin/nvcc", str(machine / "none")).replace("TMPDIR=/tmp", f"TMPDIR={machine}")
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
def test_a_machine_with_nvcc_and_mps_tells_of_its_client_and_leaves_nothing(machine: Path) -> None:
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


_DISCOVERY = """#!/bin/sh
[ ! -e "$LAB/discovery-fails" ] || { echo "no GPU"; exit 1; }
for word; do case "$word" in
  --config-file=*)
    sharing=$(sed -n '3s/[ :]//gp' "${word#*=}")
    replicas=$(sed -n 's/.*replicas: \\([0-9]*\\).*/\\1/p' "${word#*=}");;
  --output-file=*) to=${word#*=};;
esac; done
printf 'nvidia.com/gpu.sharing-strategy=%s %s\n' "${sharing:-none}" "${replicas:-1}" > "$to"
"""


@pytest.mark.simulated
def test_where_discovery_is_there_it_is_asked_for_each_sharing_and_its_failure_is_a_fault(machine: Path) -> None:
    (machine / "gpu-feature-discovery").write_text(_DISCOVERY)
    (machine / "gpu-feature-discovery").chmod(0o755)
    found = asked(machine)
    told = {way: labels["nvidia.com/gpu.sharing-strategy"] for way, labels in found.labels.items()}
    assert told == {"none": "none 1", "time-slicing": "timeSlicing 4", "mps": "mps 10"}
    assert found.discovery == "asked" and found.faults == ()
    (machine / "discovery-fails").touch()
    found = asked(machine)
    assert found.labels == {} and found.faults == ("GPU feature discovery: failed: no GPU",)


@pytest.mark.simulated
def test_what_fails_is_a_fault_and_what_is_not_there_is_left_out(machine: Path) -> None:
    (machine / "nvcc-fails").touch()
    found = asked(machine)
    assert found.faults == ("CUDA client: nvcc failed: fatal: none",)
    (machine / "nvcc").unlink()
    (machine / "nvidia-cuda-mps-control").unlink()
    found = asked(machine)
    assert found.faults == () and found.cuda.startswith("left out") and found.mps.startswith("left out")
    (machine / "log").write_text("Unable to determine the device handle for gpu 0000:1A:00.0: GPU is lost.")
    (machine / "rc").write_text("15")
    assert asked(machine).refused.startswith("Unable to determine")
    (machine / "log").write_text(f"{_XML}\nWARNING: infoROM is corrupted at gpu 0000:1A:00.0\n")
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
        lambda *_, **__: (NodeReport("@local", (Finding("driver", FindingClass.OK, "loaded module", next(found)),)),),
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


READING = """program=/usr/bin/nvidia-cuda-mps-control
percentage=nvidia.com/gpu\t10.0
limit=nvidia.com/gpu\t0\t7G
server=nvidia.com/gpu\t1214\tACTIVE
client=nvidia.com/gpu\t1212
daemon=nvidia.com/gpu\tyes\t0\t\t0
smi=GPU 00000000:00:06.0
"""
PROCESSES = [("1212", "M+C", "/tmp/client"), ("1214", "C", "nvidia-cuda-mps-server"), ("99", "C", "somebody else's")]
# A server stands on each GPU that it may use.
SECOND_GPU = "smi=GPU 00000000:00:07.0\n", ("1214", "C", "nvidia-cuda-mps-server")


def _process(number: str, kind: str, name: str) -> str:
    return f"smi=        Process ID : {number}\nsmi=            Type : {kind}\nsmi=            Name : {name}\n"


@pytest.mark.pure
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("", "", None),
        ("\t10.0", "\t100.0", "threads of a client"),
        ("\t7G", "\t8G", "memory of a client on GPU 0"),
        ("limit=nvidia.com/gpu\t0\t7G\n", "", "memory of a client on GPU 0"),
        ("ACTIVE", "FAULT", "servers"),
        ("client=nvidia.com/gpu\t1212\n", "", "clients"),
        ("yes\t0", "yes\t3", "failures in its log"),
        ("M+C", "C", "types of server and client on GPUs"),
        ("\tyes\t", "\tno\t", "answers"),
    ],
)
def test_what_is_read_of_the_plugin_s_daemon_is_held_against_what_it_was_told(
    old: str, new: str, what: str | None, twice: bool
) -> None:
    text = READING + "".join(_process(*each) for each in PROCESSES)
    text += SECOND_GPU[0] + _process(*SECOND_GPU[1]) if twice else ""
    plugin = parse_plugin_mps(text.replace(old, new).splitlines())
    differs = [each.what for each in of_daemon(NODE, plugin) if not each.agrees]
    assert differs == ([] if what is None else [f"plugin's MPS daemon: {what}"])
    assert [*of_daemon(NODE, None)] == []


@pytest.mark.pure
def test_labels_of_discovery_are_held_against_what_is_expected_by_sharing() -> None:
    folder = Path(__file__).parent / "data" / "feature-discovery"
    node = replace(
        NODE,
        gpus=Gpus(
            "ok", 0, None, (replace(GPU, name="NVIDIA H100 80GB HBM3", memory_mib=81559, driver_version="580.159.04"),)
        ),
    )
    names = {"time-slicing": "time-slicing-4", "mps": "mps-10"}
    labels = {
        way: dict(line.split("=") for line in (folder / f"h100-80gb.{name}.txt").read_text().splitlines())
        for way, name in names.items()
    }
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
    client = (Path(hardware.__file__).parent / "client.cu").read_bytes()
    assert base64.b64encode(client).decode() in str(hardware.MachineFact.probe)
