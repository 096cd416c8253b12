"""The transaction that changes kube-scheduler, run for real by sh; kubelet, scheduler, curl, clock are SIMULATED."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpunode.facts.cluster import Scheduler
from gpunode.kubernetes.gpushare.configuration import Extender
from gpunode.kubernetes.gpushare.decide import SchedulerState, parse_scheduler, wanted
from gpunode.operations import gpushare
from gpunode.operations.script import script
from gpunode.operations.transaction import transaction_text
from tests.support.messages import unnamed
from tests.support.scheduler_manifest import KUBEADM
from tests.support.simulated_host import Host, commands

EXTENDER = Extender("http://127.0.0.1:32766/gpushare-scheduler")
# Each moment that the transaction waits, the kubelet looks at the manifest and starts its command anew.
_KUBELET = """#!/bin/sh
cd "$LAB"
echo x >> sleeps; trap 'echo "$(wc -l < sleeps).25 1.00" > proc/uptime' EXIT
if [ -e deaf ] || cmp -s kube-scheduler.yaml seen; then exit 0; fi
cp kube-scheduler.yaml seen; rm -rf proc/*
option=$(sed -n 's/^ *- \\(--config=[^ ]*\\).*/\\1/p' kube-scheduler.yaml)
if [ -n "$option" ] && [ ! -e "${option#--config=}" ]; then echo "no such file" >> calls; exit 0; fi
if [ -n "$option" ] && [ -e broken ]; then
  folder=logs/kube-system_kube-scheduler-a/kube-scheduler; mkdir -p $folder
  printf 'no kind registered\\nE1122 07:45 reflector.go: Failed to watch\\n' > $folder/0.log
  exit 0
