"""The MIG transaction, run for real by sh; GPUs, nvidia-smi (lab/hardware) and systemctl are SIMULATED."""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.base.template import rendered
from gpunode.components.mig import boot
from gpunode.components.mig.boot import FUNCTIONS, NAME
from gpunode.components.mig.change import Instance, change
from gpunode.components.mig.geometry import product_geometry
from gpunode.components.mig.goal import wanted_instances
from gpunode.components.mig.placement import Impossible, feasible, layout_of
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.hardware.simulated.smi.main import call
from gpunode.lab.hardware.simulated.smi.mig.instances import GpuInstance
from gpunode.operations.keeping import digest_of_text
from gpunode.operations.mig import TRANSACTION
from gpunode.operations.script import script
from gpunode.operations.transaction import transaction_text
from tests.support.messages import unnamed
from tests.support.nvidia_smi import A100, machine_with

pytestmark = [pytest.mark.simulated, pytest.mark.tier2]

VERSION = "550.163.01"
H100: dict[str, Any] = {"gpu": "h100-80gb", "count": 2, "uuids": ["GPU-0", "GPU-1"]}
_PIPES = ("ask", "done")
# The simulated nvidia-smi answers in this process: to start one for each of some hundred calls would take minutes.
_SMI = """#!/bin/sh
printf '%s\\n' "$*" > "$LAB/ask"
read -r code < "$LAB/done"
cat "$LAB/answer"
[ "$code" != killed ] || kill -9 $$
exit "$code"
"""
_SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$LAB/calls"
case "$1" in
  show) [ "$9" != dcgm.service ] || echo dcgm-exporter.service;;
  is-active) grep -qx "$3" "$LAB/active";;
  is-enabled) exit 1;;
  stop)
    grep -vx -e "$2" -e dcgm-exporter.service "$LAB/active" > "$LAB/active.new"; mv "$LAB/active.new" "$LAB/active"
    [ ! -e "$LAB/sticky" ] || exit 0
    rm -rf "$LAB/root/proc/77";;
  start) [ ! -e "$LAB/dead" ] || exit 1; echo "$2" >> "$LAB/active";;
