"""The Multi-Process Service: what is asked, what a daemon is told, what it answers, and what a run does about it."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.probe_output import checked
from gpunode.base.template import rendered
from gpunode.components.mps.change import PIPE_DIRECTORY, PROFILE, VARIABLE, desired_files, environment_files
from gpunode.components.mps.daemon import FOLDER, UNITS, control_text, daemons
from gpunode.components.mps.state import parse_mps
from gpunode.facts.gpu import Mps as MpsFact
from gpunode.operations import mps as operation
from gpunode.operations.script import script
from gpunode.operations.transaction import transaction_text
from tests.support.messages import unnamed
from tests.support.mps import PROGRAM, asked, digest_of, run, settled
from tests.support.simulated_host import Host


@pytest.mark.pure
@given(
    percentage=st.floats(0.1, 100).map(lambda number: f"{number:.1f}"),
    limit=st.integers(1, 9999).map(lambda size: f"{size}G") | st.integers(1, 1023).map(lambda size: f"{size}M"),
    index=st.integers(0, 99),
)
def test_what_is_asked_is_proven_by_what_the_daemon_prints_of_it(percentage: str, limit: str, index: int) -> None:
    (daemon,) = daemons(asked(active_thread_percentage=percentage, memory_limit=limit), [0])
    assert [each.answer for each in daemon.controls] == [percentage, limit]
    # A limit of one GPU counts for that GPU.
    assert asked(memory_limits={str(index): limit}).limit_of(index) == limit


@pytest.mark.pure
def test_one_daemon_serves_the_node_or_each_gpu_has_its_own() -> None:
    one = daemons(asked(memory_limit="8G", memory_limits={"1": "16G"}), range(2))
    assert [(each.unit, each.gpus) for each in one] == [("nvidia-mps.service", (0, 1))]
    assert [item.answer for item in one[0].controls] == ["100.0", "8G", "16G"]
    each = daemons(asked(daemons="gpu", memory_limits={"1": "16G"}), range(2))
    assert [item.unit for item in each] == ["nvidia-mps@0.service", "nvidia-mps@1.service"]
    # It sees one GPU, and counts it as its first; a limit that nobody asks for is taken away.
    assert [item.command for item in each[0].controls][1] == "set_default_device_pinned_mem_limit 0 0G"
    assert [item.command for item in each[1].controls][1] == "set_default_device_pinned_mem_limit 0 16G"


# The daemon as golden/mps shows it: nonsense is swallowed, with exit status 0 and the old value.
SIMULATED = r"""#!/bin/sh
read -r command number value
case "$command" in
  get_server_list) [ ! -e "$STATE/dead" ];;
  set_default_active_thread_percentage) case "$number" in 50|100) echo "$number.0" > "$STATE/percentage";; esac;;
  get_default_active_thread_percentage) cat "$STATE/percentage";;
  set_default_device_pinned_mem_limit)
    echo "$value" > "$STATE/limit$number"; [ "$value" != 0G ] || : > "$STATE/limit$number";;
  get_default_device_pinned_mem_limit) cat "$STATE/limit$number";;