fi
echo x >> starts; number=$(($(wc -l < starts) + 100)); mkdir -p proc/$number
echo kube-scheduler > proc/$number/comm
printf 'kube-scheduler\\0%s\\0' "$option" > proc/$number/cmdline
"""
# A clock that somebody sets by hours each time it is looked at.
_DATE = '#!/bin/sh\necho x >> "$LAB/ticks"; echo $(($(wc -l < "$LAB/ticks") % 3 * 7200 + 1700000000))\n'
_CURL = '#!/bin/sh\n[ ! -e "$LAB/silent" ]\n'


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass
class Lab:
    """Hold a folder that stands for a control-plane host."""

    folder: Path

    @property
    def manifest(self) -> Path:
        return self.folder / "kube-scheduler.yaml"

    @property
    def running(self) -> list[str]:
        return [file.read_text() for file in self.folder.glob("proc/*/cmdline")]

    @property
    def journal(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "scheduler.json").read_text())
        return found

    def run(self, extender: Extender | None, verb: str = "change", read: str = "") -> subprocess.CompletedProcess[str]:
        before = self.manifest.read_text()
        asked = wanted(before, extender, None)
        own = str(self.folder / "own")
        text = asked.configuration.text if asked.configuration else ""
        path = asked.configuration.path.replace("/etc/kubernetes/gpunode", own) if asked.configuration else ""
        made = asked.manifest.replace("/etc/kubernetes/gpunode", own)
        variables = {
            "manifest": str(self.manifest), "own": own, "path": path, "option": f"--config={path}" if path else "",
            "text": base64.b64encode(text.encode()).decode(), "written": base64.b64encode(made.encode()).decode(),
            "manifest_read": read or _sha256(before), "path_read": "unread", "health": "https://127.0.0.1:10259/healthz",
            "timeout": "20", "proc": str(self.folder / "proc"), "logs": str(self.folder / "logs"),
        }  # fmt: skip
        if verb == "change":
            folder = "folder=/var/lib/gpunode/transactions"
            whole = transaction_text(gpushare._CHANGE, "target", variables).replace(folder, f"folder={self.folder}", 1)
            (self.folder / "scheduler.sh").write_text(script(whole))
        return subprocess.run(
            ["sh", self.folder / "scheduler.sh", verb], check=False, capture_output=True, text=True, timeout=60,
            env={"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "LAB": str(self.folder)},
        )  # fmt: skip


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    (tmp_path / "bin").mkdir()
    running = "#!/bin/sh\necho running\n"
    programs = {"sleep": _KUBELET, "date": _DATE, "curl": _CURL, "systemctl": running}
    for name, text in programs.items():
        program = tmp_path / "bin" / name
        program.write_text(text)
        program.chmod(0o755)
    found = Lab(tmp_path)
    found.manifest.write_text(KUBEADM)
    found.manifest.chmod(0o640)
    (tmp_path / "proc").mkdir()
    subprocess.run([tmp_path / "bin" / "sleep"], env={**os.environ, "LAB": str(tmp_path)}, check=True)
    return found


@pytest.mark.real
def test_the_scheduler_runs_by_its_new_configuration(lab: Lab) -> None:
    done = lab.run(EXTENDER)
    assert done.returncode == 0, done.stderr
    (words,) = lab.running
    assert "--config=" in words and lab.journal["state"] == "done"
    assert lab.manifest.stat().st_mode & 0o777 == 0o640
    assert sorted(each.name for each in lab.folder.glob(".*")) == []
    (configuration,) = (lab.folder / "own").iterdir()
    assert "extenders:" in configuration.read_text()


@pytest.mark.real
@pytest.mark.parametrize(
    ("fault", "state", "said"),
    [
        ("broken", "failed", "no kind registered"),
        # Neither the old scheduler's answer nor a kubelet that reads another folder is the target's fault.
        ("silent", "restored", ""),
        ("deaf", "restored", "staticPodPath"),
    ],
)
def test_a_scheduler_that_is_not_well_gives_way_to_the_old_one(lab: Lab, fault: str, state: str, said: str) -> None:
    (lab.folder / fault).touch()
    done = lab.run(EXTENDER)
    assert done.returncode != 0 and said in done.stderr
    assert lab.manifest.read_text() == KUBEADM and lab.running == ["kube-scheduler\0\0"]
    assert lab.journal["state"] == state and (fault != "broken" or said in lab.journal["reason"])
    assert not list((lab.folder / "own").iterdir())


@pytest.mark.real
@pytest.mark.parametrize("fault", ["changed", "dead"])
def test_what_is_not_as_it_was_read_is_left_alone(lab: Lab, fault: str) -> None:
    if fault == "dead":
        for file in lab.folder.glob("proc/*/*"):
            file.unlink()
    done = lab.run(EXTENDER, read="0" * 64 if fault == "changed" else "")
    assert done.returncode != 0 and lab.manifest.read_text() == KUBEADM
    assert not (lab.folder / "own").exists()
    if fault == "dead":
        assert lab.journal["state"] == "restored"
    else:
        assert unnamed(done.stderr, f"changed {lab.manifest}") == []
        assert not (lab.folder / "scheduler.json").exists(), "nothing began"


@pytest.mark.real
def test_the_scheduler_is_taken_back_to_what_it_was(lab: Lab) -> None:
    lab.run(EXTENDER)
    # As the fact and the operation see it: in the folder that gpunode has on a host.
    patched = lab.manifest.read_text()
    assert lab.run(None).returncode == 0
    assert lab.manifest.read_text() == KUBEADM != patched and lab.running == ["kube-scheduler\0\0"]
    assert not list((lab.folder / "own").iterdir())


@pytest.mark.real
def test_an_interrupted_change_is_undone_and_a_manifest_of_somebody_s_is_not(lab: Lab) -> None:
    lab.run(EXTENDER)
    assert lab.run(EXTENDER, verb="undo").returncode == 0
    assert lab.manifest.read_text() == KUBEADM and lab.running == ["kube-scheduler\0\0"]
    lab.run(EXTENDER)
    lab.manifest.write_text("# of an admin's\n" + KUBEADM)
    done = lab.run(EXTENDER, verb="undo")
    assert unnamed(done.stderr, "somebody else") == []
    assert lab.manifest.read_text().startswith("# of an admin's")
    lost = lab.folder / ".kube-scheduler.yaml.gpunode-lost"
    assert unnamed(done.stderr, f"kept as {lost}") == []
    assert lost.read_text() == lab.manifest.read_text()


@pytest.mark.real
def test_a_configuration_that_somebody_wrote_after_the_change_was_cut_off_is_kept_and_named(lab: Lab) -> None:
    lab.run(EXTENDER)
    (configuration,) = (lab.folder / "own").iterdir()
    configuration.write_text("# of an admin's\n")
    done = lab.run(EXTENDER, verb="undo")
    assert done.returncode == 0 and lab.manifest.read_text() == KUBEADM
    lost = configuration.with_name(f".{configuration.name}.gpunode-lost")
    assert unnamed(done.stderr, f"kept as {lost}") == [] and lost.read_text() == "# of an admin's\n"
    assert not configuration.exists()


@pytest.mark.real
def test_what_was_cut_off_before_the_manifest_changed_is_cleared_and_nobody_is_waited_for(lab: Lab) -> None:
    lab.run(EXTENDER)
    lab.manifest.write_text(KUBEADM)
    draft = lab.folder / ".kube-scheduler.yaml.gpunode-new"
    draft.write_text("half")
    (lab.folder / "silent").touch()
    done = lab.run(EXTENDER, verb="undo")
    assert (done.returncode, done.stderr.count("no scheduler")) == (0, 0), done.stderr
    assert not draft.exists() and not list((lab.folder / "own").iterdir())


def _state(extender: Extender | None = None, by: str = "") -> SchedulerState:
    asked = wanted(KUBEADM, extender, None)
    made = asked.configuration
    return SchedulerState(asked.manifest, {made.path: _sha256(made.text)} if made else {}, (("kube-scheduler", by),))


def _run(host: Host, extender: Extender | None) -> list[str]:
    return commands(
        gpushare.extended, host, extender=extender, manifest="/etc/m.yaml", version=None, timeout=60
    )  # fmt: skip


_MADE = wanted(KUBEADM, EXTENDER, None)
_PATH = _MADE.configuration.path if _MADE.configuration else ""


@pytest.mark.pure
@pytest.mark.parametrize(
    ("extender", "state", "changes"),
    [
        (EXTENDER, _state(EXTENDER, f"--config={_PATH}"), 0),
        (EXTENDER, _state(EXTENDER, "--leader-elect"), 1),
        (EXTENDER, SchedulerState(_MADE.manifest, {_PATH: "other"}, ()), 1),
        (None, SchedulerState(None, {}, ()), 0),
        (None, _state(), 0),
        (None, _state(EXTENDER), 1),
        # One that gpunode never changed is not judged.
        (None, SchedulerState("{kind: Pod}", {}, ()), 0),
        (None, SchedulerState("no: [manifest", {}, ()), 0),
        (None, SchedulerState("kind: Pod\nspec: {containers: []}\n", {}, ()), 0),
        # No static pod, or none that can be changed.
        (EXTENDER, SchedulerState(None, {}, ()), None),
        (EXTENDER, SchedulerState("{kind: Pod}", {}, ()), None),
        (EXTENDER, SchedulerState("no: [manifest", {}, ()), None),
        (EXTENDER, SchedulerState("kind: Pod\nspec: {containers: []}\n", {}, ()), None),
    ],
)
def test_a_scheduler_is_left_alone_changed_or_refused(
    host: Host, extender: Extender | None, state: SchedulerState, changes: int | None
) -> None:
    host.readings[Scheduler] = state
    assert len(_run(host, extender)) == (changes or 0)
    assert (bool(host.noops), bool(host.refusals)) == (changes == 0, changes is None)


@pytest.mark.real
def test_the_probe_reads_manifest_files_and_processes(run_shell: Any, tmp_path: Path) -> None:
    manifest = tmp_path / "it's.yaml"
    manifest.write_text(KUBEADM)
    program = tmp_path / "kube-scheduler"
    program.write_text("#!/bin/sh\nsleep 30 & wait\n")
    program.chmod(0o755)
    process = subprocess.Popen([program, "--config=/a b.yaml"])
    try:
        code, lines = run_shell(str(Scheduler().command(str(manifest))))
    finally:
        process.kill()
        process.wait()
    found = parse_scheduler([line for line in lines if line != "gpunode:end"])
    assert code == 0 and found.manifest == KUBEADM and found.runs_by("/a b.yaml")