esac
"""

_CTK = """#!/bin/sh
nvidia-smi mig -i 0 -lgi | grep MIG
"""


class Killed(BaseException):
    """Stand for the end of a process by kill -9."""


def _killed() -> None:
    raise Killed


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("gpunode.lab.hardware.simulated.moments.kill_self", _killed)


@dataclass
class Lab:
    """Hold a folder that stands for a node with GPUs."""

    folder: Path
    machine: Machine
    uuids: tuple[str, ...]

    def run(self, *goal: str, action: str = "change", **more: str) -> subprocess.CompletedProcess[str]:
        """Let the transaction bring GPUs to layouts."""
        variables = {
            "goal": "\n".join(goal), "rest": "", "layout": "\n".join(goal), "stop_units": "dcgm.service",
            "reset": "yes", "boot": "", "unit_path": f"{self.folder}/unit", "script_path": f"{self.folder}/script",
            "record_path": str(self.record), "name_of_unit": NAME, "cdi": str(self.cdi), "mark": "MARK",
            "unit_text": "", "script_text": "", "unit_read": "unread", "script_read": "unread",
            "record_read": "unread", **more,
        }  # fmt: skip
        if action == "change":
            made = transaction_text(TRANSACTION, "target", variables)
            made = made.replace("folder=/var/lib/gpunode/transactions", f"folder={self.folder}/state", 1)
            made = made.replace("proc=/proc\n", f"proc={self.machine.root}/proc\n", 1)
            (self.folder / "t.sh").write_text(script(made))
        return self._sh(self.folder / "t.sh", action)

    def boot(self) -> subprocess.CompletedProcess[str]:
        """Let the node lose what its GPUs lose at a boot, and run what gpunode's unit runs."""
        self.machine.path("/run/gpunode-lab/gpus.json").unlink(missing_ok=True)
        text = rendered("gpunode-mig-layout", functions=FUNCTIONS, name=NAME, cdi=str(self.cdi), mark="MARK")
        text = text.replace("proc=/proc;", f"proc={self.machine.root}/proc;")
        (self.folder / "boot.sh").write_text(text)
        return self.again()

    def again(self) -> subprocess.CompletedProcess[str]:
        """Run what gpunode's unit ran at the boot."""
        return self._sh(self.folder / "boot.sh", str(self.record))

    def _sh(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a script; its calls of nvidia-smi are answered here, between its steps.

        By no thread: where gevent has patched them, one that waits for a pipe would keep everything waiting. Both pipes
        stay open on both sides, so that nobody waits for a call that was killed.
        """
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        pipes = [os.open(self.folder / name, os.O_RDWR | os.O_NONBLOCK) for name in ("ask", "done")]
        printed = [(self.folder / name).open("w+") for name in ("stdout", "stderr")]
        process = subprocess.Popen(
            ["sh", *arguments], env={"PATH": path, "LAB": str(self.folder)}, stdin=subprocess.DEVNULL,
            stdout=printed[0], stderr=printed[1],
        )  # fmt: skip
        try:
            self._answer(process, *pipes)
        finally:
            process.kill()
            process.wait()
            for pipe in pipes:
                os.close(pipe)
        found = []
        for file in printed:
            with file:
                file.seek(0)
                found.append(file.read())
        return subprocess.CompletedProcess(process.args, process.returncode, *found)

    def _answer(self, process: subprocess.Popen[bytes], ask: int, done: int) -> None:
        deadline, asked = time.monotonic() + 120, b""
        while process.poll() is None:
            assert time.monotonic() < deadline, "the script did not end"
            if not select.select([ask], [], [], 0.02)[0]:
                continue
            asked += os.read(ask, 65536)
            while b"\n" in asked:
                line, _, asked = asked.partition(b"\n")
                try:
                    text, code = call(line.decode().split(), VERSION, self.machine)
                except Killed:
                    text, code = b"", -9
                with suppress(BlockingIOError):
                    # What a call that was killed did not read.
                    os.read(done, 65536)
                (self.folder / "answer").write_bytes(text)
                os.write(done, f"{'killed' if code == -9 else code}\n".encode())

    def smi(self, line: str) -> str:
        return call(line.split(), VERSION, self.machine)[0].decode()

    def devices(self, index: int = 0) -> list[str]:
        """Return `PROFILE UUID` of each MIG device of a GPU."""
        part = self.smi("-L").split(f"GPU {index}: ")[1].split("GPU ")[0]
        return [" ".join((row.split()[1], row.split()[-1].rstrip(")"))) for row in part.splitlines() if " MIG " in row]

    def layout(self, index: int = 0) -> list[str]:
        """Return PROFILE:START of each GPU instance."""
        rows = [row.split() for row in self.smi(f"mig -i {index} -lgi").splitlines() if " MIG " in row and ":" in row]
        return sorted(f"{row[3]}:{row[6].split(':')[0]}" for row in rows if row[1] == str(index))

    def mode(self, index: int = 0) -> str:
        return self.smi(f"-i {index} --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader").strip()

    def fault(self, **faults: int) -> None:
        self.machine.write_json("/etc/gpunode-lab/faults.json", faults)

    def hold(self, index: int = 0, unit: str = "dcgm.service", instance: str | None = None) -> None:
        """Let a process have a GPU open, and an instance (gi1, gi1/ci0), on a machine that is itself a container."""
        folder = self.machine.path("/proc/77")
        (folder / "fd").mkdir(parents=True)
        (folder / "fd" / "5").symlink_to(f"/dev/nvidia{index}")
        if instance is not None:
            access = self.machine.path(f"/proc/driver/nvidia/capabilities/gpu{index}/mig/{instance}/access")
            (folder / "fd" / "6").symlink_to(f"/dev/nvidia-caps/nvidia-cap{access.read_text().split()[1]}")
        (folder / "comm").write_text("trainer\n")
        (folder / "cgroup").write_text(f"1:name=systemd:/libpod-{'a' * 64}/system.slice/{unit}\n0::/\n")

    @property
    def cdi(self) -> Path:
        return self.folder / "nvidia.yaml"

    @property
    def record(self) -> Path:
        return self.folder / "mig" / "layout"

    @property
    def journal(self) -> dict[str, str]:
        found: dict[str, str] = json.loads((self.folder / "state" / "mig.json").read_text())
        return found

    @property
    def active(self) -> set[str]:
        return set((self.folder / "active").read_text().split())


def lab_with(folder: Path, hardware: dict[str, object]) -> Lab:
    machine = machine_with(folder / "root", hardware, VERSION)
    uuids = tuple(gpu.uuid for gpu in machine.gpus())
    for path in ("bin", "state"):
        (folder / path).mkdir()
    for pipe in _PIPES:
        os.mkfifo(folder / pipe)
    for name, text in (
        ("nvidia-smi", _SMI),
        ("systemctl", _SYSTEMCTL),
        ("modprobe", "#!/bin/sh\n"),
        ("nvidia-ctk", _CTK),
    ):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    (folder / "active").write_text("dcgm.service\ndcgm-exporter.service\nsshd.service\n")
    return Lab(folder, machine, uuids)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return lab_with(tmp_path, H100)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a folder where a lab has been brought to MIXED, and another that holds all of it, to begin from again."""
    folder, copy = tmp_path_factory.mktemp("mixed"), tmp_path_factory.mktemp("kept") / "copy"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.geteuid", lambda: 0)
        assert lab_with(folder, H100).run(MIXED).returncode == 0
    shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns(*_PIPES))
    return folder, copy


