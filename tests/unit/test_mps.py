"""The Multi-Process Service: what is asked, what a daemon is told, what it answers, and what a run does about it."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.findings import Finding, FindingClass
from gpunode.base.probe_output import checked
from gpunode.base.reading import ParseError
from gpunode.base.template import rendered
from gpunode.components.mps import Mps, control_text, daemons, parse_mps
from gpunode.components.mps.daemon import FOLDER, UNITS
from gpunode.components.mps.environment import ENVIRONMENT, PATHS, PIPE_DIRECTORY, PROFILE, VARIABLE, environment_files
from gpunode.components.mps.files import APPLY, desired_files
from gpunode.components.mps.memory import mebibytes, without_room
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.mps import Mps as MpsFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.node import Node
from gpunode.node.components import decisions
from gpunode.node.plan import plan
from gpunode.node.preflight.mps import mps_cautions, mps_refusals
from gpunode.operations import mps as operation
from gpunode.operations.script import script
from gpunode.operations.transaction import transaction_text
from gpunode.settings import Settings, SettingsError, settings_from
from gpunode.settings.mps import MpsSettings
from gpunode.system.gpu import Gpus
from gpunode.system.pci import PciGpu
from gpunode.system.transaction import Journal
from tests.support.messages import unnamed
from tests.support.mps import H100, PROGRAM, ROW, asked, digest_of, run, settled
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

P100 = PciGpu("0000:1a:00.0", "15F8", "GP100GL [Tesla P100 PCIe 16GB]", "pascal")


def judged(settings: Settings, node: Node) -> tuple[Finding, ...]:
    return decisions(settings, node)["mps"].findings


@pytest.mark.pure
@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"active_thread_percentage": "0"}, "a percentage from '0.1' to '100'"),
        ({"active_thread_percentage": "150"}, "a percentage"),
        ({"active_thread_percentage": "33.33"}, "at most one decimal"),
        ({"memory_limit": "1536M"}, "whole gigabytes"),
        ({"memory_limit": "8"}, "whole gigabytes"),
        ({"memory_limit": "0G"}, "whole gigabytes"),
        ({"memory_limits": {"first": "8G"}}, "the index of a GPU"),
        ({"memory_limits": {"01": "8G"}}, "without a leading zero"),
        ({"memory_limits": {"00": "8G"}}, "without a leading zero"),
        ({"clients": 49}, "more than the 48"),
        ({"clients": 0}, "must be 1 or more"),
    ],
)
def test_what_the_daemon_would_swallow_is_refused_before_it_sees_it(more: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        asked(**more)
    assert says in str(refused.value)


@pytest.mark.pure
@given(st.floats(0.1, 100).map(lambda number: f"{number:.1f}"))
def test_a_percentage_is_proven_by_what_the_daemon_prints_of_it(percentage: str) -> None:
    (daemon,) = daemons(asked(active_thread_percentage=percentage), [0])
    assert daemon.controls[0].answer == percentage


@pytest.mark.pure
@given(st.integers(1, 9999).map(lambda size: f"{size}G") | st.integers(1, 1023).map(lambda size: f"{size}M"))
def test_a_memory_limit_reads_back_as_it_was_written(limit: str) -> None:
    (daemon,) = daemons(asked(memory_limit=limit), [0])
    assert daemon.controls[1].answer == limit and mebibytes(limit) > 0


@pytest.mark.pure
@given(st.integers(0, 99))
def test_a_limit_of_one_gpu_counts_for_that_gpu_whatever_its_index(index: int) -> None:
    assert asked(memory_limits={str(index): "16G"}).limit_of(index) == "16G"


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


@pytest.mark.pure
def test_clients_need_room_on_every_gpu() -> None:
    eight = asked(memory_limit="10G", clients=8)
    assert without_room(eight, {0: 81920, 1: None}) is None
    assert "8 clients with 10G each are 81920 MiB, and GPU 1 has 81559" in str(without_room(eight, {0: None, 1: 81559}))


@pytest.mark.pure
@pytest.mark.parametrize(
    ("gpu", "more", "says"),
    [
        (P100, {"clients": 17}, "which is older than Volta, serves 16"),
        (P100, {"memory_limit": "1G"}, "has no limits of threads and memory"),
        (P100, {"active_thread_percentage": "50"}, "has no limits of threads and memory"),
        (H100, {"clients": 11, "memory_limit": "8G"}, "11 clients with 8G each"),
        (H100, {"memory_limits": {"1": "8G"}}, "names GPU 1, and the node has 1"),
    ],
)
def test_preflight_refuses_what_a_gpu_cannot_serve(gpu: PciGpu, more: dict[str, Any], says: str) -> None:
    (refusal,) = mps_refusals(settings_from({"mps": {"enabled": True, **more}}), (gpu,))
    assert says in refusal.reason and refusal.remedy and refusal.source


@pytest.mark.pure
def test_mps_and_mig_exclude_each_other_and_what_fits_is_not_refused() -> None:
    both = settings_from({"mps": {"enabled": True}, "mig": {"config": "all-balanced"}})
    (refusal,) = mps_refusals(both, (H100,))
    assert "mig.config" in refusal.reason and "'all-disabled'" in refusal.remedy
    whole = settings_from({"mps": {"enabled": True}, "mig": {"config": "all-disabled"}})
    assert not list(mps_refusals(whole, (H100,)))
    assert not list(mps_refusals(settings_from({"mps": {"enabled": True, "clients": 48}}), (H100,)))
    assert not list(mps_refusals(settings_from({"mig": {"config": "all-balanced"}}), (H100,)))


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
    program = tmp_path / "nvidia-cuda-mps-control"
    program.write_text(SIMULATED)
    program.chmod(0o755)
    (tmp_path / "percentage").write_text("100.0\n")
    script, settings = tmp_path / "apply", tmp_path / "node.settings"
    script.write_text(rendered("nvidia-mps-settings", program=str(program)))
    (daemon,) = daemons(asked(active_thread_percentage=percentage, memory_limits={"1": "8G"}), range(2))
    settings.write_text(control_text(daemon.controls))
    environment = {"PATH": "/usr/bin:/bin", "STATE": str(tmp_path), "CUDA_MPS_PIPE_DIRECTORY": "/run/x"}
    done = subprocess.run(["sh", script, settings], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "limit1").read_text()) == (code, "8G\n")
    if code:
        assert "`get_default_active_thread_percentage` answers '100.0', not '40.0'" in done.stderr


@pytest.mark.pure
def test_the_probe_s_lines_become_daemons() -> None:
    found = parse_mps(
        [
            "program=/usr/bin/nvidia-cuda-mps-control",
            "file=/etc/systemd/system/nvidia-mps.service abc",
            "reading=nvidia-mps.service\tget_default_active_thread_percentage\t50.0",
            "daemon=nvidia-mps.service\tactive\tenabled\tyes\t\t\tyes\tdef\t1\t3\t2\tServer 1 exited with status 1",
        ]
    )
    (daemon,) = found.daemons
    assert (daemon.clients, daemon.errors, daemon.stale, daemon.settings) == (3, 2, False, "def")
    assert daemon.exclusive is True
    assert daemon.reads("get_default_active_thread_percentage") == "50.0"
    assert parse_mps([]) == Mps()


@pytest.mark.pure
@pytest.mark.parametrize(
    "line", ["daemon=one", "daemon=" + "\t".join("abcdefghijkl"), "reading=x", "file=alone", "program=/x y"]
)
def test_other_lines_are_an_error(line: str) -> None:
    with pytest.raises(ParseError):
        parse_mps([line])


@pytest.mark.pure
def test_a_node_that_is_as_asked_is_left_alone(host: Host) -> None:
    assert run(host, settled(asked()), asked()) == [] and "as desired" in host.noops[0]
    assert run(host, Mps(PROGRAM), MpsSettings.model_validate({})) == []


@pytest.mark.pure
def test_another_percentage_is_told_without_a_restart(host: Host) -> None:
    (script,) = run(host, settled(asked()), asked(active_thread_percentage="50"), allowed=False)
    assert "\nrestart=''\n" in script and "\ntold=nvidia-mps.service\n" in script


@pytest.mark.pure
@pytest.mark.parametrize("fault", [{"active": False}, {"answers": False}, {"stale": True}])
def test_a_daemon_that_is_not_well_is_restarted_unless_its_clients_must_not_be_disturbed(
    host: Host, fault: dict[str, Any]
) -> None:
    (script,) = run(host, settled(asked(), **fault), asked(), allowed=False)
    assert "\nrestart=nvidia-mps.service\n" in script
    # One that does not answer may have clients, and cannot say so.
    clients = 2 if fault.get("answers", True) else None
    if fault.get("active", True):
        assert run(host, settled(asked(), **fault, clients=clients), asked(), allowed=False) == []
        assert f"({clients or '?'} of nvidia-mps.service)" in host.noops[-1]


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


@pytest.mark.pure
def test_one_daemon_becomes_two_and_nothing_of_the_one_is_left(host: Host) -> None:
    (script,) = run(host, settled(asked(), gpus=2), asked(daemons="gpu"), gpus=2)
    assert "\ngone=nvidia-mps.service\n" in script
    assert "\nremoved='/etc/systemd/system/nvidia-mps.service /etc/nvidia-mps/node.settings'\n" in script
    assert "\nrestart='nvidia-mps@0.service nvidia-mps@1.service'\n" in script


@pytest.mark.pure
def test_a_daemon_whose_settings_file_is_gone_is_stopped_all_the_same(host: Host) -> None:
    there = settled(asked())
    lost = replace(there, daemons=(replace(there.daemons[0], settings=None),))
    (script,) = run(host, lost, MpsSettings.model_validate({}))
    assert "\ngone=nvidia-mps.service\n" in script


@pytest.mark.pure
def test_a_unit_of_somebody_else_is_neither_written_over_nor_taken_away(host: Host) -> None:
    theirs = Mps(PROGRAM, foreign=(UNITS[0],))
    assert run(host, theirs, MpsSettings.model_validate({})) == []
    host.readings |= {MpsFact: theirs}
    wanted = {"desired": daemons(asked(), [0]), "settings": asked(), "restart_allowed": True}
    assert commands(operation.daemons, host, **wanted) == [] and UNITS[0] in host.refusals[0]


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
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "units").mkdir()
        (folder / "apply").write_text('#!/bin/sh\necho "apply $1" >> "$STATE/log"; [ ! -e "$STATE/refuses" ]\n')
        for name, text in {**COMMANDS, "apply": ""}.items():
            (folder / "bin" / name).write_text(f"#!/bin/sh\n{text}")
            (folder / "bin" / name).chmod(0o755)
        (folder / "apply").chmod(0o755)
        (folder / "modes").write_text("0, Exclusive_Process\n1, Exclusive_Process\n")
        for name in ("active", "broken", "log"):
            (folder / name).touch()

    def change(self, fails: bool = True, **variables: str) -> str:
        """Run a change that writes the units' files; return what was done."""
        units = {f"nvidia-mps@{number}.service" for number in "01"}
        paths = [str(self.folder / "units" / unit) for unit in sorted(units)]
        given = {
            "read": "\n".join(f"{path} unread" for path in paths), "removed": "",
            "units": " ".join(sorted(units)), "gone": "", "restart": "",
            "written": "\n".join(f"{path} 644 {base64.b64encode(b'unit').decode()}" for path in paths), "told": "",
            "modes": "", "mode": "EXCLUSIVE_PROCESS", "shown": "Exclusive_Process",
            "script": str(self.folder / "apply"), "folder_of_settings": "/etc/nvidia-mps", **variables,
        }  # fmt: skip
        text = transaction_text(operation._CHANGE, "target-1", given)
        text = text.replace("folder=/var/lib/gpunode/transactions", f"folder={self.folder}", 1)
        path = self.folder / "mps.sh"
        path.write_text(script(text))
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
    for unit in ("nvidia-mps@0.service", "nvidia-mps@1.service"):
        (tmp_path / "units" / unit).write_text("before")
    (tmp_path / "deaf").touch()
    log = machine.change(told="nvidia-mps@0.service", modes="1")
    assert "restart" not in log and log.count("apply") == 2
    assert {path.read_text() for path in (tmp_path / "units").iterdir()} == {"before"}
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
    unit = tmp_path / "units" / "nvidia-mps.service"
    if there:
        unit.write_text("before")
    (tmp_path / "active").write_text("nvidia-mps.service\n" if active else "")
    settings = tmp_path / "node.settings"
    settings.write_text("before")
    files = f"{unit} {settings}" if there else str(settings)
    read = "".join(f"{file} unread\n" for file in files.split())
    log = machine.change(fails=False, units="", written="", gone="nvidia-mps.service", read=read, removed=files)
    assert (tmp_path / "active").read_text() == "" and not unit.exists() and not settings.exists()
    assert ("\nstop nvidia-mps.service\n" in log) is active and "disable" in log


