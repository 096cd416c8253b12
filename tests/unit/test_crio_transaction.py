"""CRI-O's probe and transaction, run for real by sh; systemctl is SIMULATED, and crio is the lab's SIMULATED one."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpunode.base.probe_output import checked
from gpunode.components.runtimes.crio.decide import needed_change
from gpunode.components.runtimes.crio.state import Crio, parse_crio
from gpunode.components.runtimes.runtime import RuntimeChange, Runtimes
from gpunode.facts.runtimes import Crio as CrioFact
from gpunode.operations import crio
from gpunode.operations.runtime import transaction
from gpunode.operations.script import script
from gpunode.operations.transaction import transaction_text
from tests.support.runtime_transaction import _SLEEP, _STAT

pytestmark = pytest.mark.real
PROGRAM = Path(__file__).parents[2] / "lab" / "packages" / "crio.py"
# Starts the daemon as far as it is asked: by what it runs is what its files come to.
_SYSTEMCTL = """#!/bin/sh
echo "$*" >> "$LAB/calls"
case "$1" in
  is-active) state=active; [ -e "$CRIO_STATE" ] || state=failed
    [ "$2" = --quiet ] || echo $state; [ $state = active ];;
  is-system-running) echo running;;
  show) cat "$LAB/unit"; echo "ActiveEnterTimestampMonotonic=$(grep -c ^restart "$LAB/calls")";;
  restart) rm -f "$CRIO_STATE"; [ ! -e "$LAB/fails" ] || exit 1
    crio --config "$LAB/etc/crio.conf" --config-dir "$LAB/etc/crio.conf.d" config > "$LAB/printed" || exit 1
    sed '1,2d; s/^# //' "$LAB/printed" > "$CRIO_STATE";;