esac
"""


@pytest.mark.simulated
@pytest.mark.parametrize(("percentage", "code"), [("50", 0), ("100", 0), ("40", 1)])
def test_settings_are_given_and_proven_by_reading_them_back(tmp_path: Path, percentage: str, code: int) -> None:
    (daemon,) = daemons(asked(active_thread_percentage=percentage, memory_limits={"1": "8G"}), range(2))
    program, script, settings = (tmp_path / name for name in ("nvidia-cuda-mps-control", "apply", "node.settings"))
    program.write_text(SIMULATED)
    program.chmod(0o755)
    (tmp_path / "percentage").write_text("100.0\n")
    script.write_text(rendered("nvidia-mps-settings", program=str(program)))
    settings.write_text(control_text(daemon.controls))
    environment = {"PATH": "/usr/bin:/bin", "STATE": str(tmp_path), "CUDA_MPS_PIPE_DIRECTORY": "/run/x"}
    done = subprocess.run(["sh", script, settings], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "limit1").read_text()) == (code, "8G\n")
    assert bool(done.stderr) is bool(code) and (not code or unnamed(done.stderr, "'100.0'", "'40.0'") == [])


@pytest.mark.pure
def test_while_a_restart_waits_the_record_names_no_text_that_is_not_there_yet(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_of: dict[str, str] = {}
    monkeypatch.setattr("gpunode.operations.own_files.keeps", kept_of.__setitem__)
    there = settled(asked(), clients=2)
    older = replace(there, files=tuple((path, "0" * 64) for path, _ in there.files))
    assert run(host, older, asked(), allowed=False) == [] and "restart pending" in host.noops[-1]
    assert set(kept_of) == {each.settings_path for each in daemons(asked(), [0])}
    assert run(host, older, asked()) and {path for path, _ in there.files} <= set(kept_of)


# systemd and nvidia-smi as far as the transaction asks them: what runs is in a file, what was done in another one.
COMMANDS = {
    "systemctl": r"""
echo "$*" >> "$STATE/log"
for unit in "$@"; do :; done
case "$1" in
  is-active) grep -qx "$unit" "$STATE/active";;
  is-enabled) false;;
  show) if grep -qx "$2" "$STATE/active"; then echo ActiveState=active; else echo ActiveState=inactive; fi;;
  cat) [ -e "$STATE/units/$unit" ];;
  disable) [ -e "$STATE/units/$unit" ] && ! grep -qx "$unit" "$STATE/broken";;
  restart) ! grep -qx "$unit" "$STATE/broken" || exit 1; echo "$unit" >> "$STATE/active";;
  stop) grep -qx "$unit" "$STATE/active" || [ -e "$STATE/units/$unit" ] || exit 5
    [ -e "$STATE/units/$unit" ] || echo "no ExecStopPost" >> "$STATE/log"
    sed -i "/^$unit$/d" "$STATE/active";;
esac
""",
    "nvidia-smi": r"""
case "$*" in
  *query*) cat "$STATE/modes";;
  *) echo "smi $*" >> "$STATE/log"; [ ! -e "$STATE/deaf" ];;
esac
""",
    "journalctl": "",
    "timeout": 'shift 3; exec "$@"\n',
}


class Systemd:
    """Run the transaction with SIMULATED systemctl and nvidia-smi: two GPUs, each with a unit of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, ""
        self.units = [folder / "units" / f"nvidia-mps@{number}.service" for number in "01"]
        for name in ("bin", "units"):
            (folder / name).mkdir()
        apply = 'echo "apply $1" >> "$STATE/log"; [ ! -e "$STATE/refuses" ]\n'
        for name, text in {**{f"bin/{name}": text for name, text in COMMANDS.items()}, "apply": apply}.items():
            (folder / name).write_text(f"#!/bin/sh\n{text}")
            (folder / name).chmod(0o755)
        (folder / "modes").write_text("0, Exclusive_Process\n1, Exclusive_Process\n")
        for name in ("active", "broken", "log"):
            (folder / name).touch()

    def change(self, fails: bool = True, **variables: str) -> str:
        """Run a change that writes the units' files; return what was done."""
        unit = base64.b64encode(b"unit").decode()
        given = {
            "read": "\n".join(f"{path} unread" for path in self.units), "removed": "",
            "units": " ".join(path.name for path in self.units), "gone": "", "restart": "",
            "written": "\n".join(f"{path} 644 {unit}" for path in self.units), "told": "",
            "modes": "", "mode": "EXCLUSIVE_PROCESS", "shown": "Exclusive_Process",
            "script": str(self.folder / "apply"), "folder_of_settings": "/etc/nvidia-mps", **variables,
        }  # fmt: skip
        text = transaction_text(operation._CHANGE, "target-1", given)
        text = text.replace("folder=/var/lib/gpunode/transactions", f"folder={self.folder}", 1)
        (self.folder / "mps.sh").write_text(script(text))
        done = self.run("change")
        assert (done.returncode != 0) is fails, done.stderr
        self.said = done.stderr
        return (self.folder / "log").read_text()

    def run(self, verb: str) -> subprocess.CompletedProcess[str]:
        """Run `change` or `undo` of the script as it stands."""
        environment = {"PATH": f"{self.folder / 'bin'}:/usr/bin:/bin", "STATE": str(self.folder)}
        return subprocess.run(
            ["sh", self.folder / "mps.sh", verb], env=environment, capture_output=True, text=True, check=False
        )