@pytest.mark.simulated
def test_a_daemon_whose_unit_is_there_and_stays_enabled_is_not_called_gone(tmp_path: Path) -> None:
    machine = Systemd(tmp_path)
    for name in ("active", "broken", "units/nvidia-mps.service"):
        (tmp_path / name).write_text("nvidia-mps.service\n")
    unit = str(tmp_path / "units" / "nvidia-mps.service")
    log = machine.change(units="", written="", gone="nvidia-mps.service", read=f"{unit} unread", removed=unit)
    assert Path(unit).exists() and "restart nvidia-mps.service" in log


@pytest.mark.simulated
def test_a_unit_that_somebody_changed_since_it_was_read_stops_the_change(tmp_path: Path) -> None:
    machine = Systemd(tmp_path)
    unit = tmp_path / "units" / "nvidia-mps@0.service"
    unit.write_text("by hand")
    (tmp_path / "log").touch()
    machine.change(read=f"{unit} {digest_of('before')}\n{tmp_path}/units/nvidia-mps@1.service none")
    assert unnamed(machine.said, unit) == []
    assert unit.read_text() == "by hand" and list((tmp_path / "units").iterdir()) == [unit]
    assert not (tmp_path / "mps.json").exists(), "nothing began"


@pytest.mark.simulated
def test_what_somebody_wrote_into_a_unit_after_the_change_was_cut_off_is_kept_and_named(tmp_path: Path) -> None:
    machine = Systemd(tmp_path)
    units = [tmp_path / "units" / f"nvidia-mps@{number}.service" for number in "01"]
    units[0].write_text("before")
    machine.change(fails=False)
    units[0].write_text("by hand")
    units[1].write_text("by hand, too")
    done = machine.run("undo")
    assert done.returncode == 0, done.stderr
    lost = [Path(f"{unit}.gpunode-lost") for unit in units]
    assert [each.read_text() for each in lost] == ["by hand", "by hand, too"]
    assert unnamed(done.stderr, *lost) == []
    assert units[0].read_text() == "before" and not units[1].exists()


