"""The fixture nvidia-smi against what the real one printed (a stub library under nvidia-smi 550)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpunode.lab.hardware.simulated import module
from gpunode.lab.hardware.simulated.fault import main as set_fault
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.hardware.simulated.smi.main import call
from gpunode.lab.packages.smi_archive import smi_archive
from tests.support.installed_driver import install
from tests.support.nvidia_smi import A100, VERSION, machine_with, smi

pytestmark = pytest.mark.simulated

HELP = "Please run 'nvidia-smi -h' for help.\n\n"


@pytest.fixture
def a100(tmp_path: Path) -> Machine:
    return machine_with(tmp_path, A100)


def test_list_names_gpus_and_uuids(a100: Machine) -> None:
    assert smi(a100, "-L") == (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-12345678-1234-1234-1234-123456780000)\n"
        "GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-12345678-1234-1234-1234-123456780001)\n",
        0,
    )


def test_h100_memory_reads_as_recorded(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"gpu": "h100-80gb", "count": 2})
    assert smi(machine, "--query-gpu=index,name,memory.total --format=csv,noheader") == (
        "0, NVIDIA H100 80GB HBM3, 81559 MiB\n1, NVIDIA H100 80GB HBM3, 81559 MiB\n",
        0,
    )


TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.163.01             Driver Version: 550.163.01     CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-40GB          On  |   00000000:07:00.0 Off |                   On |
| N/A   33C    P0             72W /  400W |       0MiB /  40960MiB |      0%      Default |
|                                         |                        |              Enabled |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-40GB          On  |   00000000:0F:00.0 Off |                    0 |
| N/A   33C    P0             72W /  400W |       0MiB /  40960MiB |      0%      Default |
|                                         |                        |             Enabled* |
+-----------------------------------------+------------------------+----------------------+

+-----------------------------------------------------------------------------------------+
| MIG devices:                                                                            |
+------------------+----------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|      Shared           |
|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC DEC OFA JPG    |
|                  |                                  |        ECC|                       |
|==================+==================================+===========+=======================|
|  No MIG devices found                                                                   |
+-----------------------------------------------------------------------------------------+
"""


def test_plain_table_is_the_real_one_to_the_letter(a100: Machine) -> None:
    a100.write_json("/etc/gpunode-lab/faults.json", {"busy": 1})
    for command in ("-pm 1", "-i 0 -mig 1", "-i 1 -mig 1"):
        assert smi(a100, command)[1] == 0
    printed, status = smi(a100, "")
    assert status == 0
    date, _, table = printed.partition("\n")
    assert len(date) == len("Sat Nov 21 07:52:29 2026       ")
    assert table.startswith(TABLE)
    assert {len(line) for line in table.splitlines()} <= {0, 89, 91}


def test_title_of_580_is_as_wide_as_the_table(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"gpu": "h100-80gb", "count": 1}, "580.95.05")
    printed, status = call([], "580.95.05", machine)
    assert status == 0
    title = next(line for line in printed.decode().splitlines() if "NVIDIA-SMI" in line)
    assert title == "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |"


@pytest.mark.parametrize(
    ("line", "printed", "status"),
    [
        ("--foo", "ERROR: Option --foo is not recognized. Please run 'nvidia-smi -h'.\n\n", 255),
        ("foo", "ERROR: Option foo is not recognized. Please run 'nvidia-smi -h'.\n\n", 255),
        ("-i", f"ERROR: Option -i is missing its value. {HELP}", 255),
        ("-i 0 -L", f"ERROR: Option -i is not valid for this command. {HELP}", 2),
        ("-L -L", f"ERROR: Only one command can be run at a time. {HELP}", 2),
        (
            "--query-gpu=index --format=csv -L",
            f"ERROR: Option --query-gpu=index is not valid for this command. {HELP}",
            2,
        ),
        (
            "-pm 1 -c 3",
            "Invalid combination of input arguments. Only one device modification may be done at a time.\n\n",
            2,
        ),
        ("--query-gpu=index,foo --format=csv", 'Field "foo" is not a valid field to query.\n\n', 2),
        ("--query-gpu=index", f'"--format=" switch is missing. {HELP}', 2),
        ("--query-gpu=index --format=csv,bar", "Format modifier is not recognized.\n", 2),
        ("--query-gpu=index --format=noheader", "Format modifier --format=csv is mandatory.\n", 2),
        ("-i 7 --query-gpu=index --format=csv", "No devices were found\n", 6),
        ("-i 0,7 --query-gpu=index --format=csv", "index\n0\n", 0),
        ("-pm 3", "Invalid persistence mode: 3\nTerminating early due to previous errors.\n", 2),
        ("-c 9", "Invalid compute mode: 9\nTerminating early due to previous errors.\n", 2),
        ("-mig 3", "Invalid MIG Mode: 3\nTerminating early due to previous errors.\n", 2),
        ("-i 0 -c 0", "Compute mode is already set to DEFAULT for GPU 00000000:07:00.0.\nAll done.\n", 0),
        (
            "--version",
            "NVIDIA-SMI version  : 550.163.01\nNVML version        : 550.163\n"
            "DRIVER version      : 550.163.01\nCUDA Version        : 12.4\n",
            0,
        ),
    ],
)
def test_words_and_exit_code_are_the_real_ones(a100: Machine, line: str, printed: str, status: int) -> None:
    assert smi(a100, line) == (printed, status)


