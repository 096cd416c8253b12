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

from gpunode.base.template import rendered
from gpunode.components.mig import record
from gpunode.components.mig.boot import NAME
from gpunode.components.mig.change import Instance, change
from gpunode.components.mig.files import FUNCTIONS
from gpunode.components.mig.geometry import product_geometry
from gpunode.components.mig.goal import wanted_instances
from gpunode.components.mig.layouts import feasible
from gpunode.components.mig.placement import Impossible, layout_of
from gpunode.lab.hardware.simulated.machine import Machine
from gpunode.lab.hardware.simulated.smi.main import call
from gpunode.lab.hardware.simulated.smi.mig.instances import GpuInstance
from gpunode.operations.keeping import digest_of_text
from gpunode.operations.mig_transaction import TRANSACTION
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


def test_a_gpu_is_turned_on_and_divided_and_the_other_is_left_alone(lab: Lab) -> None:
    done = lab.run(MIXED)
    assert (done.returncode, lab.journal["state"]) == (0, "done"), done.stderr
    assert lab.layout() == BOTH and len(lab.devices()) == 4
    assert lab.mode(1) == "Disabled, Disabled"
    assert lab.record.read_text() == f"{MIXED}\n"


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


def test_a_record_of_no_gpu_is_written(lab: Lab) -> None:
    assert lab.run().returncode == 0
    assert lab.record.read_text() == "\n"


def test_the_record_of_a_loss_of_power_has_the_former_layout_of_every_gpu(mixed: Lab) -> None:
    noted = mixed.folder / "noted"
    text = (mixed.folder / "bin" / "systemctl").read_text()
    copy = f'[ "$1" != daemon-reload ] || [ -e {noted} ] || cp {mixed.record} {noted}\n'
    (mixed.folder / "bin" / "systemctl").write_text(text.replace("#!/bin/sh\n", f"#!/bin/sh\n{copy}", 1))
    mixed.run(WIDER, rest="GPU-1 off")
    former, other = noted.read_text().splitlines()
    assert (set(former.split()), other) == (set(MIXED.split()), "GPU-1 off")


def test_what_fits_keeps_its_uuid(mixed: Lab) -> None:
    before = set(mixed.devices())
    done = mixed.run(WIDER)
    assert done.returncode == 0, done.stderr
    assert mixed.layout() == ["2g.20gb:0", "2g.20gb:2", "3g.40gb:4"]
    kept = before & set(mixed.devices())
    assert sorted(each.split()[0] for each in kept) == ["2g.20gb", "3g.40gb"]


def test_compute_instances_of_other_sizes_are_created_and_read_back(lab: Lab) -> None:
    goal = "GPU-0 on 3g.40gb:4=2,1 3g.40gb:0=1,1,1"
    assert lab.run(goal).returncode == 0
    assert sorted(each.split()[0] for each in lab.devices()) == ["1c.3g.40gb"] * 4 + ["2c.3g.40gb"]
    before = lab.devices()
    assert lab.run(goal).returncode == 0 and lab.devices() == before


def test_compute_instances_are_created_in_an_order_in_which_each_finds_its_place(lab: Lab) -> None:
    # Three slices stand at 0 or 4, two at 0, 2 or 4: with the three first, at 0, the others have one place left.
    goal = "GPU-0 on 7g.80gb:0=3,2,2"
    done = lab.run(goal)
    assert done.returncode == 0, done.stderr
    assert sorted(each.split()[0] for each in lab.devices()) == ["2c.7g.80gb", "2c.7g.80gb", "3c.7g.80gb"]
    before = lab.devices()
    assert lab.run(goal).returncode == 0 and lab.devices() == before
    assert lab.boot().returncode == 0 and len(lab.devices()) == 3


def test_what_a_gpu_makes_no_room_for_in_one_order_is_tried_in_another(lab: Lab, monkeypatch: Any) -> None:
    # A driver that takes the last free place and not the first, which its own list does not tell.
    first_free = GpuInstance.free_compute_starts
    monkeypatch.setattr(GpuInstance, "free_compute_starts", lambda self, size: first_free(self, size)[::-1])
    done = lab.run("GPU-0 on 7g.80gb:0=3,2,2")
    assert done.returncode == 0, done.stderr
    assert sorted(each.split()[0][:2] for each in lab.devices()) == ["2c", "2c", "3c"]


