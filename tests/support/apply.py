"""What the tests of `gpunode apply` share."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpunode import cli
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.verdicts import Refusal
from gpunode.cli import apply as command
from gpunode.cli import plan as plans
from gpunode.fleet import drift
from gpunode.fleet.reports.run_end import HostEnd
from gpunode.fleet.run import child
from gpunode.node.plan import Plan, PlannedStep
from gpunode.settings import layers
from tests.support.simulated_rollout import Lab

GOOD = (Finding("driver", FindingClass.OK, "flavour", "open", "open", code="driver.flavour"),)


WAITS = Finding(
    "driver",
    FindingClass.REBOOT_PENDING,
    "loaded module",
    "570",
    "580",
    disruption=Disruption.reboot,
    code="driver.loaded-module",
)


CAN = Plan((), (), (PlannedStep("driver", "load the kernel module", None, None, Disruption.nothing),))
DONE = Plan((), (), ())


REFUSED = Plan(
    (Refusal("mig", "an L4 has no MIG", "the table", "take mig.config away", "preflight.mig-has-none"),), (), ()
)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    found = Lab(tmp_path)
    monkeypatch.chdir(tmp_path)
    # --set stands in the environment.
    for variable in (layers.SET, layers.LIMIT):
        monkeypatch.setenv(variable, "")
    monkeypatch.setattr(drift, "inspect", found.inspect)
    monkeypatch.setattr(child, "program", lambda: str(tmp_path / "bin" / "pyinfra"))
    _plan(monkeypatch, {f"gpu-{number}": CAN for number in range(1, 5)})
    _end(found, *(HostEnd(f"gpu-{number}", findings=GOOD) for number in range(1, 5)))
    return found


def _plan(monkeypatch: pytest.MonkeyPatch, found: dict[str, Plan | Finding]) -> None:
    monkeypatch.setattr(plans, "live_plans", lambda *_: found)


def _end(lab: Lab, *ends: HostEnd) -> None:
    (lab.folder / "ended.json").write_text(json.dumps([end.to_json() for end in ends]))


def runs_before_its_end(lab: Lab, text: str) -> None:
    """Have the simulated pyinfra run this, too."""
    program = lab.folder / "bin" / "pyinfra"
    program.write_text(program.read_text().replace("failing = set(", f"{text}\nfailing = set(", 1))


def telling(*events: dict[str, object]) -> str:
    """Return what tells gpunode these events."""
    told = "".join(json.dumps(event) + "\n" for event in events)
    return f'open(os.environ["GPUNODE_EVENTS"], "a").write({told!r})'


def apply(*options: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(cli.gpunode, ["apply", *options, "fleet.py"], input=answer)


def at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal:
        """Stand in for sys, whose standard input is a terminal."""

        stdin = type("In", (), {"isatty": staticmethod(lambda: True)})()
        exit = sys.exit

    monkeypatch.setattr(command, "sys", Terminal)