def test_modes_are_kept_until_the_driver_is_unloaded(a100: Machine) -> None:
    query = "-i 1 --query-gpu=compute_mode,persistence_mode --format=csv,noheader"
    assert smi(a100, "-i 1 -c EXCLUSIVE_PROCESS") == (
        "Set compute mode to EXCLUSIVE_PROCESS for GPU 00000000:0F:00.0.\nAll done.\n",
        0,
    )
    assert smi(a100, "-i 1 -pm 1") == ("Enabled persistence mode for GPU 00000000:0F:00.0.\nAll done.\n", 0)
    assert smi(a100, query)[0] == "Exclusive_Process, Enabled\n"
    module.unload(a100, "nvidia")
    module.load(a100, "nvidia")
    assert smi(a100, query)[0] == "Default, Disabled\n"


def test_busy_gpu_keeps_mig_mode_pending_until_the_driver_is_loaded_anew(a100: Machine) -> None:
    a100.write_json("/etc/gpunode-lab/faults.json", {"busy": 1})
    printed, status = smi(a100, "-i 1 -mig 1")
    assert status == 0
    assert printed.startswith(
        "Warning: MIG mode is in pending enable state for GPU 00000000:0F:00.0:In use by another client\n"
        "00000000:0F:00.0 is currently being used by one or more other processes (e.g. CUDA application"
    )
    query = "--query-gpu=index,mig.mode.current,mig.mode.pending --format=csv,noheader"
    assert smi(a100, query)[0] == "0, Disabled, Disabled\n1, Disabled, Enabled\n"
    module.unload(a100, "nvidia")
    module.load(a100, "nvidia")
    assert smi(a100, query)[0] == "0, Disabled, Disabled\n1, Enabled, Enabled\n"


def test_gpu_without_mig_says_so_and_yet_exits_0(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"gpu": "t4", "count": 1})
    assert smi(machine, "-i 0 -mig 1") == (
        "Unable to enable MIG Mode for GPU 00000000:3B:00.0: Not Supported\n"
        "Treating as warning and moving on.\nAll done.\n",
        0,
    )
    assert smi(machine, "--query-gpu=mig.mode.current --format=csv") == ("mig.mode.current\n[N/A]\n", 0)


def test_module_not_loaded_is_exit_code_9(a100: Machine) -> None:
    module.unload(a100, "nvidia")
    assert smi(a100, "-L") == (
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA driver is installed and running.\n\n",
        9,
    )


def test_library_of_another_version_is_exit_code_18(a100: Machine) -> None:
    install(a100, "580.95.05")
    assert smi(a100, "-L") == (
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n",
        18,
    )


def test_missing_library_is_exit_code_12(a100: Machine) -> None:
    a100.path("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").unlink()
    printed, status = smi(a100, "-L")
    assert status == 12
    assert printed.startswith("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.")


def test_lost_gpu_is_exit_code_15_with_garbage_in_the_text(a100: Machine) -> None:
    a100.write_json("/etc/gpunode-lab/faults.json", {"lost_gpu": 1})
    printed, status = smi(a100, "-L")
    assert status == 15
    first, second = printed.split("\n")[:2]
    assert first == "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-12345678-1234-1234-1234-123456780000)"
    assert second.startswith("Unable to determine the device handle for gpu \x10\ufffd")
    assert printed.endswith(": GPU is lost.  Reboot the system to recover this GPU\n\n\n")
    for line in ("", "--query-gpu=index,name,driver_version --format=csv,noheader"):
        printed, status = smi(a100, line)
        assert status == 15
        assert printed.startswith("Unable to determine the device handle for GPU\ufffd")
        assert printed.endswith(": GPU is lost.  Reboot the system to recover this GPU\n\n\n")
    assert smi(a100, "-i 0 --query-gpu=index --format=csv,noheader") == ("0\n", 0)


