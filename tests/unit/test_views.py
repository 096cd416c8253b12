"""What commands print: one snapshot per view at 80 columns; other widths fit, and equal nodes are listed together."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpunode import cli
from gpunode.base.comparison import RUN
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.folding import UNBOUND
from gpunode.base.verdicts import Caution, Refusal
from gpunode.cli.errors import BROKEN_OFF, complain, say_usage
from gpunode.cli.lab import table
from gpunode.cli.mig import as_text
from gpunode.components.mig.check import check, target
from gpunode.fleet import no_answer
from gpunode.fleet.call import Call
from gpunode.fleet.reports.plan_text import plan_text
from gpunode.node.plan import Plan, Step
from gpunode.settings.mig_parted.declaration import read_declaration
from tests.support import warm
from tests.support.snapshots import COLUMNS, OTHER_WIDTHS, check_snapshot, overlong

pytestmark = pytest.mark.pure
# Whose order nobody can guess: such names cannot be told by the first and the last.
IRREGULAR = [f"{word}{number}" for number in (7, 3, 19) for word in ("apollo", "zeus", "hera", "ares", "dione", "eos")]

BOOT = Step(
    "driver", "boot the node into the new module", "580.82.07", "580.95.05", Disruption.reboot, pending=True,
    since="2026-01-12T09:30:00Z", what="loaded module", code="driver.loaded-module",
)  # fmt: skip
DONE = Plan((), (), ())
CHANGES = Plan(
    (),
    (Caution("driver", "driver branch 590 ended in 2026", "the table", "take branch 595", "preflight.driver-ended"),),
    (
        Step(
            "driver", "change to driver 580.95.05, open kernel module", "580.82.07", "580.95.05", Disruption.nothing,
            packages=("nvidia-open 580.95.05", "nvidia-driver-cuda 580.95.05", "nvidia-kernel-open-dkms 580.95.05"),
            what="module on disk", code="driver.module-on-disk",
        ),
        BOOT,
        Step("containerd", "bring its runtimes to what is asked and restart it", None, "nvidia", Disruption.restart,
             drains=True, what="default runtime", code="containerd.default-runtime"),
    ),
)  # fmt: skip
REFUSED = Plan(
    (Refusal("mig", "an L4 has no MIG", "NVIDIA MIG guide", f"take mig.config away, and {RUN}", "preflight.mig"),),
    (),
    (),
)
LATER = replace(CHANGES, steps=(CHANGES.steps[0], replace(BOOT, since="2026-01-10T09:30:00Z"), CHANGES.steps[2]))


def _fleet() -> dict[str, Plan | Finding]:
    """Return the plans of 35 nodes, of which few say something of their own."""
    numbered: dict[str, Plan | Finding] = {f"gpu-{number}": CHANGES for number in range(1, 13)}
    return {
        **numbered,
        "gpu-5": LATER,
        "gpu-9": REFUSED,
        "gpu-10": REFUSED,
        **dict.fromkeys(IRREGULAR, DONE),
        "gpu-40": no_answer.unreached("timed out after 120 s"),
        "gpu-41": no_answer.unreached("timed out after 120 s"),
    }


def test_a_plan_of_many_nodes_reads_as_its_snapshot() -> None:
    check_snapshot("plan_text", plan_text(_fleet(), COLUMNS, Call("inventories/prod.py")) + "\n")


@OTHER_WIDTHS
def test_a_plan_of_many_nodes_fits(columns: int) -> None:
    assert overlong(plan_text(_fleet(), columns, Call("inventories/prod.py")), columns) == []


def test_a_plan_names_every_node_where_all_are_asked_for_or_nobody_looks() -> None:
    for text in (plan_text(_fleet(), 80, show_all=True), plan_text(_fleet(), UNBOUND)):
        assert all(name in text for name in IRREGULAR) and "more nodes" not in text
    assert "and 10 more nodes: nothing to do" in " ".join(plan_text(_fleet(), 80).split())


def test_nodes_that_differ_only_in_since_when_they_wait_are_one_and_the_longest_counts() -> None:
    text = plan_text(_fleet())
    assert text.count("can be done") == 2, "the nodes, and the totals"
    assert "since 2026-01-10T09:30:00Z" in text and "2026-01-12" not in text


def test_a_quiet_plan_tells_what_cannot_be_done_and_nothing_else() -> None:
    lines = plan_text(_fleet(), quiet=True).splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [
        "gpu-9, gpu-10: refused", "gpu-40, gpu-41: no answer: timed out after 120 s [node.connection]",
    ]  # fmt: skip
    assert plan_text({"a": DONE, "b": CHANGES}, quiet=True) == ""


def test_a_plan_s_remedy_has_the_inventory_s_name() -> None:
    assert "run `pyinfra inventories/prod.py deploys/gpu_node.py`" in plan_text(
        _fleet(), call=Call("inventories/prod.py")
    )


def test_a_declaration_s_verdict_reads_as_its_snapshot_and_fits(tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(
        "version: v1\nmig-configs:\n  too-much:\n    - devices: all\n      mig-enabled: true\n"
        '      mig-devices: {"3g.40gb": 2, "1g.10gb": 1}\n  mixed:\n    - devices: [0, 1]\n      mig-enabled: true\n'
        '      mig-devices: {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}\n'
    )
    declaration = replace(read_declaration(tmp_path / "site.yaml"), source="site.yaml")
    checked = check(declaration, tuple(declaration.configs), target("H100-80GB"))
    check_snapshot("mig_text", as_text(checked, COLUMNS) + "\n")
    for columns in (40, 160):
        assert overlong(as_text(checked, columns), columns) == []


def test_the_nodes_of_a_lab_read_as_their_snapshot_and_fit() -> None:
    rows = [
        {"name": name, "address": "10.88.0.12", "state": state, "gpus": 8, "gpu": "h100-80gb", "container": f"x-{name}"}
        for name, state in (("gpu-1", "running"), ("gpu-2", "gone"))
    ]
    check_snapshot("lab_list", table(rows, COLUMNS) + "\n")
    for columns in (40, 160):
        assert overlong(table(rows, columns), columns) == []


@pytest.mark.parametrize("columns", [40, COLUMNS, 160])
def test_the_verdict_of_check_reads_as_its_snapshot_and_fits(
    columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = {"driver": {"branch": "999"}}
    hosts = [*((f"gpu-{number}", old) for number in range(1, 9)), *((name, {}) for name in IRREGULAR)]
    (tmp_path / "fleet.py").write_text(f"nodes = {hosts!r}\n")
    monkeypatch.setenv("COLUMNS", str(columns))
    text = CliRunner().invoke(cli.gpunode, ["check", "--output", "tty", str(tmp_path / "fleet.py")]).stdout
    assert overlong(text, columns) == []
    if columns == COLUMNS:
        check_snapshot("check_text", text)
    whole = CliRunner().invoke(cli.gpunode, ["check", "--output", "tty", "--all", str(tmp_path / "fleet.py")])
    assert all(name in whole.stdout for name in IRREGULAR)
    document = CliRunner().invoke(cli.gpunode, ["check", "--json", str(tmp_path / "fleet.py")])
    assert len(json.loads(document.stdout)["hosts"]) == 26


# --- errors -----------------------------------------------------------------------------------------------------------

COMMANDS = (
    "check wrong.py", "check fleet.py --limit gpu-3", "check nowhere.py", "plan", "mig check site.yaml",
    "rollout --resume fleet.py", "explain driver.loaded-modul", "drift fleet.py --junit nowhere/report.xml",
)  # fmt: skip
# A command to paste, longer than any width but the last.
CALL = Call("inventories/production.py", ("gpu-1",), ("driver.version=580.95.05",))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with two inventories, one of them wrong, and a declaration with mistakes."""
    (tmp_path / "fleet.py").write_text('gpus = ["gpu-1", "gpu-2"]\n')
    (tmp_path / "wrong.py").write_text(
        'gpus = [("gpu-1", {"driver": {"source": "elsewhere", "brnch": "580"}}), ("gpu-2", {"toolkit": 1})]\n'
    )
    (tmp_path / "site.yaml").write_text(
        "version: v1\nmig-configs:\n  all:\n    - devices: some\n      mig-enabled: 1\n"
    )
    return tmp_path