@pytest.mark.pure
def test_each_file_that_is_to_change_is_told_with_what_was_read_of_it(host: Host) -> None:
    there = settled(asked())
    (script,) = run(host, replace(there, files=tuple((path, "0" * 64) for path, _ in there.files[:1])), asked())
    told = script.partition("\nread='")[2].partition("'")[0].splitlines()
    assert f"{there.files[0][0]} {'0' * 64}" in told and f"{there.files[1][0]} none" in told
    (script,) = run(host, there, MpsSettings.model_validate({}))
    told = script.partition("\nread='")[2].partition("'")[0].splitlines()
    assert {*told} >= {f"{path} {digest}" for path, digest in there.files}


@pytest.mark.pure
def test_what_is_not_wanted_any_more_goes_with_its_files(host: Host) -> None:
    (script,) = run(host, settled(asked()), MpsSettings.model_validate({}))
    assert "\ngone=nvidia-mps.service\n" in script and APPLY in script.partition("\nremoved=")[2].partition("\n")[0]


@pytest.mark.pure
def test_a_compute_mode_that_strays_is_set_again_alone(host: Host) -> None:
    (script,) = run(host, settled(asked(), gpus=2), asked(), gpus=2, compute_mode="Default")
    assert "\nmodes='0 1'\n" in script and "\nrestart=''\n" in script and "\nmode=EXCLUSIVE_PROCESS\n" in script