@pytest.mark.simulated
def test_a_failed_first_set_up_stops_its_daemons_while_their_units_still_say_how(tmp_path: Path) -> None:
    machine = Systemd(tmp_path)
    (tmp_path / "broken").write_text("nvidia-mps@1.service\n")
    log = machine.change(restart="nvidia-mps@0.service nvidia-mps@1.service")
    assert "stop nvidia-mps@0.service" in log and "no ExecStopPost" not in log
    assert (tmp_path / "active").read_text() == "" and not list((tmp_path / "units").iterdir())


@pytest.mark.simulated
def test_a_setting_that_one_daemon_refuses_does_not_restart_the_others(tmp_path: Path) -> None:
    machine = Systemd(tmp_path)
    (tmp_path / "active").write_text("nvidia-mps@0.service\nnvidia-mps@1.service\n")
    for unit in machine.units:
        unit.write_text("before")
    (tmp_path / "deaf").touch()
    log = machine.change(told="nvidia-mps@0.service", modes="1")
    assert "restart" not in log and log.count("apply") == 2
    assert {path.read_text() for path in machine.units} == {"before"}
    assert log.rstrip().endswith("smi -i 1 -c EXCLUSIVE_PROCESS")


@pytest.mark.simulated
def test_a_gpu_that_does_not_take_the_compute_mode_fails_the_change(tmp_path: Path) -> None:
    machine = Systemd(tmp_path)
    (tmp_path / "modes").write_text("0, Exclusive_Process\n1, Default\n")
    machine.change(restart="nvidia-mps@0.service nvidia-mps@1.service")
    assert (tmp_path / "active").read_text() == ""


@pytest.mark.simulated
@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("there", [True, False])
def test_a_daemon_goes_whether_or_not_it_runs_and_its_unit_is_there(tmp_path: Path, there: bool, active: bool) -> None:
    machine = Systemd(tmp_path)
    unit, settings = tmp_path / "units" / "nvidia-mps.service", tmp_path / "node.settings"
    (tmp_path / "active").write_text("nvidia-mps.service\n" if active else "")
    files = [unit, settings] if there else [settings]
    for file in files:
        file.write_text("before")
    read, removed = "".join(f"{file} unread\n" for file in files), " ".join(map(str, files))
    log = machine.change(fails=False, units="", written="", gone="nvidia-mps.service", read=read, removed=removed)
    assert (tmp_path / "active").read_text() == "" and not unit.exists() and not settings.exists()
    assert ("\nstop nvidia-mps.service\n" in log) is active and "disable" in log


@pytest.mark.simulated
def test_a_daemon_whose_unit_is_there_and_stays_enabled_is_not_called_gone(tmp_path: Path) -> None:
    machine = Systemd(tmp_path)
    for name in ("active", "broken", "units/nvidia-mps.service"):
        (tmp_path / name).write_text("nvidia-mps.service\n")
    unit = tmp_path / "units" / "nvidia-mps.service"
    log = machine.change(units="", written="", gone=unit.name, read=f"{unit} unread", removed=str(unit))
    assert unit.exists() and "restart nvidia-mps.service" in log


