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
from gpunode.base.findings import ExitCode, FindingClass, verdict
from gpunode.base.probe import Probe, batch_answers, batch_command
from gpunode.base.probe_output import checked, sections
from gpunode.base.reading import ParseError
from gpunode.components.mig.smi import parse_mig
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.gpu import Health as HealthFact
from gpunode.facts.gpu import Mig as MigFact
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from gpunode.system.gpu import parse_gpus
from gpunode.system.health import GpuHealth, Health, Xid, parse_health
from tests.support.smi_rows import memory
from tests.support.snapshot_node import unpacked
from tests.support.verify import GOOD, SETTINGS

pytestmark = pytest.mark.pure


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
    lines += [f"remapped={row[0]}, {cell(row[3])}, {cell(row[4])}" for row in reversed(rows)]
    wanted = (GpuHealth(row[0].lower()[4:], row[1], row[2], row[3], row[4]) for row in rows)
    assert parse_health(lines).gpus == tuple(wanted)


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


@pytest.mark.parametrize("code", [46, 48, 64, 74, 79, 95, 119, 120])
def test_a_critical_xid_is_an_error_with_its_meaning_remedy_and_source(code: int) -> None:
    node = replace(GOOD, health=replace(GOOD.health, xids=(Xid("0000:1a:00", code, ""), Xid("0000:1a:00", 13, "app"))))
    (item,) = [each for each in judge(SETTINGS, node) if each.finding_class is FindingClass.ERROR]
    row = tables.health().critical_xids[code]
    assert (item.what, item.actual) == (f"Xid {code} of 0000:1a:00", row.name)
    assert row.name in (item.cause or "") and row.remedy in ("reset", "reboot") and row.remedy in (item.remedy or "")
    assert ((item.source or "") != tables.health().source) is not row.verified
    assert verdict(judge(SETTINGS, node)) is ExitCode.ERROR
    nowhere = settings_from({"driver": {"enabled": False}})
    assert "health" not in {each.component for each in judge(nowhere, node)}


@pytest.fixture
def read(tmp_path: Path, run_shell: Callable[[str], tuple[int, list[str]]]) -> Callable[..., Health]:
    """Return what reads the health where these programs stand before all others, and the module is loaded."""

    def reads(**texts: str) -> Health:
        for name, text in texts.items():
            path = tmp_path / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
        code, lines = run_shell(f"PATH={tmp_path}:$PATH; {loaded(HealthFact().command())}")
        assert code == 0
        return parse_health(checked(lines))

    return reads


PARTS = [("gpus", GpusFact.probe), ("health", HealthFact.probe), ("mig", MigFact.probe)]


def loaded(command: str) -> str:
    """Return a command for a machine whose kernel module nvidia is loaded, as far as it looks."""
    return command.replace("/sys/module/nvidia", "/tmp")