@pytest.mark.pure
@pytest.mark.parametrize(("daemons_of", "modes"), [("gpu", "1"), ("node", "''")])
def test_a_restart_sets_the_mode_of_its_own_gpus_alone(host: Host, daemons_of: str, modes: str) -> None:
    settings = asked(daemons=daemons_of)
    there = settled(settings, gpus=2)
    first, *others = there.daemons
    down = replace(there, daemons=(replace(first, active=False, answers=False), *others))
    (script,) = run(host, down, settings, gpus=2, compute_mode="Default")
    assert f"\nrestart={first.unit}\n" in script and f"\nmodes={modes}\n" in script


@pytest.mark.pure
def test_clients_beyond_a_gpu_s_real_memory_and_a_missing_program_are_refused(host: Host) -> None:
    host.readings |= {
        MpsFact: settled(asked()), GpusFact: Gpus("ok", 0, None, (ROW,)),
        TransactionJournal: Journal(None, None, None, False),
    }  # fmt: skip
    full = asked(memory_limit="10G", clients=8)
    wanted = {"desired": daemons(full, [0]), "settings": full, "restart_allowed": True}
    assert commands(operation.daemons, host, **wanted) == [] and "GPU 0 has 81559 MiB" in host.refusals[0]
    host.readings[MpsFact] = Mps()
    assert commands(operation.daemons, host, **wanted) == [] and "nvidia-cuda-mps in Debian" in host.refusals[1]


