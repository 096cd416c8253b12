"""The transaction that changes a kubelet's configuration, run for real by sh; kubelet, systemd and clock are SIMULATED.

The kubelet that is SIMULATED starts as the real one does: not by a file that it cannot read, and not by the CPU
manager's state of another policy.
"""

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

from gpunode.operations import kubelet
from gpunode.operations.script import script
from gpunode.operations.transaction import transaction_text
from tests.support.messages import unnamed

_SYSTEMCTL = r"""#!/bin/sh
cd "$LAB" || exit 1
up() {
  rm -f pid
  policy=$(cat drop-in config 2>/dev/null | sed -n 's/^cpuManagerPolicy: //p' | head -n 1); policy=${policy:-none}
  if cat drop-in config 2>/dev/null | grep -q broken; then return 0; fi
  if [ -e cpus ] && ! grep -q "\"policyName\":\"$policy\"" cpus; then return 0; fi
  [ -e cpus ] || printf '{"policyName":"%s","at":"%s"}' "$policy" "$(wc -l < calls)" > cpus
  wc -l < calls > pid
}
case "$*" in
  "stop kubelet.service") echo stop >> calls; rm -f pid;;
  "restart kubelet.service") echo restart >> calls; up;;
  "is-active --quiet kubelet.service") [ -e pid ]; exit;;
  "show kubelet.service -p MainPID") echo "MainPID=$(cat pid 2>/dev/null || echo 0)";;
  is-system-running) echo running;;
esac
exit 0
"""
_SLEEP = '#!/bin/sh\nread -r now _ < "$LAB/proc/uptime"\necho "$((${now%%.*} + 5)).25 1.00" > "$LAB/proc/uptime"\n'
_CURL = '#!/bin/sh\n[ -e "$LAB/pid" ] && [ ! -e "$LAB/silent" ]\n'


@dataclass
class Lab:
    """Hold a folder that stands for a node."""

    folder: Path

    def says(self, name: str) -> str | None:
        path = self.folder / name
        return path.read_text() if path.exists() else None

    @property
    def journal(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "kubelet.json").read_text())
        return found

    def run(self, text: str | None, policy: str = "", read: str | None = None, cleared: str | None = None) -> str:
        path = self.folder / "drop-in"
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "none"
        variables = {
            "path": str(path), "read": read or digest,
            "cleared": "" if cleared is None else str(self.folder / "config"),
            "cleared_read": hashlib.sha256((self.folder / "config").read_bytes()).hexdigest(),
            "cleared_text": base64.b64encode((cleared or "").encode()).decode(),
            "text": "-" if text is None else base64.b64encode(text.encode()).decode(),
            "cpus": str(self.folder / "cpus") if policy else "", "policy": policy, "timeout": "20", "stays": "1",
            "health": "http://127.0.0.1:10248/healthz", "proc": str(self.folder / "proc"),
            "noted": str(self.folder / "noted"), "reads": "" if text is None else f"{self.folder / 'config'}\n{path}",
        }  # fmt: skip
        whole = transaction_text(kubelet._CHANGE, "target", variables)
        whole = whole.replace("folder=/var/lib/gpunode/transactions", f"folder={self.folder}", 1)
        (self.folder / "kubelet.sh").write_text(script(whole.replace('roots_alone "$real"', "true")))
        done = subprocess.run(
            ["sh", self.folder / "kubelet.sh", "change"], check=False, capture_output=True, text=True, timeout=60,
            env={"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}", "LAB": str(self.folder)},
        )  # fmt: skip
        return f"{done.returncode}: {done.stderr}"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    (tmp_path / "bin").mkdir()
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/uptime").write_text("100.00 1.00\n")
    programs = {"systemctl": _SYSTEMCTL, "sleep": _SLEEP, "curl": _CURL, "journalctl": "#!/bin/sh\necho E1 because\n"}
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "config").write_text("kind: KubeletConfiguration\n")
    (tmp_path / "cpus").write_text('{"policyName":"none","at":"before"}')
    (tmp_path / "calls").write_text("")
    (tmp_path / "pid").write_text("7\n")
    return Lab(tmp_path)


