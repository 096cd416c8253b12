"""A change that was cut off is found by drift, and is the plan's to undo; one that is under way is not."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.comparison import BY_HAND, RUN
from gpunode.base.findings import FindingClass
from gpunode.base.probe import shell_text
from gpunode.components.driver.sides import desired
from gpunode.components.mig.boot import RECORD, UNIT
from gpunode.components.mps.daemon import FOLDER as MPS
from gpunode.components.runtimes.containerd.drop_in import PATH as DROP_IN
from gpunode.components.runtimes.containerd.own_files import PROXY
from gpunode.components.runtimes.runtime import OWN_SPECIFICATION as CDI
from gpunode.facts.records import LEFT
from gpunode.facts.records import Interrupted as InterruptedFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.node.components import decisions
from gpunode.node.own_files.driver import SOFTDEP
from gpunode.node.own_files.holds import PREFERENCES
from gpunode.node.plan import plan
from gpunode.node.verdict import judge
from gpunode.operations import interrupted as operation
from gpunode.packages.driver_packages.sources import resolve_for_os
from gpunode.packages.families.dnf import LOCKLIST
from gpunode.packages.families.zypper import LOCKS
from gpunode.settings import settings_from
from gpunode.system.applied import PATH as APPLIED
from gpunode.system.boot import Boot, Kernel
from gpunode.system.transaction import FAILED, FOLDER, Interrupted, Journal, decide, parse_interrupted
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure


def read(folder: Path, units: dict[str, str], left: str = "", aged: str = "") -> Interrupted:
    """Run the probe's shell where systemctl tells of these units.

    left: globs of what is left beside files; aged: what find is told of its age
    """
    table = "".join(f"  gpunode-{name}.service) echo {state};;\n" for name, state in units.items())
    systemctl = folder / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$*" >> {folder}/asked\ncase "$2" in\n{table}  *) echo inactive;;\nesac\n')
    systemctl.chmod(0o755)
    text = shell_text("system/interrupted", FOLDER=str(folder / "transactions"), LEFT=left, AGED=aged)
    done = subprocess.run(
        ["sh", "-c", text], env={"PATH": f"{folder}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    return parse_interrupted(done.stdout.splitlines())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of the transactions, that the probe looks into."""
    found = tmp_path / "transactions"
    found.mkdir()
    return found


def gone() -> str:
    """Return the number of a process that has ended."""
    return subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.real
def test_a_node_that_was_never_changed_has_none(tmp_path: Path) -> None:
    assert read(tmp_path, {}) == Interrupted()


@pytest.mark.real
def test_a_journal_that_began_counts_unless_somebody_is_at_work_on_it(tmp_path: Path, folder: Path) -> None:
    journal = '{"schema": 1, "state": "%s", "target": "x", "reason": ""}\n'
    for name, state in (("containerd", "done"), ("mig", "failed"), ("driver", "restored")):
        (folder / f"{name}.json").write_text(journal % state)
    failed = (Journal("failed", "x", None, False),)
    assert read(tmp_path, {}) == Interrupted(failed=failed)
    # No program is started where nothing was interrupted.
    assert not (tmp_path / "asked").exists()
    for name in ("cuda", "mps", "scheduler.given-up"):
        (folder / f"{name}.json").write_text(journal % "began")
    assert read(tmp_path, {"mps": "activating"}) == Interrupted(("cuda",), ("mps",), failed=failed)


@pytest.mark.real
def test_a_journal_of_a_newer_gpunode_is_named_and_says_nothing_else(tmp_path: Path, folder: Path) -> None:
    for name, version in (("mig", '"schema": 2, '), ("mps", '"schema": 10, '), ("cuda", '"schema": 1, '), ("dcgm", "")):
        (folder / f"{name}.json").write_text(f'{{{version}"state": "began", "target": "x"}}\n')
    (folder / "crio.given-up.json").write_text('{"schema": 2, "state": "began", "target": "x"}\n')
    assert read(tmp_path, {}) == Interrupted(("cuda", "dcgm"), newer=("mig", "mps"))


def test_a_change_that_was_cut_off_is_a_finding_and_a_step_of_the_plan() -> None:
    (good,) = decide(GOOD.interrupted).findings
    assert good.finding_class is FindingClass.OK
    node = replace(GOOD, interrupted=Interrupted(("containerd", "mig"), ("mps",)))
    settings = settings_from({"driver": {"version": "580.95.05"}})
    (bad,) = [item for item in judge(settings, node) if item.what == "interrupted changes"]
    assert (bad.finding_class, bad.actual) == (FindingClass.DRIFT, "containerd, mig")
    (step,) = [step for step in plan(settings, node).steps if step.component == "node"]
    assert (step.code, step.actual, step.desired) == ("node.interrupted-changes", "containerd, mig", "none")
    assert not step.pending and unnamed(step.action, "containerd", "mig") == []