@pytest.mark.pure
def test_drift_and_plan_name_what_strays() -> None:
    settings = settings_from({"driver": {"version": "580.95.05"}, "mps": {"enabled": True}})
    good = replace(GOOD, mps=settled(settings.mps), gpus=Gpus("ok", 0, None, (ROW,)))
    assert all(item.finding_class is FindingClass.OK for item in judged(settings, good))
    (daemon,) = good.mps.daemons
    wrong = replace(daemon, readings=(("get_default_active_thread_percentage", "50.0"), *daemon.readings[1:]))
    node = replace(good, mps=replace(good.mps, daemons=(replace(wrong, stale=True, enabled=False),)))
    bad = [item for item in judged(settings, node) if item.finding_class is not FindingClass.OK]
    assert [(item.what, item.actual, item.desired) for item in bad] == [
        ("starts at boot: nvidia-mps.service", "no", "yes"),
        ("running configuration nvidia-mps.service", "older than its unit", "the unit's"),
        ("daemon node, active_thread_percentage", "50.0", "100.0"),
    ]
    steps = [step.action for step in plan(settings, node).steps if step.component == "mps"]
    assert "restart the MPS daemon" in steps and "tell the MPS daemon of node, active_thread_percentage 100.0" in steps


@pytest.mark.pure
def test_what_is_left_of_mps_is_drift_where_it_is_not_asked_for() -> None:
    off = settings_from({"driver": {"version": "580.95.05"}})
    (item,) = judged(off, replace(GOOD, mps=settled(asked())))
    assert (item.finding_class, item.what, item.desired) == (FindingClass.DRIFT, "service nvidia-mps.service", "none")


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


FOUND = asked(environment=True)


@pytest.mark.pure
def test_programs_that_would_pass_the_daemon_by_are_a_caution_until_the_variable_is_set_for_them() -> None:
    (caution,) = mps_cautions(settings_from({"mps": {"enabled": True}}))
    assert "CUDA_MPS_PIPE_DIRECTORY" in caution.reason and "mps.environment" in caution.remedy
    assert not list(mps_cautions(settings_from({"mps": {"enabled": True, "environment": True}})))
    assert not list(mps_cautions(settings_from({})))


@pytest.mark.pure
def test_sharing_by_mps_is_a_caution_for_the_plugin_calls_it_experimental() -> None:
    sharing = {"sharing": {"strategy": "mps", "replicas": 4}}
    (caution,) = mps_cautions(settings_from({"kubernetes": {"enabled": True}, **sharing}))
    assert "experimental" in caution.reason and "MIG" in caution.reason and caution.component == "device_plugin"
    assert not list(mps_cautions(settings_from({"kubernetes": {"enabled": True}})))


@pytest.mark.pure
def test_one_variable_for_daemons_of_single_gpus_is_refused() -> None:
    with pytest.raises(SettingsError) as refused:
        asked(environment=True, daemons="gpu")
    assert "mps.environment" in str(refused.value) and "/run/nvidia-mps/INDEX" in str(refused.value)