def shell(command: str, path: str) -> list[str]:
    done = subprocess.run(
        ["sh", "-c", command], env={"PATH": path}, capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout.splitlines()


# Each call waits for the other one: had they to run one after the other, neither would answer.
TOGETHER = """
cd "$(dirname "$0")"; case $1 in *remapped*) mine=rows other=all;; *) mine=all other=rows;; esac
: > "$mine.up"; tries=0
while [ ! -e "$other.up" ]; do tries=$((tries + 1)); [ "$tries" -lt 100 ] || exit 1; sleep 0.1; done
[ "$mine" = all ] && echo 'ROW' || echo '00000000:1A:00.0, 0, 0'
""".replace("ROW", memory("00000000:1A:00.0", "0", "3").removeprefix("gpu="))


def test_the_probe_asks_both_at_once_and_finds_each_kind_of_xid_once(read: Callable[..., Health]) -> None:
    found = read(
        nvidia_smi=TOGETHER,
        dmesg='for pid in 1 2 3; do echo "[ 7.1] NVRM: Xid (PCI:0000:3b:00): 31, pid=$pid, MMU Fault"; done\n'
        "echo '[ 8.2] usb 1-1: new device'; echo '[ 9.3] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.'",
        journalctl="echo 'NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.'\n"
        "echo 'NVRM: Xid (PCI:0000:5e:00): 48, from before the ring buffer went round'",
    )
    assert (found.exit_code, found.log_read) == (0, True)
    assert found.gpus == (GpuHealth("0000:1a:00.0", 0, 3, False, False),)
    assert [(xid.pci_address, xid.code) for xid in found.xids] == [
        ("0000:3b:00", 31), ("0000:3b:00", 79), ("0000:5e:00", 48),
    ]  # fmt: skip
    assert not read(nvidia_smi=TOGETHER, dmesg="exit 1", journalctl="exit 1").log_read


@pytest.mark.parametrize("ring_buffer", [True, False])
def test_the_last_recovery_action_of_a_gpu_counts(read: Callable[..., Health], ring_buffer: bool) -> None:
    action = "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from"
    asked, over = f"{action} 0x0 (None) to 0x2 (Node Reboot Required)", f"{action} 0x2 (x) to 0x0 (None)"
    log = f"echo '{asked}'; echo '{over}'; echo '{asked}'; echo '{over}'"
    found = read(
        nvidia_smi=TOGETHER, dmesg=log if ring_buffer else "exit 1",
        journalctl=f"echo '{asked}'" if ring_buffer else log,
    )  # fmt: skip
    assert found.xids == (Xid("0000:3b:00", 154, over.partition(": 154, ")[2]),)


@pytest.mark.parametrize("code", [124, 137, 0, 9])
@pytest.mark.parametrize("batched", [False, True])
def test_a_wedged_gpu_is_waited_for_once_in_a_reading(tmp_path: Path, code: int, batched: bool) -> None:
    """nvidia-smi is SIMULATED, and so is `timeout`, which says that it hung."""
    hung = f'#!/bin/sh\ncase "$*" in *nvidia-smi*) echo "$5" >> {tmp_path}/calls; exit {code};; esac\n'
    for name, text in {"timeout": hung, "nvidia-smi": "#!/bin/sh\n", "dmesg": "#!/bin/sh\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    texts = [probe for _, probe in PARTS]
    lines = shell(
        loaded(unpacked(batch_command(texts, "m")) if batched else Probe(PARTS)), f"{tmp_path}:{os.environ['PATH']}"
    )
    # Two, and at the same time (above): what hung is not asked again by any part.
    calls = [line.partition("=")[0] for line in (tmp_path / "calls").read_text().splitlines()]
    assert sorted(calls) == ["--query-gpu", "--query-remapped-rows"]
    answers = batch_answers(texts, "m", lines) if batched else None
    parts = answers or dict(zip(texts, sections(lines[: lines.index("gpunode:end")]).values(), strict=True))
    gpus, health, mig = (parts[text] for text in texts)
    status = {124: "hangs", 137: "hangs", 0: "ok", 9: "no driver"}[code]
    assert parse_gpus(gpus).status == parse_mig(mig).status == status and parse_health(health).exit_code == code


@pytest.mark.parametrize("installed", [True, False])
def test_nvidia_smi_is_not_started_where_no_module_is_loaded(tmp_path: Path, installed: bool) -> None:
    """nvidia-smi is SIMULATED: the real one would load the module, and a reading changes nothing."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho >> {tmp_path}/calls\n")
    program.chmod(0o755 if installed else 0o644)
    command = Probe(PARTS).replace("/sys/module/nvidia", f"{tmp_path}/none")
    told = sections(shell(command, f"{tmp_path}:/usr/bin:/bin"))
    assert not (tmp_path / "calls").exists()
    gpus, mig = parse_gpus(told["gpus"]), parse_mig(told["mig"][: told["mig"].index("")])
    assert gpus.status == mig.status == ("no driver" if installed else "absent")
    assert (gpus.exit_code, parse_health(told["health"]).exit_code) == (None, None)
    assert gpus.message == mig.message or not installed
