"""What commands print: one snapshot per view at 80 columns; other widths fit, and equal nodes are listed together."""

from __future__ import annotations

import json
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
from tests.support.command_line import gpunode
from tests.support.snapshots import COLUMNS, DATA, check_snapshot, overlong

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


WRONG = {
    "fleet.py": 'gpus = ["gpu-1", "gpu-2"]\n',
    "wrong.py": 'gpus = [("gpu-1", {"driver": {"source": "elsewhere", "brnch": "580"}}), ("gpu-2", {"toolkit": 1})]\n',
    "site.yaml": "version: v1\nmig-configs:\n  all:\n    - devices: some\n      mig-enabled: 1\n",
}
COMMANDS = (
    "check wrong.py", "check fleet.py --limit gpu-3", "check nowhere.py", "plan", "mig check site.yaml",
    "rollout --resume fleet.py", "explain driver.loaded-modul", "drift fleet.py --junit nowhere/report.xml",
)  # fmt: skip


def _mig(columns: int, folder: Path) -> str:
    declaration = replace(read_declaration(DATA / "mig_text" / "site.yaml"), source="site.yaml")
    return as_text(check(declaration, tuple(declaration.configs), target("H100-80GB")), columns) + "\n"


def _lab(columns: int, folder: Path) -> str:
    rows = [
        {"name": name, "address": "10.88.0.12", "state": state, "gpus": 8, "gpu": "h100-80gb", "container": f"x-{name}"}
        for name, state in (("gpu-1", "running"), ("gpu-2", "gone"))
    ]
    return table(rows, columns) + "\n"


def _check(columns: int, folder: Path) -> str:
    old = {"driver": {"branch": "999"}}
    hosts = [*((f"gpu-{number}", old) for number in range(1, 9)), *((name, {}) for name in IRREGULAR)]
    (folder / "fleet.py").write_text(f"nodes = {hosts!r}\n")

    def printed(*options: str) -> str:
        words = ["check", *options, str(folder / "fleet.py")]
        return CliRunner().invoke(cli.gpunode, words, env={"COLUMNS": str(columns)}).stdout

    assert all(name in printed("--output", "tty", "--all") for name in IRREGULAR)
    assert len(json.loads(printed("--json"))["hosts"]) == 26
    return printed("--output", "tty")


def _errors(columns: int, _: Path) -> str:
    ended = {words: gpunode(f"{words} --output tty", WRONG, {"COLUMNS": str(columns)}) for words in COMMANDS}
    assert {done.status for done in ended.values()} == {1, 3, 64}
    return "\n".join(f"$ gpunode {words}\n{done.error}" for words, done in ended.items())


VIEWS = {
    "plan_text": lambda columns, _: plan_text(_fleet(), columns, Call("inventories/prod.py")) + "\n",
    "mig_text": _mig,
    "lab_list": _lab,
    "check_text": _check,
    "errors_text": _errors,
}


@pytest.mark.parametrize("columns", [40, COLUMNS, 160])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_fits_and_reads_as_its_snapshot(view: str, columns: int, tmp_path: Path) -> None:
    text = VIEWS[view](columns, tmp_path)
    # What was typed is no part of it.
    assert [line for line in overlong(text, columns) if not line.startswith("$ ")] == []
    if columns == COLUMNS:
        check_snapshot(view, text)


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


# A command to paste, longer than any width but the last.
CALL = Call("inventories/production.py", ("gpu-1",), ("driver.version=580.95.05",))


@pytest.mark.parametrize("output", ["auto", "plain"])
def test_in_a_log_an_error_is_one_line(output: str) -> None:
    done = gpunode(f"drift fleet.py --limit gpu-3 --output {output}", WRONG)
    (line,) = [line for line in done.error.splitlines() if line.startswith("Error: ")]
    assert "gpu-3" in line and line.endswith(": fleet, gpus [limit.no-host]")


@pytest.mark.parametrize("columns", [40, COLUMNS, 100, 160])
def test_a_command_in_an_error_stays_in_one_piece(
    columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpunode.cli.errors.error_columns", lambda: columns)
    again = f"`{CALL.of('rollout', '--resume')}`"
    complain(f"the last rollout was broken off: go on with it by {again}, or not", BROKEN_OFF)
    said = capsys.readouterr().err
    assert again in said and said.endswith("[run.broken-off]\n")
    assert overlong(said, columns) == []
    assert len(said.splitlines()) > 1 or columns == 160


def test_the_allowed_values_are_listed_before_the_code_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    shells = click.Argument(["shell"], type=click.Choice(["bash", "zsh"]))
    say_usage(click.MissingParameter(param=shells))
    (line,) = capsys.readouterr().err.splitlines()
    assert "'SHELL'" in line and line.endswith(": bash, zsh [gpunode.usage]")