def test_what_nobody_asked_for_goes_and_off_is_off(mixed: Lab) -> None:
    assert mixed.run("GPU-0 off").returncode == 0
    assert mixed.mode() == "Disabled, Disabled"


def test_a_holder_that_no_setting_lists_is_named_and_nothing_is_changed(lab: Lab) -> None:
    lab.hold(unit="training.service")
    done = lab.run(MIXED)
    assert (done.returncode, lab.journal["state"]) == (1, "restored")
    assert unnamed(done.stderr, "GPU 0", "process 77 (trainer)", "of root", "unit training.service") == []
    assert lab.mode() == "Disabled, Disabled" and "stop training.service" not in (lab.folder / "calls").read_text()


def _number(lab: Lab, place: str) -> str:
    """Return `gi` and the id of the GPU instance at PROFILE:START."""
    profile, start = place.split(":")
    rows = [row.split() for row in lab.smi("mig -i 0 -lgi").splitlines() if " MIG " in row and ":" in row]
    return next(f"gi{row[5]}" for row in rows if row[3] == profile and row[6].split(":")[0] == start)


@pytest.mark.parametrize("within", ["", "/ci0"])
def test_an_instance_in_use_that_stays_does_not_matter_and_keeps_its_process(mixed: Lab, within: str) -> None:
    mixed.hold(unit="training.service", instance=f"{_number(mixed, '3g.40gb:4')}{within}")
    before = mixed.devices()
    done = mixed.run(WIDER)
    assert done.returncode == 0, done.stderr
    assert mixed.layout() == ["2g.20gb:0", "2g.20gb:2", "3g.40gb:4"]
    assert next(each for each in before if each.startswith("3g.40gb")) in mixed.devices()
    assert "stop" not in (mixed.folder / "calls").read_text()


@pytest.mark.parametrize("within", ["", "/ci0"])
@pytest.mark.parametrize(
    ("unit", "said"),
    [
        ("training.service", "GPU 0 is in use by process 77 (trainer) of root, unit training.service"),
        (
            f"docker-{'0123456789ab' + 'c' * 52}.scope",
            "GPU 0 is in use by process 77 (trainer) of root, container 0123456789ab, unit docker-0123456789abc",
        ),
    ],
)
def test_who_uses_an_instance_that_is_to_go_is_named_and_nothing_is_changed(
    mixed: Lab, unit: str, said: str, within: str
) -> None:
    mixed.hold(unit=unit, instance=f"{_number(mixed, '1g.10gb:1')}{within}")
    before = mixed.devices()
    done = mixed.run(WIDER)
    assert (done.returncode, mixed.journal["state"]) == (1, "restored") and said in done.stderr, done.stderr
    assert mixed.devices() == before


def test_a_listed_unit_that_uses_an_instance_which_is_to_go_is_stopped_and_comes_back(mixed: Lab) -> None:
    mixed.hold(instance=_number(mixed, "1g.10gb:1"))
    assert mixed.run(WIDER).returncode == 0
    assert mixed.layout() == ["2g.20gb:0", "2g.20gb:2", "3g.40gb:4"]
    assert mixed.active == {"dcgm.service", "dcgm-exporter.service", "sshd.service"}


def test_gpunode_s_own_cdi_specification_is_made_anew_with_the_instances_and_nobody_else_s(lab: Lab) -> None:
    lab.cdi.write_text("of somebody else\n")
    assert lab.run(MIXED).returncode == 0 and lab.cdi.read_text() == "of somebody else\n"
    lab.cdi.write_text("MARK\nkind: nvidia.com/gpu\n")
    assert lab.run(WIDER).returncode == 0
    first, *rest = lab.cdi.read_text().splitlines()
    assert first == "MARK" and len(rest) == 3
    lab.cdi.write_text("MARK\n")
    assert lab.boot().returncode == 0 and len(lab.cdi.read_text().splitlines()) == 4