@pytest.fixture
def mixed(kept: tuple[Path, Path]) -> Lab:
    """Return a lab that has been brought to MIXED."""
    folder, copy = kept
    shutil.rmtree(folder)
    shutil.copytree(copy, folder, symlinks=True)
    for pipe in _PIPES:
        os.mkfifo(folder / pipe)
    return Lab(folder, Machine(folder / "root"), tuple(H100["uuids"]))


MIXED = "GPU-0 on 3g.40gb:4=3 2g.20gb:2=2 1g.10gb:0=1 1g.10gb:1=1"
WIDER = "GPU-0 on 3g.40gb:4=3 2g.20gb:0=2 2g.20gb:2=2"
BOTH = ["1g.10gb:0", "1g.10gb:1", "2g.20gb:2", "3g.40gb:4"]


def test_the_unit_of_the_boot_is_not_the_transaction_s_own() -> None:
    assert f"gpunode-{TRANSACTION.name}.service" != NAME


SCENARIOS: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "data" / "mig_transactions.yaml").read_text()
)


def _step(lab: Lab, step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Do what a step says: `run` with goals, `boot`, `again` (the boot's unit), `undo`, or something to the machine."""
    match next(iter(step.items())):
        case "run", goal:
            return lab.run(*goal, **step.get("with", {}))
        case "boot", _:
            return lab.boot()
        case "again", _:
            return lab.again()
        case "undo", _:
            return lab.run(action="undo")
        case "fault", faults:
            lab.fault(**faults)
        case "hold", holder:
            lab.hold(unit=holder["unit"], instance=_capability(lab, holder.get("instance")))
        case "write", files:
            for path, text in files.items():
                (lab.folder / path).write_text(text)
        case "remove", path:
            (lab.folder / path).unlink()
        case "smi", line:
            lab.smi(line)
        case "cut off", _:
            # All but the journal's last word was written.
            journal = lab.folder / "state" / "mig.json"
            journal.write_text(journal.read_text().replace('"done"', '"began"'))
    return subprocess.CompletedProcess([], 0, "", "")


def _capability(lab: Lab, place: str | None) -> str | None:
    """Return `gi1/ci0` of PROFILE:START/ci0, or `gi1` of PROFILE:START."""
    if place is None:
        return None
    at, slash, within = place.partition("/")
    rows = [row.split() for row in lab.smi("mig -i 0 -lgi").splitlines() if " MIG " in row and ":" in row]
    return next(f"gi{row[5]}{slash}{within}" for row in rows if f"{row[3]}:{row[6].split(':')[0]}" == at)


def _outcome(lab: Lab, done: subprocess.CompletedProcess[str], before: list[str], key: str, expected: Any) -> Any:
    """Return what a step's outcome of this name is; of texts the expected values that they name, or lack."""
    match key:
        case "rc":
            return done.returncode
        case "state":
            return lab.journal["state"]
        case "says" | "reason":
            text = done.stderr if key == "says" else lab.journal["reason"]
            return [each for each in expected if not unnamed(text, each)]
        case "lacks" | "reason lacks":
            return unnamed(done.stderr if key == "lacks" else lab.journal["reason"], *expected)
        case "layout" | "layout1":
            return lab.layout(int(key == "layout1"))
        case "mode" | "mode1":
            return lab.mode(int(key == "mode1"))
        case "devices":
            return sorted(each.split()[0] for each in lab.devices())
        case "kept":
            # By their UUIDs.
            return sorted(each.split()[0] for each in {*before} & {*lab.devices()})
        case "record":
            return lab.record.read_text() if lab.record.exists() else None
        case "active":
            return sorted(lab.active)
        case "stops":
            calls = (lab.folder / "calls").read_text().splitlines()
            return [line.removeprefix("stop ") for line in calls if line.startswith("stop ")]
        case "cdi":
            first, *more = lab.cdi.read_text().splitlines()
            assert not list(lab.folder.glob("*.gpunode-new"))
            return [first, len(more)]
        case "resets":
            log = lab.machine.path("/var/log/gpunode-lab.log").read_text()
            return [index for index in range(len(lab.uuids)) if f"--gpu-reset -i {index}" in log]
        case "lost":
            found = {path.name.removesuffix(".gpunode-lost"): path for path in lab.folder.rglob("*.gpunode-lost")}
            assert unnamed(done.stderr, *found.values()) == []
            return {name: path.read_text() for name, path in found.items()}
    raise ValueError(key)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_node_goes_through_what_is_done_to_it(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """By the table: each step, and the outcomes that are named behind it."""
    kind, steps = SCENARIOS[name]["lab"], SCENARIOS[name]["steps"]
    if kind == "mixed":
        lab: Lab = request.getfixturevalue("mixed")
    else:
        uuids = ["GPU-0", "GPU-1"][: int(kind[-1])] if kind != "h100" else []
        lab = lab_with(tmp_path, {**A100, "count": len(uuids), "uuids": uuids} if uuids else H100)
    for number, step in enumerate(steps):
        before = lab.devices() if "kept" in step else []
        done = _step(lab, step)
        names = [key for key in list(step)[1:] if key != "with"]
        found = {key: _outcome(lab, done, before, key, step[key]) for key in names}
        assert found == {key: step[key] for key in names}, f"step {number}: {done.stderr}"


def test_the_record_is_as_old_as_the_layout_whatever_else_is_written(mixed: Lab) -> None:
    os.utime(mixed.record, (1000, 1000))
    done = mixed.run(layout=MIXED, rest=MIXED, unit_text="bmV3")
    assert done.returncode == 0 and (mixed.folder / "unit").read_text() == "new", done.stderr
    assert mixed.record.stat().st_mtime == 1000
    # An instance that went by hand, and that comes back by another UUID.
    mixed.smi("mig -i 0 -dci")
    mixed.smi("mig -i 0 -dgi")
    assert mixed.run(MIXED).returncode == 0
    assert mixed.record.stat().st_mtime > 1000 and mixed.record.read_text() == f"{MIXED}\n"


def test_the_record_of_a_loss_of_power_has_the_former_layout_of_every_gpu(mixed: Lab) -> None:
    noted = mixed.folder / "noted"
    text = (mixed.folder / "bin" / "systemctl").read_text()
    copy = f'[ "$1" != daemon-reload ] || [ -e {noted} ] || cp {mixed.record} {noted}\n'
    (mixed.folder / "bin" / "systemctl").write_text(text.replace("#!/bin/sh\n", f"#!/bin/sh\n{copy}", 1))
    mixed.run(WIDER, rest="GPU-1 off")
    former, other = noted.read_text().splitlines()
    assert (set(former.split()), other) == (set(MIXED.split()), "GPU-1 off")


def test_what_a_gpu_makes_no_room_for_in_one_order_is_tried_in_another(lab: Lab, monkeypatch: Any) -> None:
    # A driver that takes the last free place and not the first, which its own list does not tell.
    first_free = GpuInstance.free_compute_starts
    monkeypatch.setattr(GpuInstance, "free_compute_starts", lambda self, size: first_free(self, size)[::-1])
    done = lab.run("GPU-0 on 7g.80gb:0=3,2,2")
    assert done.returncode == 0, done.stderr
    assert sorted(each.split()[0][:2] for each in lab.devices()) == ["2c", "2c", "3c"]


@pytest.mark.parametrize(
    ("fault", "moment"),
    [
        *(("mig_create_fails_at", number) for number in (1, 2, 3)),
        *(("smi_killed_at", number) for number in range(1, 9)),
    ],
)
def test_what_fails_at_any_step_leaves_the_former_layout(mixed: Lab, fault: str, moment: int) -> None:
    goal = "GPU-0 on 4g.40gb:0=4 2g.20gb:4=2 1g.10gb:6=1"
    mixed.fault(**{fault: moment})
    done = mixed.run(goal)
    assert done.returncode == 1 and "gpunode: " in done.stderr
    assert mixed.layout() == BOTH and mixed.journal["state"] in ("restored", "failed"), done.stderr
    assert mixed.record.read_text() == f"{MIXED}\n"


@pytest.mark.parametrize("file", ["unit", "script", "mig/layout"])
def test_a_file_that_somebody_changed_since_it_was_read_stops_the_change(mixed: Lab, file: str) -> None:
    path, journal = mixed.folder / file, mixed.journal
    path.write_text("by hand\n")
    read = {"unit_read": "none", "script_read": "none", "record_read": digest_of_text(f"{MIXED}\n")}
    done = mixed.run(WIDER, **read)
    assert done.returncode == 1
    assert unnamed(done.stderr, f"changed {path}") == []
    assert (path.read_text(), mixed.layout(), mixed.journal) == ("by hand\n", BOTH, journal)
    path.write_text(f"{MIXED}\n" if file == "mig/layout" else "")
    assert mixed.run(WIDER, **read).returncode == 0


def test_a_gpu_that_is_in_the_node_no_more_is_given_up_and_the_others_are_put_back(lab: Lab) -> None:
    other = MIXED.replace("GPU-0", "GPU-1")
    assert lab.run(MIXED, other).returncode == 0
    lab.fault(mig_create_fails_at=1)
    assert lab.run(WIDER, other.replace(" 1g.10gb:1=1", "")).returncode == 1
    journal = lab.folder / "state" / "mig.json"
    journal.write_text(journal.read_text().replace('"failed"', '"began"'))
    lab.fault()
    lab.smi("mig -i 0 -dci")
    lab.machine.write_json("/etc/gpunode-lab/hardware.json", {**H100, "count": 1})
    # As long as the driver has it, it may come back.
    assert lab.run(action="undo").returncode == 1 and unnamed(lab.journal["reason"], "missing") == []
    shutil.rmtree(next(lab.machine.path("/proc/driver/nvidia/gpus").glob("*40:00.0")))
    done = lab.run(action="undo")
    assert (done.returncode, lab.journal["state"]) == (0, "restored"), done.stderr
    assert unnamed(done.stderr, "GPU-1", "GPU-0") == ["GPU-0"]
    assert lab.layout() == BOTH and len(lab.devices()) == 4


@pytest.mark.tier3
def test_twenty_layouts_drawn_at_random_are_reached_one_after_the_other(lab: Lab) -> None:
    geometry = product_geometry("H100-80GB")
    assert geometry is not None
    chance = random.Random(7)
    there: tuple[Instance, ...] = ()
    assert lab.run("GPU-0 on").returncode == 0
    for counts in chance.sample(feasible(geometry), 20):
        wanted = wanted_instances({spot.name: spot.maximum for spot in geometry.spots}, layout_of(geometry, counts))
        assert not isinstance(wanted, Impossible)
        found = change(geometry, there, wanted)
        assert not isinstance(found, Impossible)
        there = (*found.kept, *found.created)
        done = lab.run(boot.line("GPU-0", True, there))
        assert done.returncode == 0, done.stderr
        assert lab.layout() == sorted(map(str, there))
