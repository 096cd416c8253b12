"""The GPUs' health: what nvidia-smi and the kernel log say, and what is made of it. No GPU: the answers are made up."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import tables
from gpunode.base.findings import ExitCode, Finding, FindingClass, verdict
from gpunode.base.probe import Probe, batch_answers, batch_command
from gpunode.base.probe_output import checked, sections
from gpunode.base.reading import ParseError
from gpunode.components.mig.smi import parse_mig
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.health import Health as HealthFact
from gpunode.facts.mig import Mig as MigFact
from gpunode.node import Node
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from gpunode.system.gpu import Gpus, parse_gpus
from gpunode.system.health import GpuHealth, Health, Xid, parse_health
from tests.support.smi_rows import memory
from tests.support.verify import GOOD, SETTINGS, bad

pytestmark = pytest.mark.pure

(WELL,) = GOOD.health.gpus
ANSWER = [
    memory("00000000:1A:00.0", "0", "3"),
    "gpu.rc=0",
    "remapped=00000000:1A:00.0, 0, 0",
    "remapped.rc=0",
    "log=read",
]


def sick(change: dict[str, object]) -> Node:
    return replace(GOOD, health=replace(GOOD.health, gpus=(replace(WELL, **change),)))  # type: ignore[arg-type]


def errors(node: Node) -> list[Finding]:
    return [item for item in judge(SETTINGS, node) if item.finding_class is FindingClass.ERROR]


def test_the_two_queries_are_one_gpu_s_health() -> None:
    assert parse_health(ANSWER) == Health(0, (GpuHealth("0000:1a:00.0", 0, 3, False, False),), (), log_read=True)


@pytest.mark.parametrize(
    "cells, errors_since, requires_reset",
    [("7 9", 7, False), ("[N/A] [N/A]", None, False), ("[GPU requires reset]", None, True)],
)
def test_a_count_that_is_not_told_is_unknown_and_not_zero(
    cells: str, errors_since: int | None, requires_reset: bool
) -> None:
    told = [cells, cells] if "requires" in cells else cells.split()
    (gpu,) = parse_health([memory("00000000:1A:00.0", *told), "gpu.rc=0"]).gpus
    assert (gpu.uncorrected_errors, gpu.requires_reset) == (errors_since, requires_reset)


@pytest.mark.parametrize("yes, no", [("1", "0"), ("Yes", "No")])
def test_row_remapping_is_read_in_either_spelling(yes: str, no: str) -> None:
    for pending, failed in ((yes, no), (no, yes)):
        (gpu,) = parse_health([*ANSWER[:2], f"remapped=00000000:1A:00.0, {pending}, {failed}", "remapped.rc=0"]).gpus
        assert (gpu.remap_pending, gpu.remap_failed) == (pending == yes, failed == yes)


@pytest.mark.parametrize(
    "lines",
    [
        ["remapped=00000000:1A:00.0, [N/A], [N/A]", "remapped.rc=0"],
        ["remapped=ERROR: Option --query-remapped-rows is not recognized.", "remapped.rc=255"],
        ["remapped=Not Supported", "remapped.rc=3"],
    ],
)
def test_a_gpu_without_a_row_remapper_is_well_all_the_same(lines: list[str]) -> None:
    found = parse_health([*ANSWER[:2], *lines, "log=read"])
    assert (found.gpus[0].remap_pending, found.gpus[0].remap_failed) == (None, None)
    assert bad(replace(GOOD, health=found)) == []


def test_what_a_failed_query_prints_is_no_row() -> None:
    found = parse_health(["gpu=Failed to initialize NVML: Driver/library version mismatch", "gpu.rc=18"])
    assert (found.exit_code, found.gpus) == (18, ())


def test_a_row_with_too_few_columns_is_refused() -> None:
    with pytest.raises(ParseError, match="1 of 27 columns"):
        parse_health(["gpu=00000000:1A:00.0", "gpu.rc=0"])


@pytest.mark.parametrize(
    "line, xid",
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            Xid("0000:3b:00", 79, "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."),
        ),
        (
            "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping",
            Xid("0000:10:1c", 63, "pid=1896, Row Remapper: New row marked for remapping"),
        ),
        ("NVRM: Xid (0000:01:00): 3, C 00000005 SC 00000007", Xid("0000:01:00", 3, "C 00000005 SC 00000007")),
        ("NVRM: Xid (PCI:0000:0A:00): 43", Xid("0000:0a:00", 43, "")),
        ("NVRM: GPU at PCI:0000:3b:00: GPU-0b11d014-1685-04bd-26ed-5fc0bc1c44ae", None),
        ("NVRM: Xid (43, pid: 5678): words that are none", None),
        ("NVRM: Xid", None),
    ],
)
def test_an_xid_is_read_as_the_driver_writes_it_and_any_other_line_is_left_out(line: str, xid: Xid | None) -> None:
    assert parse_health([f"xid={line}"]).xids == ((xid,) if xid else ())


ADDRESSES = st.from_regex(r"0000[0-9A-F]{4}:[0-9A-F]{2}:[0-9A-F]{2}\.0", fullmatch=True)
COUNTS = st.one_of(st.none(), st.integers(0, 2**63))
FLAGS = st.one_of(st.none(), st.booleans())


def cell(value: int | None) -> str:
    return "[N/A]" if value is None else str(int(value))


@given(st.lists(st.tuples(ADDRESSES, COUNTS, COUNTS, FLAGS, FLAGS), max_size=16, unique_by=lambda row: row[0]))
def test_whatever_nvidia_smi_says_of_any_number_of_gpus_is_read_back(
    rows: list[tuple[str, int | None, int | None, bool | None, bool | None]],
) -> None:
    lines = ["gpu.rc=0", "remapped.rc=0"]
    lines += [memory(address, cell(since), cell(ever)) for address, since, ever, _, _ in rows]
    # The two queries run at the same time: their lines come in any order.
    lines += [
        f"remapped={address}, {cell(pending)}, {cell(failed)}" for address, _, _, pending, failed in reversed(rows)
    ]
    wanted = tuple(
        GpuHealth(address.lower()[4:], since, ever, pending, failed) for address, since, ever, pending, failed in rows
    )
    assert parse_health(lines).gpus == wanted


PRINTABLE = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=80)


@given(st.lists(PRINTABLE, max_size=8))
def test_any_kernel_log_is_survived_and_makes_no_xid_out_of_nothing(lines: list[str]) -> None:
    found = parse_health([f"xid={line}" for line in lines])
    assert len(found.xids) <= sum("NVRM: Xid (" in line for line in lines)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["gpu", "gpu.rc", "remapped", "remapped.rc", "absent", "unloaded", "xid", "log"]), PRINTABLE
        )
    )
)
def test_garbage_is_a_reading_or_a_parse_error(pairs: list[tuple[str, str]]) -> None:
    with contextlib.suppress(ParseError):
        lines = ["gpu.rc=0", "remapped.rc=0", *(f"{key}={value}" for key, value in pairs)]
        assert isinstance(parse_health(lines), Health)


@pytest.mark.parametrize(
    "change, what, remedy",
    [
        ({"uncorrected_errors": 1}, "uncorrected ECC errors of 0000:1a:00.0", "reset the GPU"),
        ({"remap_pending": True}, "row remapping of 0000:1a:00.0", "reset the GPU"),
        ({"remap_failed": True}, "row remapping of 0000:1a:00.0", "have the GPU replaced"),
        ({"remap_failed": True, "remap_pending": True}, "row remapping of 0000:1a:00.0", "have the GPU replaced"),
        ({"uncorrected_errors": None, "requires_reset": True}, "state of 0000:1a:00.0", "reset the GPU"),
    ],
)
def test_a_sick_gpu_is_one_error_that_names_it_and_its_remedy(
    change: dict[str, object], what: str, remedy: str
) -> None:
    (item,) = errors(sick(change))
    assert (item.component, item.what) == ("health", what)
    assert item.remedy is not None and remedy in item.remedy
    assert verdict(judge(SETTINGS, sick(change))) is ExitCode.ERROR


def test_errors_of_the_past_that_are_over_are_no_finding() -> None:
    assert bad(sick({"uncorrected_errors_ever": 12})) == []


@pytest.mark.parametrize("code", [46, 48, 64, 74, 79, 95, 119, 120])
def test_a_critical_xid_is_an_error_with_its_meaning_remedy_and_source(code: int) -> None:
    node = replace(GOOD, health=replace(GOOD.health, xids=(Xid("0000:1a:00", code, ""), Xid("0000:1a:00", 13, "app"))))
    (item,) = errors(node)
    row = tables.health().critical_xids[code]
    assert (item.what, item.actual) == (f"Xid {code} of 0000:1a:00", row.name)
    assert item.cause is not None and row.name in item.cause
    assert item.source is not None and item.source.startswith("NVIDIA Xid errors documentation")
    assert ("not looked up" in item.source) is not row.verified
    assert item.remedy is not None and row.remedy in ("reset", "reboot") and row.remedy in item.remedy


@pytest.mark.parametrize(
    ("to", "remedy"),
    [
        ("0x1 (GPU Reset Required)", "reset the GPU"),
        ("0x2 (Node Reboot Required)", "reboot the node"),
        ("0x3 (Drain P2P)", "do what the message names"),
        ("0x4 (Drain and Reset)", "reset the GPU"),
        ("0x9 (Of Tomorrow)", "do what the message names"),
    ],
)
def test_the_recovery_action_that_the_driver_asks_for_is_the_remedy(to: str, remedy: str) -> None:
    said = f"GPU recovery action changed from 0x0 (None) to {to}"
    (item,) = errors(replace(GOOD, health=replace(GOOD.health, xids=(Xid("0000:1a:00", 154, said),))))
    assert (item.what, item.actual) == ("Xid 154 of 0000:1a:00", said)
    assert item.remedy is not None and remedy in item.remedy
    assert item.source is not None and item.source.startswith("NVIDIA Xid errors documentation")


def test_a_recovery_action_that_was_taken_back_is_no_finding() -> None:
    over = Xid("0000:1a:00", 154, "GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)")
    node = replace(GOOD, health=replace(GOOD.health, xids=(over,), log_read=True))
    assert bad(node) == []
    assert "Xids" in {item.what for item in judge(SETTINGS, node)}


def test_an_application_s_own_xid_is_no_finding() -> None:
    node = replace(GOOD, health=replace(GOOD.health, xids=(Xid("0000:1a:00", 13, ""), Xid("0000:1a:00", 31, ""))))
    assert bad(node) == []


def test_a_kernel_log_that_cannot_be_read_is_not_called_free_of_xids() -> None:
    def said(log_read: bool) -> set[str]:
        return {item.what for item in judge(SETTINGS, replace(GOOD, health=replace(GOOD.health, log_read=log_read)))}

    assert said(True) - said(False) == {"Xids"}


def test_a_wedged_gpu_is_told_once_and_a_query_that_fails_alone_is_told() -> None:
    silent = Health(137, (), (), log_read=True)
    hangs = replace(GOOD, gpus=Gpus("hangs", 137, None, ()), health=silent)
    assert [item.what for item in errors(hangs)] == ["GPUs by nvidia-smi"]
    assert [item.what for item in errors(replace(GOOD, health=silent))] == ["memory errors by nvidia-smi"]


def test_the_health_of_gpus_is_no_concern_where_the_driver_is_none() -> None:
    settings = settings_from({"driver": {"enabled": False}})
    assert "health" not in {item.component for item in judge(settings, sick({"uncorrected_errors": 1}))}


@pytest.fixture
def programs(tmp_path: Path) -> Callable[..., str]:
    """Return a function that puts programs of given texts before all others, and returns the shell text for it."""

    def put(**texts: str) -> str:
        for name, text in texts.items():
            path = tmp_path / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        return f"PATH={tmp_path}:$PATH; "

    return put


def loaded(command: str) -> str:
    """Return a command for a machine whose kernel module nvidia is loaded, as far as it looks."""
    return command.replace("/sys/module/nvidia", "/tmp")


# Each call waits for the other one: had they to run one after the other, neither would answer.
TOGETHER = """
cd "$(dirname "$0")"; case $1 in *remapped*) mine=rows other=all;; *) mine=all other=rows;; esac
: > "$mine.up"; tries=0
while [ ! -e "$other.up" ]; do tries=$((tries + 1)); [ "$tries" -lt 100 ] || exit 1; sleep 0.1; done
[ "$mine" = all ] && echo 'ROW' || echo '00000000:1A:00.0, 0, 0'
""".replace("ROW", memory("00000000:1A:00.0", "0", "3").removeprefix("gpu="))


def test_the_probe_asks_both_at_once_and_finds_each_kind_of_xid_once(
    programs: Callable[..., str], run_shell: Callable[[str], tuple[int, list[str]]]
) -> None:
    path = programs(
        nvidia_smi=TOGETHER,
        dmesg='for pid in 1 2 3; do echo "[ 7.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=$pid, MMU Fault"; done\n'
        "echo '[ 8.2] usb 1-1: new device'; echo '[ 9.3] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.'",
        journalctl="echo 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.'\n"
        "echo 'NVRM: Xid (PCI:0000:5e:00): 48, from before the ring buffer went round'",
    )
    code, lines = run_shell(path + loaded(HealthFact().command()))
    found = parse_health(checked(lines))
    assert (code, found.exit_code, found.log_read) == (0, 0, True)
    assert found.gpus == (GpuHealth("0000:1a:00.0", 0, 3, False, False),)
    assert [(xid.pci_address, xid.code) for xid in found.xids] == [
        ("0000:3b:00", 31), ("0000:3b:00", 79), ("0000:5e:00", 48),
    ]  # fmt: skip


@pytest.mark.parametrize("ring_buffer", [True, False])
def test_the_last_recovery_action_of_a_gpu_counts(
    programs: Callable[..., str], run_shell: Callable[[str], tuple[int, list[str]]], ring_buffer: bool
) -> None:
    action = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from"
    asked, over = f"{action} 0x0 (None) to 0x2 (Node Reboot Required)", f"{action} 0x2 (x) to 0x0 (None)"
    log = f"echo '{asked}'; echo '{over}'; echo '{asked}'; echo '{over}'"
    path = programs(
        nvidia_smi=TOGETHER, dmesg=log if ring_buffer else "exit 1",
        journalctl=f"echo '{asked}'" if ring_buffer else log,
    )  # fmt: skip
    found = parse_health(checked(run_shell(path + loaded(HealthFact().command()))[1]))
    assert found.xids == (Xid("0000:3b:00", 154, over.partition(": 154, ")[2]),)


def test_a_kernel_log_that_is_refused_is_not_read(
    programs: Callable[..., str], run_shell: Callable[[str], tuple[int, list[str]]]
) -> None:
    path = programs(dmesg="echo 'dmesg: read kernel buffer failed' >&2; exit 1", journalctl="exit 1")
    assert not parse_health(checked(run_shell(path + HealthFact().command())[1])).log_read


@pytest.mark.parametrize("xid", [Xid("0000:1a:00", 63, ""), Xid("0000:1a:00", 94, ""), Xid("0000:ff:00", 79, "")])
def test_a_remap_that_worked_and_a_gpu_of_another_machine_are_no_errors(xid: Xid) -> None:
    assert not errors(replace(GOOD, health=replace(GOOD.health, xids=(xid,))))


@pytest.mark.parametrize("code", [124, 137, 0, 9])
@pytest.mark.parametrize("batched", [False, True])
def test_a_wedged_gpu_is_waited_for_once_in_a_reading(tmp_path: Path, code: int, batched: bool) -> None:
    """nvidia-smi is SIMULATED, and so is `timeout`, which says that it hung."""
    (tmp_path / "timeout").write_text(
        f'#!/bin/sh\ncase "$*" in *nvidia-smi*) echo "$5" >> {tmp_path}/calls; exit {code};; esac\n'
    )
    for name in ("nvidia-smi", "dmesg"):
        (tmp_path / name).write_text("#!/bin/sh\n")
    for name in ("timeout", "nvidia-smi", "dmesg"):
        (tmp_path / name).chmod(0o755)
    texts = [GpusFact.probe, HealthFact.probe, MigFact.probe]
    names = ["gpus", "health", "mig"]
    command = loaded(batch_command(texts, "m") if batched else Probe(list(zip(names, texts, strict=True))))
    done = subprocess.run(
        ["sh", "-c", command], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, timeout=30, check=True,
    )  # fmt: skip
    # Two, and at the same time (above): what hung is not asked again by any part.
    calls = [line.partition("=")[0] for line in (tmp_path / "calls").read_text().splitlines()]
    assert sorted(calls) == ["--query-gpu", "--query-remapped-rows"]
    lines = done.stdout.splitlines()
    answers = batch_answers(texts, "m", lines) if batched else None
    parts = answers or dict(zip(texts, sections(lines[: lines.index("gpunode:end")]).values(), strict=True))
    status = {124: "hangs", 137: "hangs", 0: "ok", 9: "no driver"}[code]
    assert parse_gpus(parts[texts[0]]).status == status
    assert parse_health(parts[texts[1]]).exit_code == code
    assert parse_mig(parts[texts[2]]).status == status


@pytest.mark.parametrize("installed", [True, False])
def test_nvidia_smi_is_not_started_where_no_module_is_loaded(tmp_path: Path, installed: bool) -> None:
    """nvidia-smi is SIMULATED: the real one would load the module, and a reading changes nothing."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho >> {tmp_path}/calls\n")
    program.chmod(0o755 if installed else 0o644)
    parts = [("gpus", GpusFact.probe), ("health", HealthFact.probe), ("mig", MigFact.probe)]
    command = Probe(parts).replace("/sys/module/nvidia", f"{tmp_path}/none")
    done = subprocess.run(
        ["sh", "-c", command], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert not (tmp_path / "calls").exists()
    told = sections(done.stdout.splitlines())
    gpus, mig = parse_gpus(told["gpus"]), parse_mig(told["mig"][: told["mig"].index("")])
    assert gpus.status == mig.status == ("no driver" if installed else "absent")
    assert (gpus.exit_code, parse_health(told["health"]).exit_code) == (None, None)
    if installed:
        assert gpus.message == mig.message and gpus.message is not None and "was not asked" in gpus.message


@pytest.mark.parametrize(
    ("said", "code", "told"), [("Unknown Error", 255, True), ("", 124, True), ("Not Supported", 3, False)]
)
def test_a_query_of_remapped_rows_that_fails_is_told_where_it_is_no_word_on_the_gpu(
    said: str, code: int, told: bool
) -> None:
    found = parse_health([*ANSWER[:2], f"remapped={said}", f"remapped.rc={code}", "log=read"])
    assert found.gpus == (GpuHealth("0000:1a:00.0", 0, 3, None, None),)
    what = [(item.what, item.actual) for item in errors(replace(GOOD, health=found))]
    assert what == ([("memory errors by nvidia-smi", f"exit code {code}")] if told else [])