@pytest.mark.simulated
def test_a_unit_that_somebody_changed_since_it_was_read_stops_the_change(tmp_path: Path) -> None:
    machine = Systemd(tmp_path)
    unit, other = machine.units
    unit.write_text("by hand")
    machine.change(read=f"{unit} {digest_of('before')}\n{other} none")
    assert unnamed(machine.said, unit) == []
    assert unit.read_text() == "by hand" and list(unit.parent.iterdir()) == [unit]
    assert not (tmp_path / "mps.json").exists(), "nothing began"


@pytest.mark.simulated
def test_what_somebody_wrote_into_a_unit_after_the_change_was_cut_off_is_kept_and_named(tmp_path: Path) -> None:
    machine = Systemd(tmp_path)
    machine.units[0].write_text("before")
    machine.change(fails=False)
    for unit in machine.units:
        unit.write_text(f"by hand, {unit.name}")
    done = machine.run("undo")
    assert done.returncode == 0, done.stderr
    lost = [Path(f"{unit}.gpunode-lost") for unit in machine.units]
    assert [each.read_text() for each in lost] == [f"by hand, {unit.name}" for unit in machine.units]
    assert unnamed(done.stderr, *lost) == []
    assert machine.units[0].read_text() == "before" and not machine.units[1].exists()


# As far as the probe asks systemd: one unit that runs, and whose file is where the test put it.
ONE_UNIT = """#!/bin/sh
case "$1" in
  show) printf 'Names=nvidia-mps.service\\nActiveState=active\\nUnitFileState=enabled\\nFragmentPath=%s\\n' \
    "$FRAGMENT";;
esac
"""


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("mode", "by", "exclusive"),
    [("exclusive-process", "gpunode", True), ("default", "gpunode", False), ("exclusive-process", "hand", None)],
)
def test_the_probe_tells_which_compute_mode_the_unit_of_a_daemon_sets(
    tmp_path: Path, mode: str, by: str, exclusive: bool | None
) -> None:
    (daemon,) = daemons(asked(compute_mode=mode), [0])
    unit, settings = tmp_path / "nvidia-mps.service", tmp_path / "node.settings"
    text = desired_files([daemon], asked(compute_mode=mode), PROGRAM)[daemon.unit_path]
    unit.write_text(text.replace("gpunode", by, 1))
    settings.write_text(control_text(daemon.controls))
    (tmp_path / "systemctl").write_text(ONE_UNIT)
    (tmp_path / "systemctl").chmod(0o755)
    probe = MpsFact().command().replace(str(Path(UNITS[0]).parent), str(tmp_path)).replace(FOLDER, str(tmp_path))
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "FRAGMENT": str(unit)}
    done = subprocess.run(["sh", "-c", probe], env=environment, capture_output=True, text=True, check=False)
    (found,) = parse_mps(checked(done.stdout.splitlines())).daemons
    assert (found.unit, found.exclusive, found.clients) == ("nvidia-mps.service", exclusive, None)


@pytest.mark.simulated
def test_a_login_shell_has_the_variable_of_the_unit_and_keeps_one_that_it_has(tmp_path: Path) -> None:
    found, script = asked(environment=True), tmp_path / "gpunode-mps.sh"
    script.write_text(environment_files(found)[PROFILE])
    for before, expected in (({}, PIPE_DIRECTORY), ({VARIABLE: "/tmp/own"}, "/tmp/own")):
        line = f". {script}; env | sed -n s/^{VARIABLE}=//p"
        done = subprocess.run(["sh", "-euc", line], env=before, capture_output=True, text=True, check=True)
        assert done.stdout == f"{expected}\n"
    (daemon,) = daemons(found, [0])
    assert f"Environment={VARIABLE}={PIPE_DIRECTORY}\n" in desired_files([daemon], found, PROGRAM)[daemon.unit_path]


@pytest.mark.simulated
def test_a_folder_that_the_change_makes_may_be_read_by_everybody(tmp_path: Path) -> None:
    path = tmp_path / "environment.d" / "50-gpunode-mps.conf"
    written = f"{path} 644 {base64.b64encode(b'text').decode()}"
    Systemd(tmp_path).change(fails=False, units="", read=f"{path} none", written=written)
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o755, 0o644)