def test_another_policy_takes_the_former_one_s_state_away_while_the_kubelet_is_stopped(lab: Lab) -> None:
    assert lab.run("cpuManagerPolicy: static\n", "static").startswith("0:")
    assert lab.says("calls") == "stop\nrestart\n" and '"policyName":"static"' in str(lab.says("cpus"))
    assert lab.says("drop-in") == "cpuManagerPolicy: static\n"
    assert "failed" not in json.dumps(lab.journal)


def test_without_that_the_kubelet_does_not_start_and_the_file_goes_again(lab: Lab) -> None:
    told = lab.run("cpuManagerPolicy: static\n")
    assert not told.startswith("0:") and unnamed(told, "20 s", "because") == []
    assert lab.says("drop-in") is None and lab.says("pid") is not None
    assert unnamed(told, "kubelet runs again") == []


@pytest.mark.parametrize("fault", ["broken", "silent"])
def test_a_kubelet_that_is_not_well_gets_its_file_and_the_state_of_its_cpus_back(lab: Lab, fault: str) -> None:
    (lab.folder / "drop-in").write_text("maxPods: 64\n")
    (lab.folder / "drop-in").chmod(0o640)
    if fault == "silent":
        (lab.folder / "silent").touch()
    told = lab.run(f"cpuManagerPolicy: static\n{fault}: true\n", "static")
    assert not told.startswith("0:") and unnamed(told, "20 s") == []
    assert lab.says("drop-in") == "maxPods: 64\n" and (lab.folder / "drop-in").stat().st_mode & 0o777 == 0o640
    assert lab.says("pid") is not None and lab.says("cpus") == '{"policyName":"none","at":"before"}'
    assert ("runs again" in told) == (fault != "silent")
    assert not list(lab.folder.glob("*.gpunode-*"))


def test_what_the_kubelet_started_by_is_noted_and_goes_with_the_settings(lab: Lab) -> None:
    for number in range(100):
        (lab.folder / f"proc/{number}").mkdir()
        fields = " ".join(str(each) for each in range(4, 22))
        (lab.folder / f"proc/{number}/stat").write_text(f"{number} (ku) be) S {fields} 4201 23\n")
    assert lab.run("maxPods: 110\n").startswith("0:")
    assert lab.says("calls") == "restart\n" and lab.says("drop-in") == "maxPods: 110\n"
    files = [lab.folder / "config", lab.folder / "drop-in"]
    expected = [f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path}" for path in files]
    assert str(lab.says("noted")).splitlines() == [f"{str(lab.says('pid')).strip()} 4201", *expected]
    assert lab.run(None).startswith("0:")
    assert lab.says("drop-in") is None and lab.says("noted") is None and lab.says("calls") == "restart\n" * 2


def test_a_drop_in_comes_and_what_the_file_had_goes_by_one_start_and_both_come_back(lab: Lab) -> None:
    before = lab.says("config")
    assert unnamed(lab.run("broken: true\n", cleared="kind: Other\n"), "20 s") == []
    assert lab.says("config") == before and lab.says("drop-in") is None
    assert lab.run("maxPods: 64\n", cleared="kind: Other\n").startswith("0:")
    assert lab.says("config") == "kind: Other\n" and lab.says("drop-in") == "maxPods: 64\n"
    # The one of the change that failed, that of its way back, and this.
    assert lab.says("calls") == "restart\n" * 3


def test_a_file_that_somebody_changed_meanwhile_stays_his(lab: Lab) -> None:
    (lab.folder / "drop-in").write_text("theirs\n")
    assert "somebody changed" in lab.run("maxPods: 64\n", read="0" * 64)
    assert lab.says("drop-in") == "theirs\n" and lab.says("calls") == ""
