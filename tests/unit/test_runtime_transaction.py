"""The one transaction of container runtimes, run for real by sh; systemctl, containerd and ctr are SIMULATED."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpunode.base.toml_edit import plain
from gpunode.components.runtimes.containerd.change import needed_change
from gpunode.components.runtimes.containerd.editor import render
from gpunode.components.runtimes.runtime import Runtimes
from gpunode.operations import containerd
from gpunode.operations.keeping import digest_of_text
from gpunode.operations.runtime import check_command, transaction
from gpunode.operations.script import encoded, script
from gpunode.operations.transaction import transaction_text
from tests.support.containerd import state
from tests.support.messages import unnamed
from tests.support.runtime_transaction import _SLEEP, _STAT

pytestmark = pytest.mark.real
_SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$LAB/calls"
case "$1" in
  is-active)
    state=active; [ ! -e "$LAB/dead" ] || state=failed
    [ "$2" = --quiet ] || echo $state; [ $state = active ];;
  is-system-running) echo running;;
  show) cat "$LAB/process";;
  restart)
    echo "MainPID=$(wc -l < "$LAB/calls")" > "$LAB/process"; rm -f "$LAB/dead"
    if [ -e "$LAB/ends" ] && grep -q nvidia "$LAB/config.toml"; then touch "$LAB/ending"; fi;;
esac
"""
# Half of what its `config dump` is: the file as it is, without comments, which containerd drops. As a daemon it
# ends with what containerd 1.6.20 says of a required CRI plugin whose services are disabled, or with another reason.
_CONTAINERD = """#!/bin/sh
[ ! -e "$LAB/refuses" ] || exit 1
case "$*" in *dump) exec grep -v "^#" "$2";; esac
cp "$2" "$LAB/trial"
said='failed to get services: service "tasks-service" not found'; [ ! -e "$LAB/said" ] || said=$(cat "$LAB/said")
echo "containerd: load required plugin io.containerd.grpc.v1.cri: $said" >&2; exit 1
"""
# The plugin that does not come up with NVIDIA's runtime, where that is the fault.
_CTR = """#!/bin/sh
state=ok; [ ! -e "$LAB/never" ] || state=error
if [ -e "$LAB/fails" ] && grep -q nvidia "$LAB/config.toml"; then state=error; fi
case "$*" in *-d*) echo "    Message:   invalid plugin config: x"; exit;; esac
echo "io.containerd.grpc.v1 cri linux/amd64 $state"
"""
# A clock that somebody sets by hours each time it is looked at, and a node that is five seconds older after each sleep.
_DATE = '#!/bin/sh\necho x >> "$LAB/ticks"; echo $(($(wc -l < "$LAB/ticks") % 3 * 7200 + 1700000000))\n'
RESTART = "restart containerd.service"