esac
"""
PACKAGED = """[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/bin/true"
runtime_type = "oci"
monitor_path = "/usr/libexec/crio/conmon"
"""


@dataclass
class Lab:
    """Hold a folder that stands for a node."""

    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        state = str(self.folder / "running.toml")
        return {"PATH": path, "LAB": str(self.folder), "CRIO_STATE": state, "CRIO_LOG": str(self.folder / "log")}

    @property
    def drop_in(self) -> Path:
        return self.folder / "etc" / "crio.conf.d" / "99-nvidia.toml"

    def sh(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=self.environment, check=False, capture_output=True, text=True, timeout=60, cwd=self.folder
        )

    def read(self) -> Crio:
        """Return what the probe tells of this node, whose unit names its files."""
        probe = CrioFact().command().replace("/proc/", f"{self.folder}/proc/")
        return parse_crio(checked(self.sh("sh", "-c", probe).stdout.splitlines()))

    def run(self, made: RuntimeChange | None) -> subprocess.CompletedProcess[str]:
        """Carry out a change as the operation does."""
        assert made is not None
        written = {file.path: base64.b64encode(str(file.text).encode()).decode() for file in made.files}
        variables = {
            "program": "crio", "unit": "crio.service", "plugin": crio.PROGRAM.plugin, "loaded": "", "needs": "",
            "act": made.act, "staged": base64.b64encode((made.staged or "").encode()).decode(),
            "files": "\n".join(f"{path} {text} unread" for path, text in written.items()),
            "expected": "\n".join(made.expected), "proc": str(self.folder), "notes": str(self.folder / "run"),
            "config": str(self.drop_in), "binary": str(self.folder / "bin" / "crio"),
            "root": str(self.folder / "etc" / "crio.conf"), "drop_ins": str(self.drop_in.parent),
            "aside": str(self.folder / "etc"),
        }  # fmt: skip
        text = transaction_text(transaction(crio.PROGRAM), "target", variables)
        text = text.replace("folder=/var/lib/gpunode/transactions", f"folder={self.folder}", 1)
        (self.folder / "t.sh").write_text(script(text))
        return self.sh("sh", str(self.folder / "t.sh"), "change")

    @property
    def restarts(self) -> int:
        return (self.folder / "calls").read_text().splitlines().count("restart crio.service")

    def names(self) -> list[str]:
        return sorted(
            path.name for path in (self.folder / "etc").rglob("*.*") if path.is_file() and path.name != "crio.conf"
        )


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    found = Lab(tmp_path)
    for name in ("bin", "etc/crio.conf.d", "proc/7", "proc/8", "proc/9"):
        (tmp_path / name).mkdir(parents=True)
    simulated = f'#!/bin/sh\nexec {sys.executable} {PROGRAM} "$@"\n'
    programs = {"crio": simulated, "systemctl": _SYSTEMCTL, "sleep": _SLEEP, "stat": _STAT, "nvidia": "#!/bin/sh\n"}
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    # The runtime itself is the toolkit's.
    for module in ("decide", "editor"):
        path = f"gpunode.components.runtimes.crio.{module}.NVIDIA_RUNTIME"
        monkeypatch.setattr(path, str(tmp_path / "bin" / "nvidia"))
    etc = tmp_path / "etc"
    command = f"{tmp_path}/bin/crio --config {etc}/crio.conf --config-dir={etc}/crio.conf.d"
    (tmp_path / "unit").write_text(
        f"Names=crio.service\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\nMainPID=7\n"
        f"ExecStart={{ path={tmp_path}/bin/crio ; argv[]={command} ; }}\n"
    )
    (tmp_path / "proc" / "7" / "cmdline").write_text(command.replace(" ", "\0") + "\0")
    (tmp_path / "proc" / "7" / "comm").write_text("crio\n")
    for number, text in (("8", "--exit-dir\0/var/run/crio/exits"), ("9", "x")):
        (tmp_path / "proc" / number / "comm").write_text("conmon\n")
        (tmp_path / "proc" / number / "cmdline").write_text(text)
    (tmp_path / "uptime").write_text("100.25 1.00\n")
    (etc / "crio.conf.d" / "10-crio.conf").write_text(PACKAGED)
    (etc / "crio.conf").touch()
    found.sh("systemctl", "restart")
    (tmp_path / "calls").write_text("")
    return found


def test_the_probe_tells_of_the_unit_s_own_files_and_of_crio_s_containers_alone(lab: Lab) -> None:
    (lab.folder / "etc" / "crio.conf.d" / "deeper").mkdir()
    (lab.folder / "etc" / "crio.conf.d" / "deeper" / ".hidden").write_text("# any name counts\n")
    found = lab.read()
    assert (found.version, found.active, found.enabled, found.containers) == ("1.31.0", True, True, 1)
    assert (found.root, found.folder) == (f"{lab.folder}/etc/crio.conf", f"{lab.folder}/etc/crio.conf.d")
    assert (found.default_runtime, found.cgroup_manager) == ("crun", "systemd")
    assert found.runtimes == (("crun", "/bin/true"),)
    assert [path.rpartition("/")[2] for path, _ in found.files or ()] == ["crio.conf", "10-crio.conf", ".hidden"]
    (lab.folder / "proc" / "7" / "cmdline").write_text("crio\0--default-runtime=crun\0")
    assert lab.read().flags == ("--default-runtime",)


def test_a_node_without_crio_has_none(lab: Lab) -> None:
    (lab.folder / "unit").write_text("")
    (lab.folder / "bin" / "crio").unlink()
    assert lab.read() == Crio(files=())


def test_a_change_is_judged_brought_in_and_proven_and_nothing_is_left_to_do(lab: Lab) -> None:
    done = lab.run(needed_change(lab.read(), Runtimes()))
    assert (done.returncode, lab.restarts) == (0, 1), done.stderr
    after = lab.read()
    assert after.default_runtime == "nvidia" and needed_change(after, Runtimes()) is None
    assert 'monitor_path = "/usr/libexec/crio/conmon"' in lab.drop_in.read_text()
    assert lab.names() == ["10-crio.conf", "99-nvidia.toml"]
    # Broken by hand while it runs: the file comes back, and no restart is needed.
    lab.drop_in.unlink()
    done = lab.run(needed_change(lab.read(), Runtimes()))
    assert (done.returncode, lab.restarts) == (0, 1), done.stderr
    # And the way to another default, with other cgroups.
    done = lab.run(needed_change(lab.read(), Runtimes("crun", systemd_cgroup=False)))
    assert (done.returncode, lab.restarts, lab.read().cgroup_manager) == (0, 2, "cgroupfs"), done.stderr


@pytest.mark.parametrize(
    ("default", "fault", "restarts", "says"),
    [
        ("runc", "", 0, "runtime entry"),
        ("nvidia", "runtime", 0, "invalid runtime_path"),
        ("nvidia", "fails", 2, "30 s"),
    ],
)
def test_what_crio_refuses_or_does_not_start_by_is_undone(
    lab: Lab, default: str, fault: str, restarts: int, says: str
) -> None:
    made = needed_change(replace(lab.read(), default_runtime=None), Runtimes(default))
    if fault == "runtime":
        (lab.folder / "bin" / "nvidia").unlink()
    elif fault:
        (lab.folder / fault).touch()
    done = lab.run(made)
    assert (done.returncode, lab.restarts) == (1, restarts), done.stderr
    assert says in done.stderr and lab.names() == ["10-crio.conf"]


def test_what_somebody_wrote_meanwhile_is_kept_where_crio_does_not_read_it(lab: Lab) -> None:
    made = needed_change(lab.read(), Runtimes())
    systemctl = lab.folder / "bin" / "systemctl"
    once = f'{{ touch "$LAB/once"; echo "# mine" > {lab.drop_in}; }}'
    meanwhile = f'[ "$1" != restart ] || [ -e "$LAB/once" ] || {once}\n'
    systemctl.write_text(systemctl.read_text().replace("case", f"{meanwhile}case", 1))
    done = lab.run(made)
    assert done.returncode == 1 and "is kept as" in done.stderr, done.stderr
    assert lab.names() == ["10-crio.conf", "99-nvidia.toml.gpunode-lost"]
    assert (lab.folder / "etc" / "99-nvidia.toml.gpunode-lost").read_text() == "# mine\n"
    assert lab.read().default_runtime == "crun"


@pytest.mark.parametrize(
    ("prepare", "words", "said"),
    [
        (lambda etc: (etc / "crio.conf.d" / "a~").write_text("["), ["config"], "unable to decode configuration"),
        (lambda etc: None, ["--config", "/nowhere", "config"], "/nowhere"),
        (lambda etc: None, ["restore"], "SIMULATED, does not know 'restore'"),
    ],
)
def test_the_simulated_crio_refuses_what_crio_refuses(
    lab: Lab, prepare: Callable[[Path], object], words: list[str], said: str
) -> None:
    prepare(lab.folder / "etc")
    done = lab.sh("crio", "-d", str(lab.folder / "etc" / "crio.conf.d"), *words)
    assert done.returncode == 1 and said in done.stderr


def test_the_simulated_daemon_notes_by_what_it_runs_until_it_ends(lab: Lab) -> None:
    state = lab.folder / "running.toml"
    state.unlink()
    words = ["crio", "--config-dir", str(lab.folder / "etc" / "crio.conf.d")]
    with subprocess.Popen(words, env=lab.environment) as daemon:
        for _ in range(200):
            if state.exists() and state.read_text():
                break
            time.sleep(0.1)
        assert 'default_runtime = "crun"' in lab.sh(*words, "status", "config").stdout
        daemon.send_signal(signal.SIGTERM)
    assert daemon.returncode == 0 and not state.exists()
    assert "SIMULATED crio: started" in (lab.folder / "log").read_text()