def test_a_cdi_specification_that_somebody_puts_there_as_gpunode_s_is_made_anew_stays(lab: Lab) -> None:
    lab.cdi.write_text("MARK\nkind: nvidia.com/gpu\n")
    program = lab.folder / "bin/nvidia-ctk"
    program.write_text(f"#!/bin/sh\necho 'of somebody else' > {lab.cdi}\necho 'kind: nvidia.com/gpu'\n")
    assert lab.run(MIXED).returncode == 0 and lab.cdi.read_text() == "of somebody else\n"
    assert not list(lab.cdi.parent.glob("*.gpunode-new"))


def test_a_container_that_holds_the_gpu_is_named(lab: Lab) -> None:
    lab.hold(unit=f"docker-{'0123456789ab' + 'c' * 52}.scope")
    assert "of root, container 0123456789ab, unit docker-0123456789abc" in lab.run(MIXED).stderr


def test_a_listed_unit_that_holds_the_gpu_is_stopped_and_comes_back_with_what_went_along(lab: Lab) -> None:
    lab.hold()
    done = lab.run(MIXED)
    assert done.returncode == 0, done.stderr
    assert lab.layout() == BOTH and lab.active == {"dcgm.service", "dcgm-exporter.service", "sshd.service"}


def test_a_listed_unit_comes_back_where_the_change_fails(lab: Lab) -> None:
    lab.hold()
    lab.fault(mig_create_fails=0)
    done = lab.run(MIXED)
    assert (done.returncode, lab.journal["state"]) == (1, "failed"), done.stderr
    assert lab.active == {"dcgm.service", "dcgm-exporter.service", "sshd.service"}
    assert lab.mode() == "Disabled, Disabled" and not lab.record.exists()


def test_a_unit_that_does_not_start_again_is_told_and_tried_again_by_the_next_run(lab: Lab) -> None:
    lab.hold()
    (lab.folder / "dead").touch()
    done = lab.run(MIXED)
    assert (done.returncode, lab.journal["state"]) == (1, "began")
    assert lab.journal["reason"].endswith(": dcgm.service dcgm-exporter.service")
    (lab.folder / "dead").unlink()
    assert lab.run(action="undo").returncode == 0
    assert lab.active == {"dcgm.service", "dcgm-exporter.service", "sshd.service"}


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


def test_a_gpu_that_is_lost_on_the_way_is_told_with_what_is_missing_and_the_next_run_heals_it(mixed: Lab) -> None:
    mixed.fault(mig_create_fails_at=1)
    assert mixed.run(WIDER).returncode == 1
    mixed.fault(lost_gpu=0)
    done = mixed.run(action="undo")
    assert done.returncode == 1 and mixed.journal["state"] == "began"
    assert unnamed(mixed.journal["reason"], "GPU-0", "missing its answer") == []
    mixed.fault()
    assert mixed.run(action="undo").returncode == 0
    assert mixed.layout() == BOTH and mixed.journal["state"] == "restored"


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


def test_what_somebody_wrote_after_the_change_was_cut_off_is_kept_and_named(mixed: Lab) -> None:
    assert mixed.run(WIDER, unit_text="bmV3", script_text="bmV3").returncode == 0
    journal = mixed.folder / "state" / "mig.json"
    journal.write_text(journal.read_text().replace('"done"', '"began"'))
    (mixed.folder / "unit").write_text("by hand\n")
    mixed.record.write_text("by hand, too\n")
    done = mixed.run(action="undo")
    assert done.returncode == 0, done.stderr
    assert mixed.layout() == BOTH and mixed.record.read_text() == f"{MIXED}\n"
    lost = {path.name: path.read_text() for path in mixed.folder.rglob("*.gpunode-lost")}
    assert lost == {"unit.gpunode-lost": "by hand\n", "layout.gpunode-lost": "by hand, too\n"}
    assert all(name in done.stderr for name in lost) and "script.gpunode-lost" not in done.stderr


OTHER = "GPU-1 on 4g.40gb:0=4 1g.10gb:6=1"


@pytest.mark.parametrize("lost", [0, 1])
def test_one_lost_gpu_leaves_the_others_with_their_layout_after_a_boot(lab: Lab, lost: int) -> None:
    assert lab.run(MIXED, OTHER).returncode == 0
    lab.fault(lost_gpu=lost)
    done = lab.boot()
    assert done.returncode == 1 and f"GPU GPU-{lost} does not answer" in done.stderr, done.stderr
    lab.fault()
    assert lab.layout(1 - lost) == (["1g.10gb:6", "4g.40gb:0"] if lost == 0 else BOTH)
    assert lab.mode(lost) == "Disabled, Disabled"