@pytest.mark.pure
def test_the_variable_comes_without_a_restart_and_goes_with_the_setting_or_the_daemon(host: Host) -> None:
    (script,) = run(host, settled(asked(), clients=3), FOUND, allowed=False)
    assert "\nrestart=''\n" in script and "\nremoved=''\n" in script and "\ntold=''\n" in script
    assert all(path in script.partition("\nwritten=")[2] for path in PATHS)
    assert run(host, settled(FOUND), FOUND) == []
    (script,) = run(host, settled(FOUND, clients=3), asked(), allowed=False)
    assert f"\nremoved='{PROFILE} {ENVIRONMENT}'\n" in script and "\nrestart=''\n" in script
    (script,) = run(host, settled(FOUND), MpsSettings.model_validate({}))
    assert PROFILE in script.partition("\nremoved=")[2].partition("\n")[0]


@pytest.mark.pure
def test_a_variable_that_somebody_else_sets_is_left_alone_where_nobody_asks_for_it(host: Host) -> None:
    theirs = replace(settled(asked()), foreign=(PROFILE,))
    assert run(host, theirs, asked()) == [] and not host.refusals
    wanted = {"desired": daemons(FOUND, [0]), "settings": FOUND, "restart_allowed": True}
    host.readings |= {MpsFact: theirs}
    assert commands(operation.daemons, host, **wanted) == [] and PROFILE in host.refusals[0]


@pytest.mark.pure
def test_drift_and_plan_name_a_variable_that_is_missing_changed_or_left_behind() -> None:
    settings = settings_from({"driver": {"version": "580.95.05"}, "mps": {"enabled": True, "environment": True}})
    good = replace(GOOD, mps=settled(settings.mps), gpus=Gpus("ok", 0, None, (ROW,)))
    assert all(item.finding_class is FindingClass.OK for item in judged(settings, good))
    files = {**dict(good.mps.files), ENVIRONMENT: "0" * 64}
    del files[PROFILE]
    node = replace(good, mps=replace(good.mps, files=tuple(files.items())))
    bad = [item for item in judged(settings, node) if item.finding_class is not FindingClass.OK]
    assert [(item.what, item.actual, item.desired) for item in bad] == [
        (f"CUDA_MPS_PIPE_DIRECTORY in {PROFILE}", "none", "/run/nvidia-mps"),
        (f"CUDA_MPS_PIPE_DIRECTORY in {ENVIRONMENT}", "another text", "/run/nvidia-mps"),
    ]
    steps = [step.action for step in plan(settings, node).steps if step.component == "mps"]
    assert steps == [f"set CUDA_MPS_PIPE_DIRECTORY in {path}" for path in PATHS]
    off = settings_from({"driver": {"version": "580.95.05"}, "mps": {"enabled": True}})
    bad = [item for item in judged(off, good) if item.finding_class is not FindingClass.OK]
    assert [(item.actual, item.desired) for item in bad] == [("/run/nvidia-mps", "none")] * 2
    steps = [step.action for step in plan(off, good).steps if step.component == "mps"]
    assert steps == [f"no longer set CUDA_MPS_PIPE_DIRECTORY in {path}" for path in PATHS]


@pytest.mark.simulated
def test_a_login_shell_has_the_variable_and_keeps_one_that_it_has(tmp_path: Path) -> None:
    script = tmp_path / "gpunode-mps.sh"
    script.write_text(environment_files(FOUND)[PROFILE])
    for before, expected in (({}, "/run/nvidia-mps"), ({"CUDA_MPS_PIPE_DIRECTORY": "/tmp/own"}, "/tmp/own")):
        line = f". {script}; env | sed -n s/^CUDA_MPS_PIPE_DIRECTORY=//p"
        done = subprocess.run(["sh", "-euc", line], env=before, capture_output=True, text=True, check=True)
        assert done.stdout == f"{expected}\n"


@pytest.mark.simulated
def test_a_folder_that_the_change_makes_may_be_read_by_everybody(tmp_path: Path) -> None:
    path = tmp_path / "environment.d" / "50-gpunode-mps.conf"
    written = f"{path} 644 {base64.b64encode(b'text').decode()}"
    Systemd(tmp_path).change(fails=False, units="", read=f"{path} none", written=written)
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o755, 0o644)


@pytest.mark.pure
def test_the_unit_s_own_directory_is_the_one_that_programs_are_told() -> None:
    (daemon,) = daemons(FOUND, [0])
    assert f"Environment={VARIABLE}={PIPE_DIRECTORY}\n" in desired_files([daemon], FOUND, PROGRAM)[daemon.unit_path]