@pytest.mark.parametrize("columns", [40, COLUMNS, 160])
def test_the_error_that_ends_a_command_reads_as_its_snapshot_and_fits(folder: Path, columns: int) -> None:
    environment = {**os.environ, "COLUMNS": str(columns)}
    parts = []
    for words in COMMANDS:
        done = warm.run("gpunode", *words.split(), "--output", "tty", cwd=folder, env=environment)
        assert done.returncode in (1, 3, 64), words
        assert overlong(done.stderr, columns) == []
        parts.append(f"$ gpunode {words}\n{done.stderr}")
    if columns == COLUMNS:
        check_snapshot("errors_text", "\n".join(parts))


def test_in_a_log_an_error_is_one_line(folder: Path) -> None:
    for output in ("auto", "plain"):
        done = warm.run("gpunode", "drift", "fleet.py", "--limit", "gpu-3", "--output", output, cwd=folder)
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
        assert "gpu-3" in line and line.endswith(": fleet, gpus [limit.no-host]")


@pytest.mark.parametrize("columns", [40, COLUMNS, 100, 160])
def test_a_command_in_an_error_stays_in_one_piece(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpunode.cli.errors.error_columns", lambda: columns)
    complain(
        f"the last rollout was broken off: go on with it by `{CALL.of('rollout', '--resume')}`, or not", BROKEN_OFF
    )
    said = capsys.readouterr().err
    assert f"`{CALL.of('rollout', '--resume')}`" in said and said.endswith("[run.broken-off]\n")
    assert overlong(said, columns) == []
    assert len(said.splitlines()) > 1 or columns == 160


def test_the_allowed_values_are_listed_before_the_code_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    shells = click.Argument(["shell"], type=click.Choice(["bash", "zsh"]))
    say_usage(click.MissingParameter(param=shells))
    (line,) = capsys.readouterr().err.splitlines()
    assert "'SHELL'" in line and line.endswith(": bash, zsh [gpunode.usage]")