def test_while_a_gpu_is_lost_no_other_is_found_by_its_uuid_and_each_by_its_index(a100: Machine) -> None:
    uuid = a100.gpus()[0].uuid
    healthy = f"-i {uuid} --query-gpu=index --format=csv,noheader"
    assert smi(a100, healthy) == ("0\n", 0)
    a100.write_json("/etc/gpunode-lab/faults.json", {"lost_gpu": 1})
    printed, status = smi(a100, healthy)
    assert status == 255 and printed.startswith("Unable to determine the device handle for GPU")
    assert smi(a100, f"mig -i {uuid} -lgi")[1] == 255
    assert smi(a100, "-i 00000000:07:00.0 --query-gpu=index --format=csv,noheader") == ("0\n", 0)


ECC = "--query-gpu=index,ecc.errors.uncorrected.volatile.total --format=csv,noheader,nounits"
ROWS = "--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure --format=csv,noheader,nounits"


def test_memory_faults_show_on_the_gpu_that_has_them(a100: Machine) -> None:
    assert smi(a100, ECC) == ("0, 0\n1, 0\n", 0)
    assert smi(a100, ROWS) == ("00000000:07:00.0, 0, 0\n00000000:0F:00.0, 0, 0\n", 0)
    for name, gpu in (("uncorrected_ecc", "1"), ("remap_pending", "0"), ("remap_failure", "1")):
        assert set_fault(["set", name, gpu], a100) == 0
    assert smi(a100, ECC) == ("0, 0\n1, 2\n", 0)
    assert smi(a100, ROWS) == ("00000000:07:00.0, 1, 0\n00000000:0F:00.0, 0, 1\n", 0)
    assert smi(a100, "--query-remapped-rows=foo --format=csv") == ('Field "foo" is not a valid field to query.\n\n', 2)
    assert set_fault(["set", "remap_pending", "2"], a100) == 64


def test_a_gpu_older_than_ampere_has_no_row_remapper(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"gpu": "t4", "count": 1})
    assert smi(machine, ROWS) == ("00000000:3B:00.0, [N/A], [N/A]\n", 0)


def test_real_driver_makes_it_refuse(a100: Machine) -> None:
    a100.path(module.STATE).unlink()
    printed, status = smi(a100, "-L")
    assert status == 1
    assert "SIMULATED" in printed
    assert "real NVIDIA driver" in printed


def test_every_call_is_logged_as_simulated(a100: Machine) -> None:
    smi(a100, "--query-gpu=index --format=csv")
    last = a100.path("/var/log/gpunode-lab.log").read_text().splitlines()[-1]
    assert last.endswith("SIMULATED nvidia-smi: --query-gpu=index --format=csv")


def test_unusable_hardware_file_is_said_without_a_traceback(a100: Machine) -> None:
    a100.write_json("/etc/gpunode-lab/hardware.json", {"gpu": "voodoo", "count": 1})
    printed, status = smi(a100, "-L")
    assert status == 255
    assert "gpu is 'voodoo'; allowed: h100-80gb" in printed


def test_program_in_the_package_runs_by_itself(tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_bytes(smi_archive("580.95.05"))
    result = subprocess.run([sys.executable, "-I", program, "-h"], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stderr) == (0, "")
    assert "v580.95.05" in result.stdout
    assert smi_archive("580.95.05") == program.read_bytes()
    code = (
        f"import sys; sys.path.insert(0, {str(program)!r}); "
        "from simulated.smi.mig.table import profiles; print(len(profiles('A30-24GB')))"
    )
    found = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (found.stdout, found.stderr) == ("5\n", "")


def test_hang_ends_only_by_kill(a100: Machine, tmp_path: Path) -> None:
    a100.write_json("/etc/gpunode-lab/faults.json", {"hang": True})
    code = (
        "from pathlib import Path; from lab.hardware.simulated.machine import Machine; "
        "from lab.hardware.simulated.smi.main import call; print('up', flush=True); "
        f"call(['-L'], {VERSION!r}, Machine(Path({str(tmp_path)!r})))"
    )
    checkout = Path(__file__).parents[3]
    process = subprocess.Popen([sys.executable, "-c", code], cwd=checkout, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
    finally:
        process.kill()
    assert process.wait(10) == -9


def test_hardware_file_decides_the_number_of_gpus(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, {"gpu": "l40s", "count": 3})
    assert smi(machine, "--query-gpu=count --format=csv,noheader")[0] == "3\n3\n3\n"
    assert json.loads(machine.path(module.STATE).read_text())["version"] == VERSION
