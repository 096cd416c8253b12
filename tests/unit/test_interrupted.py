"""A change that was cut off is found by drift, and is the plan's to undo; one that is under way is not."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpunode.findings import FindingClass
from gpunode.interrupted import Interrupted, parse_interrupted
from gpunode.plan import plan
from gpunode.probe import shell_text
from gpunode.settings import settings_from
from gpunode.verify import judge
from gpunode.verify.interrupted import interrupted
from tests.unit.test_verify import GOOD

pytestmark = pytest.mark.pure


def read(folder: Path, units: dict[str, str]) -> Interrupted:
    """Run the probe's shell where systemctl tells of these units."""
    table = "".join(f"  gpunode-{name}.service) echo {state};;\n" for name, state in units.items())
    systemctl = folder / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$*" >> {folder}/asked\ncase "$2" in\n{table}  *) echo inactive;;\nesac\n')
    systemctl.chmod(0o755)
    text = shell_text("interrupted", FOLDER=str(folder / "transactions"))
    done = subprocess.run(
        ["sh", "-c", text], env={"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    return parse_interrupted(done.stdout.splitlines())


@pytest.mark.starts_programs
@pytest.mark.real
def test_a_journal_that_began_counts_unless_somebody_is_at_work_on_it(tmp_path: Path) -> None:
    folder = tmp_path / "transactions"
    folder.mkdir()
    for name, state in (("containerd", "done"), ("mig", "failed"), ("driver", "restored")):
        (folder / f"{name}.json").write_text(
            json.dumps({"schema": 1, "state": state, "target": "x", "reason": ""}) + "\n"
        )
    assert read(tmp_path, {}) == Interrupted()
    assert not (tmp_path / "asked").exists(), "no program is started where nothing was interrupted"
    for name in ("cuda", "mps", "scheduler.given-up"):
        (folder / f"{name}.json").write_text('{"schema": 1, "state": "began", "target": "x", "reason": ""}\n')
    assert read(tmp_path, {"mps": "activating"}) == Interrupted(("cuda",), ("mps",))


@pytest.mark.starts_programs
def test_a_node_that_was_never_changed_has_none(tmp_path: Path) -> None:
    assert read(tmp_path, {}) == Interrupted()


def test_a_change_that_was_cut_off_is_a_finding_and_a_step_of_the_plan() -> None:
    (good,) = interrupted(GOOD)
    assert good.finding_class is FindingClass.OK
    node = replace(GOOD, interrupted=Interrupted(("containerd", "mig"), ("mps",)))
    settings = settings_from({"driver": {"version": "580.95.05"}})
    (bad,) = [item for item in judge(settings, node) if item.what == "interrupted changes"]
    assert (bad.finding_class, bad.found) == (FindingClass.DRIFT, "containerd, mig")
    steps = [step for step in plan(settings, node).steps if step.component == "node"]
    assert [step.action for step in steps] == ["put back what an earlier run began and did not end (containerd, mig)"]
