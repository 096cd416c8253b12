"""What commands print at several widths: golden texts, equal nodes together, and no name cut."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpunode import cli
from gpunode.base.comparison import RUN
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.folding import UNBOUND, fold
from gpunode.base.host_names import folded, folded_in_a_line
from gpunode.base.verdicts import Caution, Refusal
from gpunode.cli.lab import table
from gpunode.cli.mig import as_text
from gpunode.components.mig.check import check, target
from gpunode.fleet import no_answer
from gpunode.fleet.call import Call
from gpunode.fleet.reports.plan_text import plan_text
from gpunode.node.plan import Plan, Step
from gpunode.settings.mig_parted.declaration import read_declaration

pytestmark = pytest.mark.pure
GOLDEN = Path(__file__).parent / "data"
WIDTHS = pytest.mark.parametrize("columns", [40, 80, 100, 160])
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


def golden(folder: str, columns: int, text: str) -> None:
    """Compare a text with the one that is kept."""
    assert text + "\n" == (GOLDEN / folder / f"{columns}.txt").read_text(), f"tests/unit/data/{folder}/{columns}.txt"


@WIDTHS
def test_a_plan_of_many_nodes_is_told_in_few_lines(columns: int) -> None:
    golden("plan_text", columns, plan_text(_fleet(), columns, Call("inventories/prod.py")))


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


@WIDTHS
def test_a_declaration_s_verdict_fits(columns: int, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(
        "version: v1\nmig-configs:\n  too-much:\n    - devices: all\n      mig-enabled: true\n"
        '      mig-devices: {"3g.40gb": 2, "1g.10gb": 1}\n  mixed:\n    - devices: [0, 1]\n      mig-enabled: true\n'
        '      mig-devices: {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}\n'
    )
    found = replace(read_declaration(tmp_path / "site.yaml"), source="site.yaml")
    golden("mig_text", columns, as_text(check(found, tuple(found.configs), target("H100-80GB")), columns))


@WIDTHS
def test_the_nodes_of_a_lab_fit(columns: int) -> None:
    rows = [
        {"name": name, "address": "10.88.0.12", "state": state, "gpus": 8, "gpu": "h100-80gb", "container": f"x-{name}"}
        for name, state in (("gpu-1", "running"), ("gpu-2", "gone"))
    ]
    golden("lab_list", columns, table(rows, columns))


@WIDTHS
def test_what_check_says_fits(columns: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = {"driver": {"branch": "999"}}
    hosts = [*((f"gpu-{number}", old) for number in range(1, 9)), *((name, {}) for name in IRREGULAR)]
    (tmp_path / "fleet.py").write_text(f"nodes = {hosts!r}\n")
    monkeypatch.setenv("COLUMNS", str(columns))
    done = CliRunner().invoke(cli.gpunode, ["check", "--output", "tty", str(tmp_path / "fleet.py")])
    golden("check_text", columns, done.stdout.rstrip("\n"))
    whole = CliRunner().invoke(cli.gpunode, ["check", "--output", "tty", "--all", str(tmp_path / "fleet.py")])
    assert all(name in whole.stdout for name in IRREGULAR)
    found = CliRunner().invoke(cli.gpunode, ["check", "--json", str(tmp_path / "fleet.py")])
    assert len(json.loads(found.stdout)["hosts"]) == 26


NAMES = st.lists(st.from_regex(r"[a-z]{1,12}[0-9]{0,4}", fullmatch=True), unique=True, min_size=1, max_size=60)


@given(NAMES, st.integers(1, 200))
def test_names_in_a_line_are_the_first_and_the_number_of_the_others(names: list[str], columns: int) -> None:
    text = folded_in_a_line(names, columns)
    if text == folded(names):
        return
    shown, _, rest = text.rpartition(" and ")
    (left,) = re.fullmatch(r"(\d+) more nodes", rest).groups()  # type: ignore[union-attr]
    kept = len(names) - int(left)
    assert kept > 0 and shown == folded(names[:kept]) and int(left) > 1
    assert len(text) <= max(80, columns) or len(shown) >= len(names[0])


def test_a_command_in_backticks_is_folded_only_where_no_line_has_room_for_it() -> None:
    said = "mend that, and run `ssh-keyscan gpu-1.example.org >> known_hosts` again"
    assert "`ssh-keyscan gpu-1.example.org >> known_hosts`" in fold(said, 50, "  ")
    assert all(len(line) <= 30 for line in fold(said, 30, "  ").splitlines())
    # In any case one of ours.
    ours = "`pyinfra fleet.py deploys/gpu_node.py`"
    assert ours in fold(f"run {ours}", 20, "  ")


@given(st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=30), st.integers(4, 40))
def test_a_folded_text_has_every_word_whole_and_colours_take_no_room(words: list[str], columns: int) -> None:
    plain = fold(" ".join(words), columns, "  ")
    assert plain.split() == words
    assert all(len(line) <= columns or len(line.split()) == 1 for line in plain.splitlines())
    coloured = fold(" ".join(f"\x1b[31m{word}\x1b[0m" for word in words), columns, "  ")
    assert re.sub(r"\x1b\[\d+m", "", coloured) == plain