@dataclass
class Lab:
    """Hold a folder that stands for a node."""

    folder: Path

    @property
    def config(self) -> Path:
        return self.folder / "config.toml"

    def run(
        self,
        text: str | None,
        loaded: str = "",
        needs: str = "",
        act: str = "restart",
        was: str = "unread",
        removes: Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Let the transaction write a file, if any, and remove another."""
        gone = f"\n{removes} - unread" if removes else ""
        new = encoded(text or "")
        variables = {
            "program": "containerd", "unit": "containerd.service", "plugin": "its CRI plugin",
            "notes": str(self.folder / "run"), "loaded": loaded, "needs": needs, "act": act,
            "files": f"{self.config} {new} {was}{gone}" if text is not None else "",
            "staged": new,
            "expected": "containerd.default_runtime_name=nvidia\ncontainerd.runtimes.nvidia.options.SystemdCgroup=true",
            "proc": str(self.folder), "config": str(self.config), "binary": str(self.folder / "bin" / "containerd"),
        }  # fmt: skip
        made = transaction_text(transaction(containerd.PROGRAM), "target", variables)
        made = made.replace("folder=/var/lib/gpunode/transactions", f"folder={self.folder}", 1)
        (self.folder / "t.sh").write_text(script(made))
        return self._run("change")

    def undo(self) -> subprocess.CompletedProcess[str]:
        """Let its own script undo it, as a later run does."""
        return self._run("undo")

    def _run(self, verb: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            ["sh", self.folder / "t.sh", verb], env={"PATH": path, "LAB": str(self.folder)}, check=False,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    @property
    def restarts(self) -> int:
        calls = self.folder / "calls"
        return calls.read_text().splitlines().count(RESTART) if calls.exists() else 0

    @property
    def journal(self) -> str:
        journal = json.loads((self.folder / "containerd.json").read_text())
        assert journal["target"] == "target", "what a run looks for at its end"
        return str(journal["state"])

    @property
    def noted(self) -> str | None:
        path = self.folder / "run" / "containerd.loaded"
        return path.read_text().strip() if path.exists() else None

    def digest(self) -> str:
        lines = [line for line in self.config.read_text().splitlines(keepends=True) if not line.startswith("#")]
        done = subprocess.run(["sha256sum"], input="".join(lines), capture_output=True, text=True, check=True)
        return done.stdout.split()[0]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    (tmp_path / "bin").mkdir()
    programs = {
        "systemctl": _SYSTEMCTL,
        "containerd": _CONTAINERD,
        "ctr": _CTR,
        "sleep": _SLEEP,
        "date": _DATE,
        "stat": _STAT,
    }
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "process").write_text("MainPID=1\n")
    (tmp_path / "uptime").write_text("100.25 1.00\n")
    found = Lab(tmp_path)
    found.config.write_text("# old\nversion = 2\n")
    return found


OLD = "# old\nversion = 2\n"
RIGHT = render(OLD, "1.7.24", Runtimes())


def test_a_change_restarts_once_and_notes_what_the_daemon_runs_by(lab: Lab) -> None:
    done = lab.run(RIGHT, loaded=lab.digest())
    assert (done.returncode, lab.journal, lab.restarts) == (0, "done", 1), done.stderr
    assert lab.config.read_text() == RIGHT
    assert lab.noted == lab.digest()
    backup = Path(f"{lab.folder}/containerd/files{lab.config}")
    assert backup.read_text() == OLD


def test_a_file_that_says_the_same_in_other_words_is_written_and_restarts_nothing(lab: Lab) -> None:
    lab.config.write_text(RIGHT)
    done = lab.run(f"# another word\n{RIGHT}", loaded=lab.digest())
    assert (done.returncode, lab.journal, lab.restarts) == (0, "done", 0), done.stderr
    assert lab.config.read_text().startswith("# another word")
    assert lab.noted == lab.digest()


@pytest.mark.parametrize(
    ("fault", "text", "needs", "journal", "restarts", "names"),
    [
        ("refuses", RIGHT, "", "failed", 0, ["containerd refuses"]),
        # containerd reads it, and does not obey.
        ("", RIGHT.replace('"nvidia"', '"runc"', 1), "", "failed", 0, ["containerd.default_runtime_name=nvidia"]),
        ("ends", RIGHT, "", "failed", 2, ["service ended", "containerd runs again"]),
        (
            "fails",
            RIGHT,
            "",
            "failed",
            2,
            ["CRI plugin 'error: invalid plugin config: x'", "containerd runs again"],
        ),
        ("", RIGHT, "/nowhere/nvidia-container-runtime", "restored", 0, ["/nowhere/nvidia-container-runtime"]),
    ],
)
def test_what_does_not_work_is_undone_and_the_daemon_runs_by_the_old_file(
    lab: Lab, fault: str, text: str, needs: str, journal: str, restarts: int, names: list[str]
) -> None:
    if fault:
        (lab.folder / fault).touch()
    done = lab.run(text, needs=needs)
    assert (done.returncode, lab.journal, lab.restarts) == (1, journal, restarts), done.stderr
    assert unnamed(done.stderr, *names) == [] and (fault != "ends" or "'error'" not in done.stderr)
    assert lab.config.read_text() == OLD and lab.noted == (lab.digest() if restarts else None)


@pytest.mark.parametrize(
    ("said", "writes", "code", "restarts", "journal"),
    [
        ("invalid plugin config: `mirrors` cannot be set when `config_path` is provided", True, 1, 0, "failed"),
        ("unable to load CRI image service plugin dependency: invalid cri image config: x", False, 1, 0, "failed"),
        ("unable to load it: no plugins registered for io.containerd.transfer.v1", True, 0, 1, "done"),
        ("another reason of a version to come", True, 0, 1, "done"),
    ],
)
def test_the_cri_plugin_validates_its_settings_before_any_restart(
    lab: Lab, said: str, writes: bool, code: int, restarts: int, journal: str
) -> None:
    (lab.folder / "said").write_text(said)
    if not writes:
        lab.config.write_text(RIGHT)
    done = lab.run(RIGHT if writes else None)
    assert (done.returncode, lab.journal, lab.restarts) == (code, journal, restarts), done.stderr
    assert lab.config.read_text() == (RIGHT if code == 0 or not writes else OLD)
    assert (said in done.stderr) is (code == 1 or "version to come" in said)
    trial = plain((lab.folder / "trial").read_text())
    assert trial["plugins"] == plain(RIGHT)["plugins"] and trial["required_plugins"] == ["io.containerd.grpc.v1.cri"]
    assert not [*lab.folder.glob("containerd/trial*")]


def test_a_configuration_is_checked_before_a_drain_and_nothing_is_changed(lab: Lab) -> None:
    drop_in = lab.folder / "99-gpunode.toml"
    sent = {
        "program": "containerd", "config": str(lab.config), "binary": str(lab.folder / "bin" / "containerd"),
        "files": f"{drop_in} {encoded(RIGHT)} unread\n{lab.config} - unread",
        "staged": encoded(f'# imports\nimports = ["{drop_in}.gpunode-new"]\n{RIGHT}'),
    }  # fmt: skip
    command = check_command(containerd.PROGRAM, sent)
    (text,) = command.connector_arguments["_stdin"]
    for said, code in (("", 0), ("invalid plugin config: x", 1)):
        if said:
            (lab.folder / "said").write_text(said)
        before = sorted(lab.folder.iterdir())
        done = subprocess.run(
            ["sh", "-c", command.get_raw_value()], input=f"{text}\n", check=False, capture_output=True, text=True,
            env={"PATH": f"{lab.folder / 'bin'}:{os.environ['PATH']}", "LAB": str(lab.folder)}, timeout=60,
        )  # fmt: skip
        assert (done.returncode, said in done.stderr, lab.config.read_text()) == (code, True, OLD), done.stderr
        assert {*lab.folder.iterdir()} - {*before} <= {lab.folder / "trial"}


def test_the_target_is_not_blamed_where_the_daemon_does_not_work_by_its_old_file_either(lab: Lab) -> None:
    (lab.folder / "never").touch()
    done = lab.run(RIGHT)
    assert (done.returncode, lab.journal, lab.restarts, lab.config.read_text()) == (1, "restored", 2, OLD)
    assert unnamed(done.stderr, "containerd is DOWN", "the cause lies elsewhere") == []


def test_a_change_that_must_not_restart_is_put_back_where_it_turns_out_to_take_a_restart(lab: Lab) -> None:
    done = lab.run(RIGHT, loaded=lab.digest(), act="nothing")
    assert (done.returncode, lab.journal, lab.restarts) == (1, "restored", 0), done.stderr
    assert unnamed(done.stderr, "containerd", "restart", "disruption.allow") == []
    assert lab.config.read_text() == OLD
    lab.config.write_text(RIGHT)
    same = lab.run(f"# another word\n{RIGHT}", loaded=lab.digest(), act="nothing")
    assert (same.returncode, lab.journal, lab.restarts) == (0, "done", 0), same.stderr


def test_a_file_that_cannot_be_written_is_told_and_the_target_is_not_blamed(lab: Lab) -> None:
    (lab.folder / "config.toml.gpunode-new").mkdir()
    done = lab.run(RIGHT)
    assert (done.returncode, lab.restarts) == (1, 0)
    assert unnamed(done.stderr, lab.config) == []
    assert lab.journal != "failed"
    assert lab.config.read_text() == OLD


@pytest.mark.parametrize("version", ["1.6.20", "1.7.24", "2.1.9"])
def test_what_is_expected_of_a_file_is_what_the_node_reads_in_it(version: str, lab: Lab) -> None:
    """The editor's own text goes through the node's awk: both must mean the same keys."""
    asked = Runtimes(cdi=True) if version != "1.6.20" else Runtimes()
    wanted = needed_change(state(version, None), asked, "root")
    assert wanted is not None
    (lab.folder / "file").write_text(wanted.files[0].text or "")
    program = (
        f'checkpoint={lab.folder}; binary={lab.folder}/bin/containerd\n{containerd.PROGRAM.functions}\neffective "$1"'
    )
    done = subprocess.run(
        ["sh", "-c", program, "sh", lab.folder / "file"], env={**os.environ, "LAB": str(lab.folder)}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert sorted(done.stdout.split()) == sorted(wanted.expected)


def _linked(lab: Lab, folder: str = "site", mode: int = 0o644) -> Path:
    """Put a link in the file's place, and return where that leads."""
    real = lab.folder / folder / "containerd.toml"
    real.parent.mkdir()
    lab.config.rename(real)
    real.chmod(mode)
    lab.config.symlink_to(real)
    return real


@pytest.mark.parametrize(("mode", "fault"), [(0o600, ""), (0o640, "fails")])
def test_a_link_is_followed_and_its_file_stays_what_it_was_for_whom_it_was(lab: Lab, mode: int, fault: str) -> None:
    """A link's own mode is 0777: a file of that mode is anybody's to write, who then decides what root runs."""
    real = _linked(lab, mode=mode)
    (lab.folder / (fault or "none")).touch()
    done = lab.run(RIGHT)
    assert (done.returncode, lab.journal) == ((1, "failed") if fault else (0, "done")), done.stderr
    assert lab.config.is_symlink() and lab.config.resolve() == real
    assert (real.read_text(), real.stat().st_mode & 0o777) == (OLD if fault else RIGHT, mode)
    assert not [file for file in lab.folder.rglob("*.gpunode-new")]


def test_a_file_that_all_may_write_is_theirs_no_more(lab: Lab) -> None:
    lab.config.chmod(0o666)
    assert lab.run(RIGHT).returncode == 0
    assert lab.config.stat().st_mode & 0o777 == 0o664


def test_a_link_into_a_folder_that_others_may_write_is_refused_and_nothing_changes(lab: Lab) -> None:
    real = _linked(lab, "anybodys")
    (lab.folder / "open").write_text(f"{real.parent}\n")
    done = lab.run(RIGHT)
    assert done.returncode == 1
    assert unnamed(done.stderr, real, f"`chown root:root {real.parent}; chmod go-w {real.parent}`") == []
    assert (real.read_text(), lab.restarts) == (OLD, 0)
    assert not [file for file in lab.folder.rglob("*.gpunode-new")]


def test_a_link_that_leads_nowhere_is_refused_and_nothing_changes(lab: Lab) -> None:
    lab.config.unlink()
    lab.config.symlink_to(lab.folder / "absent" / "config.toml")
    done = lab.run(RIGHT)
    assert done.returncode == 1
    assert unnamed(done.stderr, f"{lab.config} is a link") == []
    assert not (lab.folder / "absent").exists() and lab.restarts == 0


def test_a_file_that_somebody_changed_since_it_was_read_stops_the_change(lab: Lab) -> None:
    read = digest_of_text(lab.config.read_text())
    lab.config.write_text("# by hand, a moment ago\nversion = 2\n")
    done = lab.run(RIGHT, was=read)
    assert done.returncode == 1
    (cause,) = re.findall("^gpunode: cause: (.+)", done.stderr, re.MULTILINE)
    (remedy,) = re.findall("^gpunode: remedy: (.+)", done.stderr, re.MULTILINE)
    assert unnamed(cause, f"changed {lab.config}") == unnamed(remedy, "run again") == []
    assert (lab.config.read_text(), lab.restarts) == ("# by hand, a moment ago\nversion = 2\n", 0)
    assert lab.run(RIGHT, was=digest_of_text(lab.config.read_text())).returncode == 0


def test_a_file_that_is_not_there_and_an_empty_one_are_read_alike(lab: Lab) -> None:
    assert digest_of_text(None) == digest_of_text("") == "none"
    lab.config.unlink()
    assert lab.run(RIGHT, was="none").returncode == 0


def test_what_is_undone_leaves_nothing_beside_it_but_what_somebody_wrote_meanwhile(lab: Lab) -> None:
    lost, journal = lab.folder / "config.toml.gpunode-lost", lab.folder / "containerd.json"
    for text in (None, "# by hand\n"):
        assert lab.run(RIGHT).returncode == 0
        if text is not None:
            journal.write_text(journal.read_text().replace('"done"', '"began"'))
            lab.config.write_text(text)
        undone = lab.undo()
        assert (undone.returncode, lab.config.read_text()) == (0, OLD), undone.stderr
        assert lost.exists() == (text is not None)
    assert lost.read_text() == "# by hand\n" and unnamed(undone.stderr, lab.config, lost) == []
    assert lab.undo().returncode == 0


def test_a_drop_in_that_was_a_link_comes_back_as_one_and_its_file_was_never_gone(lab: Lab) -> None:
    site, drop_in = lab.folder / "site.toml", lab.folder / "99-gpunode.toml"
    site.write_text("# of the site\n")
    drop_in.symlink_to(site)
    assert lab.run(RIGHT, removes=drop_in).returncode == 0
    assert not drop_in.is_symlink() and site.read_text() == "# of the site\n"
    undone = lab.undo()
    assert undone.returncode == 0, undone.stderr
    assert drop_in.is_symlink() and drop_in.readlink() == site and site.read_text() == "# of the site\n"