@pytest.mark.parametrize("lost", [0, 1])
def test_a_healthy_gpu_is_rolled_back_while_another_is_lost(lab: Lab, lost: int) -> None:
    healthy = 1 - lost
    assert lab.run(MIXED, OTHER).returncode == 0
    lab.fault(mig_create_fails=healthy)
    assert lab.run(WIDER, "GPU-1 on 4g.40gb:0=4 1g.10gb:5=1").returncode == 1
    assert lab.layout(healthy) == (["4g.40gb:0"] if healthy else ["2g.20gb:2", "3g.40gb:4"])
    lab.fault(lost_gpu=lost)
    assert lab.run(action="undo").returncode == 1
    reason = lab.journal["reason"]
    assert unnamed(reason, f"GPU-{lost}", "missing its answer") == [] and f"GPU GPU-{healthy} " not in reason
    lab.fault()
    assert lab.layout(healthy) == (["1g.10gb:6", "4g.40gb:0"] if healthy else BOTH)


def test_what_cannot_be_put_back_is_named_instance_by_instance(mixed: Lab) -> None:
    mixed.fault(mig_create_fails=0)
    done = mixed.run(WIDER)
    assert done.returncode == 1 and mixed.journal["state"] == "began"
    assert "missing 1g.10gb:0 1g.10gb:1 (" in mixed.journal["reason"] and "1g.10gb:0 1g.10gb:1" in done.stderr
    mixed.fault()
    assert mixed.run(action="undo").returncode == 0 and mixed.layout() == BOTH


def test_a_loss_of_power_after_the_last_step_leaves_the_new_layout_with_its_uuids(mixed: Lab) -> None:
    assert mixed.run(WIDER).returncode == 0
    journal = mixed.folder / "state" / "mig.json"
    # All but the journal's last word was written.
    journal.write_text(journal.read_text().replace('"done"', '"began"'))
    assert mixed.boot().returncode == 0
    before = mixed.devices()
    done = mixed.run(action="undo")
    assert (done.returncode, mixed.journal["state"]) == (0, "restored") and "was complete, and stays" in done.stderr
    assert mixed.layout() == ["2g.20gb:0", "2g.20gb:2", "3g.40gb:4"] and mixed.devices() == before
    assert mixed.record.read_text() == f"{WIDER}\n"


@pytest.mark.parametrize("layout", ["GPU-0 on 3g.40gb:4=3 2g.20gb:2=2", "GPU-0 on 3g.40gb:4=2,1 3g.40gb:0=1,1,1"])
@pytest.mark.parametrize("moment", [1, 2])
def test_the_unit_completes_a_gpu_instance_that_has_not_all_its_compute_instances(
    lab: Lab, layout: str, moment: int
) -> None:
    assert lab.run(layout).returncode == 0
    wanted = sorted(each.split()[0] for each in lab.devices())
    lab.fault(mig_compute_fails_at=moment)
    assert lab.boot().returncode == 1
    lab.fault()
    there = lab.devices()
    assert len(there) < len(wanted)
    again = lab._sh(lab.folder / "boot.sh", str(lab.record))
    assert again.returncode == 0, again.stderr
    assert sorted(each.split()[0] for each in lab.devices()) == wanted and set(there) <= set(lab.devices())


def test_other_compute_instances_than_are_wanted_are_told_and_left_where_nothing_may_be_destroyed(lab: Lab) -> None:
    assert lab.run("GPU-0 on 3g.40gb:4=3").returncode == 0
    assert lab.boot().returncode == 0
    before = lab.devices()
    lab.record.write_text("GPU-0 on 3g.40gb:4=2,1\n")
    done = lab._sh(lab.folder / "boot.sh", str(lab.record))
    assert done.returncode == 1 and unnamed(done.stderr, "3g.40gb:4", "instances 3, and 2,1") == []
    assert lab.devices() == before


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
    assert lab.run(action="undo").returncode == 1 and "missing its answer" in lab.journal["reason"]
    shutil.rmtree(next(lab.machine.path("/proc/driver/nvidia/gpus").glob("*40:00.0")))
    done = lab.run(action="undo")
    assert (done.returncode, lab.journal["state"]) == (0, "restored"), done.stderr
    assert "caution: GPU GPU-1 " in done.stderr and "GPU-0" not in done.stderr
    assert lab.layout() == BOTH and len(lab.devices()) == 4