DRIVER = {"version": "580.105.08"}
RUNFILE = {"source": "runfile", "runfile_sha256": "a" * 64}


@pytest.mark.parametrize(
    ("component", "asked"),
    [
        ("driver", {"driver": DRIVER}),
        ("driver", {"driver": {**DRIVER, **RUNFILE, "migrate": True}}),
        ("cuda", {"cuda": {**RUNFILE, "version": "13.0", "release": "13.0.2"}}),
        ("containerd", {"driver": {"version": "580.95.05"}, "containerd": {"default_runtime": "runc"}}),
    ],
)
def test_the_target_that_failed_is_refused_by_plan_and_drift_until_it_is_retried(
    component: str, asked: dict[str, Any]
) -> None:
    given = {"disruption": {"allow": "reboot"}, **asked}
    settings = resolve_for_os(settings_from(given), GOOD.operating_system)
    good = replace(GOOD, driver=replace(GOOD.driver, packages=(("nvidia-open", "580.95.05-1"),)))
    steps = decisions(settings, good)[component].steps
    (target,) = {target for step in steps if (target := step.target or getattr(step.change, "target", None))}
    failed = (Journal("failed", "other", None, False), Journal("failed", target, "why", False, name="t"))
    node = replace(good, interrupted=Interrupted(failed=failed))
    decision = decisions(settings, node)[component]
    assert decision.refusal is not None
    assert unnamed(decision.refusal, "why", "gpunode apply --retry", f"{FOLDER}/t.log") == []
    assert not any(step.waits is None and (step.target or step.change) for step in decision.steps)
    assert not any(item.remedy in (RUN, BY_HAND) for step in decision.steps for item in step.settles)
    (bad,) = [item for item in judge(settings, node) if item.code == FAILED.code]
    assert bad.finding_class is FindingClass.DRIFT and bad.by_person and "why" in str(bad.cause)
    planned = plan(settings, node)
    rows = [
        step.pending and "gpunode apply --retry" in step.action for step in planned.steps if step.code == FAILED.code
    ]
    assert planned.refusals or rows == [True]
    again = {**given, "disruption": {"allow": "reboot", "retry": True}}
    retried = resolve_for_os(settings_from(again), GOOD.operating_system)
    assert decisions(retried, node)[component] == decisions(settings, good)[component]
    # A record of another target, and one whose state is reached, are history.
    assert decisions(settings_from({"driver": {"version": "580.95.05"}}), node)[component].refusal is None


@pytest.mark.parametrize(
    "changed",
    [
        {"next_release": "6.1.0-99-amd64", "kernels": (Kernel("6.1.0-99-amd64", headers=True),)},
        {"secure_boot": True, "key_enrolled": False},
        {"compiler": "12"},
    ],
)
def test_another_kernel_its_headers_or_a_key_are_a_new_try(changed: dict[str, Any]) -> None:
    settings = resolve_for_os(settings_from({"driver": DRIVER}), GOOD.operating_system)

    def target(boot: Boot) -> str:
        return desired(settings, GOOD.operating_system, boot, GOOD.pci).target(boot, GOOD.driver)

    assert target(replace(GOOD.boot, **changed)) != target(GOOD.boot) == target(replace(GOOD.boot, running="x"))


@pytest.mark.real
def test_what_was_cut_off_before_it_began_is_found_unless_its_run_is_still_there(tmp_path: Path, folder: Path) -> None:
    for name in (
        "mps.new",
        "mps.json.new",
        "cuda.before",
        f"mig.sh.{gone()}",
        f"docker.sh.{os.getpid()}",
        "driver.new",
    ):
        (folder / name).touch()
    for name in ("mps", "containerd"):
        (folder / name).mkdir()
        (folder / f"{name}.sh").touch()
        (folder / f"{name}.log").touch()
    found = read(tmp_path, {"driver": "active"})
    assert (found.names, found.running, sorted(found.stale)) == ((), (), ["cuda", "mig", "mps"])


