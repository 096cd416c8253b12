"""The script that tells GPUs their power limits and clocks, at a run and at a boot, beside a SIMULATED nvidia-smi."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpunode.base.probe_output import END
from gpunode.base.shell_file import script_file
from gpunode.components.power.state import NOTE, SCRIPT, Lock, Power, parse_power, rules, texts
from gpunode.facts.gpu import Power as PowerFact
from gpunode.lab.hardware.simulated import module
from gpunode.lab.hardware.simulated.fault import main as set_fault
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.operations.script import STANDARD_INPUT, script
from gpunode.settings import settings_from
from tests.support.installed_driver import install
from tests.support.messages import unnamed

pytestmark = pytest.mark.simulated
CHECKOUT = Path(__file__).parents[2]
FIRST, SECOND = "0000:07:00.0", "0000:0f:00.0"
VERSION = "550.163.01"
SMI = """#!{python} -S
import os, sys
sys.path.insert(0, {checkout!r})
os.geteuid = lambda: 0
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.hardware.simulated.smi.main import call
printed, status = call(sys.argv[1:], {version!r}, Machine({root!r}))
sys.stdout.buffer.write(printed)
sys.exit(status)
"""


class Node:
    """Stand for a node: a folder with a simulated machine, and programs of its own."""

    def __init__(self, root: Path) -> None:
        self.root, self.machine = root, Machine(root)
        self.machine.write_json("/etc/gpunode-lab/hardware.json", {"gpu": "a100-40gb", "count": 2})
        install(self.machine, VERSION)
        module.load(self.machine, "nvidia")
        self.bin = root / "programs"
        self.bin.mkdir()
        self.program(
            "nvidia-smi",
            SMI.format(python=sys.executable, checkout=str(CHECKOUT), version=VERSION, root=str(root)),
        )
        for name in ("systemctl", "modprobe", "chown"):
            self.program(name, f'#!/bin/sh\necho "{name} $*" >> {root}/called\n')

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def sh(self, text: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        for folder in ("/sys/module", NOTE, "/usr/local/lib/gpunode", "/etc/systemd/system"):
            text = text.replace(folder, f"{self.root}{folder}")
        return subprocess.run(
            ["sh", "-c", text], input=given, capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": f"{self.bin}:/usr/bin:/bin", "LC_ALL": "C", **variables},
        )  # fmt: skip

    def set(self, *tasks: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Carry out tasks as a run does."""
        written = variables.pop("written", "")
        body = script(script_file("power_apply") + STANDARD_INPUT + script_file("power"))
        names = {"removed": "", "enable": "", "unit": "gpunode-power.service", "unit_path": "/none"}
        given = base64.b64encode(written.encode()).decode() + "\n"
        return self.sh(body, given, tasks="\n".join(tasks), note=f"{self.root}{NOTE}", **{**names, **variables})

    def smi(self, fields: str, address: str = FIRST) -> str:
        line = f"nvidia-smi -i {address} --query-gpu={fields} --format=csv,noheader,nounits"
        return self.sh(line).stdout.strip()

    def locks(self) -> tuple[Lock, ...]:
        """Return what the probe reads of locked clocks."""
        return self.state().locks

    def state(self) -> Power:
        """Return what the probe reads, without the line that closes a reading."""
        lines = self.sh(PowerFact().command()).stdout.splitlines()
        return parse_power([line for line in lines if line != END])


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_each_task_is_told_and_read_back_and_undone_again(node: Node) -> None:
    done = node.set(
        f"{FIRST} limit 250.00", f"{SECOND} application 1215,1410", f"{FIRST} graphics 1200,1305",
        f"{FIRST} memory 1215,1215", f"{FIRST} ecc 0",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done
    assert f"gpunode: GPU {FIRST}: limit 250.00" in done.stdout
    assert node.smi("power.limit,clocks.gr,ecc.mode.current,ecc.mode.pending") == "250.00, 1305, Enabled, Disabled"
    assert node.smi("power.limit,clocks.applications.graphics", SECOND) == "400.00, 1410"
    assert node.locks() == (Lock(FIRST, "graphics", "1200,1305"), Lock(FIRST, "memory", "1215,1215"))
    undone = node.set(
        f"{FIRST} limit 400.00", f"{SECOND} application default", f"{FIRST} graphics default", f"{FIRST} ecc 1"
    )
    assert undone.returncode == 0, undone
    assert node.smi("power.limit,clocks.gr,ecc.mode.pending") == "400.00, 1410, Enabled"
    assert node.smi("clocks.applications.graphics", SECOND) == "1095"
    assert node.locks() == (Lock(FIRST, "memory", "1215,1215"),)


def test_what_a_gpu_did_not_take_fails_the_run_and_keeps_nothing_for_the_boot(node: Node) -> None:
    target = node.root / "kept"
    written = f"{target} {base64.b64encode(b'text').decode()}"
    assert set_fault(["set", "power_ignored", "0"], node.machine) == 0
    silent = node.set(f"{FIRST} limit 250.00", f"{SECOND} limit 250.00", written=written, enable="yes")
    assert silent.returncode == 1 and not target.exists() and not (node.root / "called").exists()
    assert unnamed(silent.stderr, f"GPU {FIRST}", "power.limit is 400.00", "250.00", "next boot") == []
    # The other GPU has it all the same.
    assert node.smi("power.limit", SECOND) == "250.00"
    unlocked = node.set(f"{FIRST} graphics 1200,1305")
    assert unlocked.returncode == 1 and "clocks.gr is 1410 MHz after -lgc 1200,1305" in unlocked.stderr
    assert node.locks() == ()
    # nvidia-smi ends with 0 where a pair of clocks is none of the GPU's.
    pair = node.set(f"{SECOND} application 1215,1001")
    assert pair.returncode == 1 and unnamed(pair.stderr, "1215,1001", "00000000:0F:00.0") == []
    range_ = node.set(f"{SECOND} limit 500.00")
    assert range_.returncode == 1 and unnamed(range_.stderr, "100.00 W", "400.00 W") == []


def test_the_files_come_and_go_with_the_unit(node: Node) -> None:
    target = node.root / "lib" / "kept"
    written = f"{target} {base64.b64encode(b'text').decode()}"
    assert node.set(written=written, enable="yes").returncode == 0
    assert target.read_text() == "text" and target.stat().st_mode & 0o777 == 0o644
    called = (node.root / "called").read_text().splitlines()
    assert called[-2:] == ["systemctl daemon-reload", "systemctl enable --quiet gpunode-power.service"]
    gone = node.set(removed=str(target), unit_path=str(target))
    assert gone.returncode == 0 and not target.exists(), gone
    called = (node.root / "called").read_text().splitlines()
    assert called[-2:] == ["systemctl disable --now --quiet gpunode-power.service", "systemctl daemon-reload"]


def test_the_boot_brings_back_the_first_rule_that_fits_each_gpu_and_the_probe_reads_the_rules(node: Node) -> None:
    settings = settings_from(
        {"power": {"limit": 300, "limits": {"NVIDIA A100-SXM4-40GB": 250}, "locked_graphics_clocks": "1200,1305"}}
    )
    every = rules(settings.power)
    for path, text in texts(every).items():
        node.machine.write(path, text)
    boot = node.sh(texts(every)[SCRIPT])
    assert (boot.returncode, boot.stderr) == (0, ""), boot
    assert [node.smi("power.limit,clocks.gr", each) for each in (FIRST, SECOND)] == ["250.00, 1305"] * 2
    state = node.state()
    assert state.parsed_rules == every and len(state.files) == 2 and not state.foreign and len(state.locks) == 2
    # The driver is loaded anew, and has forgotten all of it: what was noted counts no more.
    module.unload(node.machine, "nvidia")
    module.load(node.machine, "nvidia")
    assert node.smi("power.limit,clocks.gr") == "400.00, 1410"
    assert node.locks() == ()
    assert set_fault(["set", "power_ignored", "1"], node.machine) == 0
    again = node.sh(texts(every)[SCRIPT])
    assert again.returncode == 1 and f"GPU {SECOND}: power.limit is 400.00" in again.stderr
    assert node.smi("power.limit") == "250.00"


def test_a_gpu_with_a_corrupted_inforom_keeps_no_gpu_from_its_limit(node: Node) -> None:
    """nvidia-smi ends with 14 then, warns, and has done what it was told."""
    assert set_fault(["set", "inforom_corrupted", "1"], node.machine) == 0
    done = node.set(f"{FIRST} limit 250.00", f"{SECOND} limit 250.00")
    assert (done.returncode, done.stderr) == (0, ""), done
    settings = settings_from({"power": {"limit": 300}})
    boot = node.sh(texts(rules(settings.power))[SCRIPT])
    assert (boot.returncode, boot.stderr) == (0, ""), boot
    assert all(node.smi("power.limit", each).startswith("300.00") for each in (FIRST, SECOND))


def test_somebody_else_s_file_is_told_as_that_and_a_node_without_any_has_none(node: Node) -> None:
    assert node.state().files == ()
    node.machine.write(SCRIPT, "#!/bin/sh\nmine\n")
    state = node.state()
    assert state.foreign == (f"{node.root}{SCRIPT}",) and state.rules == ()