def test_an_a100_whose_mode_waits_is_reset_and_no_other_gpu_is(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, {**A100, "count": 2, "uuids": ["GPU-0", "GPU-1"]})
    lab.fault(mig_pending=0)
    done = lab.run("GPU-0 on 3g.20gb:4=3")
    assert done.returncode == 0, done.stderr
    assert lab.layout() == ["3g.20gb:4"]
    log = lab.machine.path("/var/log/gpunode-lab.log").read_text()
    assert "--gpu-reset -i 0" in log and "--gpu-reset -i 1" not in log


def test_a_refused_reset_takes_the_pending_mode_back(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, {**A100, "count": 2, "uuids": ["GPU-0", "GPU-1"]})
    lab.machine.write_json("/etc/gpunode-lab/faults.json", {"mig_pending": 0, "reset_refused": 0})
    done = lab.run("GPU-0 on 3g.20gb:4=3")
    assert done.returncode == 1 and "GPU 0 refuses a reset" in done.stderr, done.stderr
    assert lab.mode() == "Disabled, Disabled" and lab.journal["state"] == "failed"


def test_a_reset_that_fails_since_somebody_uses_the_gpu_is_tried_again_by_the_next_run(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, {**A100, "count": 1, "uuids": ["GPU-0"]})
    lab.fault(busy=0)
    done = lab.run("GPU-0 on 3g.20gb:4=3")
    assert done.returncode == 1 and "GPU 0 refuses a reset (nvidia-smi: exit code 19" in done.stderr, done.stderr
    assert lab.journal["state"] == "restored" and "until" not in done.stderr
    assert lab.mode() == "Disabled, Disabled"
    lab.fault()
    assert lab.run("GPU-0 on 3g.20gb:4=3").returncode == 0 and lab.layout() == ["3g.20gb:4"]


def test_where_a_boot_is_allowed_a_mode_that_waits_is_left_for_it_with_the_layout(tmp_path: Path) -> None:
    lab = lab_with(tmp_path, {**A100, "count": 1, "uuids": ["GPU-0"]})
    lab.machine.write_json("/etc/gpunode-lab/faults.json", {"mig_pending": 0, "reset_refused": 0})
    done = lab.run("GPU-0 on 3g.20gb:4=3", boot="yes")
    assert done.returncode == 0 and "next boot" in done.stderr
    assert lab.mode() == "Disabled, Enabled"
    lab.fault()
    assert lab.boot().returncode == 0
    assert lab.layout() == ["3g.20gb:4"]


def test_the_layout_is_back_after_a_boot_and_the_unit_may_run_again(mixed: Lab) -> None:
    done = mixed.boot()
    assert done.returncode == 0 and mixed.layout() == BOTH, done.stderr
    before = mixed.devices()
    assert mixed._sh(mixed.folder / "boot.sh", str(mixed.record)).returncode == 0
    assert mixed.devices() == before
    # What somebody created by hand is left alone, too.
    mixed.record.write_text("GPU-0 on 3g.40gb:4=3\n")
    assert mixed._sh(mixed.folder / "boot.sh", str(mixed.record)).returncode == 0 and mixed.layout() == BOTH


def test_a_boot_in_the_middle_of_a_first_change_brings_back_what_was_made_by_hand(lab: Lab) -> None:
    for line in ("-i 0 -mig 1", "mig -i 0 -cgi 14:2,19:0 -C"):
        lab.smi(line)
    lab.fault(mig_create_fails=0)
    assert lab.run(MIXED.replace("1g.10gb:0=1 ", "")).returncode == 1
    assert lab.layout() == ["2g.20gb:2"]
    lab.fault()
    assert lab.boot().returncode == 0
    assert lab.layout() == ["1g.10gb:0", "2g.20gb:2"]


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
        done = lab.run(record.line("GPU-0", True, there))
        assert done.returncode == 0, done.stderr
        assert lab.layout() == sorted(map(str, there))