@pytest.mark.real
def test_what_was_left_beside_a_file_is_found_by_gpunode_s_own_names_alone(tmp_path: Path, folder: Path) -> None:
    etc = tmp_path / "etc"
    (etc / "docker").mkdir(parents=True)
    ours = ["docker/daemon.json.gpunode-new", "cuda.gpunode-new", f".gpunode-cdi.{gone()}.abc", ".gpunode-cdi.AbCdEf"]
    for name in (ours[0], "docker/daemon.json", "docker/daemon.json.new", "docker/x.gpunode-lost"):
        (etc / name).touch()
    for name in (*ours[2:], f".gpunode-cdi.{os.getpid()}.abc"):
        (etc / name).mkdir()
    (etc / ours[1]).symlink_to("/usr/local/absent")
    left = " ".join(f"{etc}/{name}" for name in ("*.gpunode-new", "*/*.gpunode-new", ".gpunode-cdi.*", "none*"))
    assert sorted(read(tmp_path, {}, left).left) == sorted(f"{etc}/{name}" for name in ours)
    # Somebody may be writing it at this very moment.
    assert read(tmp_path, {}, left, aged="-cmin +1").left == ()
    (folder / "mps.json").write_text('{"schema": 1, "state": "began", "target": "x"}\n')
    assert read(tmp_path, {"mps": "active"}, left).left == ()


def test_what_is_looked_for_is_gpunode_s_by_its_name() -> None:
    assert all(".gpunode-" in glob.rpartition("/")[2] and glob.startswith("/") for glob in LEFT)
    folders = {glob.rpartition("/")[0] for glob in LEFT}
    written = (DROP_IN, APPLIED, RECORD, SOFTDEP, PROXY, PREFERENCES, LOCKLIST, LOCKS, f"{MPS}/x", CDI, UNIT)
    assert {path.rpartition("/")[0].replace("containerd.service.d", "*.d") for path in written} <= folders


class Node(Host):
    """A host whose reading of interrupted changes is another one after the first."""

    def get_fact(self, fact: type, **asked: Any) -> Any:
        """Return the reading of a fact."""
        if fact is InterruptedFact and len(self.readings[fact]) > 1:
            return self.readings[fact].pop(0)
        return self.readings[fact][0] if fact is InterruptedFact else super().get_fact(fact, **asked)


def run(monkeypatch: pytest.MonkeyPatch, *readings: Interrupted) -> tuple[list[str], list[str]]:
    """Return the operation's commands, and why it has nothing to do."""
    host = Node({InterruptedFact: list(readings), TransactionJournal: Journal("began", "x", None, False)})
    monkeypatch.setattr(operation, "host", host)
    monkeypatch.setattr("gpunode.operations.transaction.host", host)
    monkeypatch.setattr("gpunode.operations.failure.host", host)
    return commands(operation.ended, host), host.noops


def test_a_change_of_what_is_switched_off_since_is_left_to_a_person_with_both_ways_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, noops = run(monkeypatch, Interrupted(("driver",)))
    # A newer driver may be there by now, which an undoing would take away.
    assert found == [] and noops == []
    _, bad = decide(Interrupted(("driver",)), ["driver"]).findings
    assert "driver.sh undo`" in str(bad.remedy) and "given-up.json`" in str(bad.remedy)
    for reading in (Interrupted(), Interrupted(running=("mps",))):
        found, noops = run(monkeypatch, reading)
        assert (found, len(noops)) == ([], 1)


def test_leftovers_go_but_not_while_they_may_be_a_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    left = "/boot/initrd.img-6.1.gpunode-old"
    assert run(monkeypatch, Interrupted(("initramfs",), left=(left,)))[0] == []
    (clear,), _ = run(monkeypatch, Interrupted(left=(left,)))
    assert clear.endswith(f"gpunode {left}") and "rm -rf --" in clear


@pytest.mark.real
def test_what_a_change_left_that_never_began_is_cleared_on_the_node(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clear,), _ = run(monkeypatch, Interrupted(stale=("mps", "cuda")))
    for name in ("mps.new", "cuda.before", "cuda.new"):
        (folder / name).mkdir()
    systemctl = tmp_path / "systemctl"
    systemctl.write_text('#!/bin/sh\ncase "$2" in *cuda*) echo active;; *) echo inactive;; esac\n')
    systemctl.chmod(0o755)
    subprocess.run(
        ["sh", "-c", clear.replace("/var/lib/gpunode/transactions", str(folder))],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True, timeout=30,
    )  # fmt: skip
    # Another run is at work on CUDA by now.
    assert sorted(path.name for path in folder.iterdir()) == ["cuda.before", "cuda.new"]
