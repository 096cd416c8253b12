"""`gpunode ci`: wait for a job's test machines, provision them, and say in JUnit whether they are GPU nodes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpunode.base.codes import with_code
from gpunode.base.findings import ExitCode, Finding, FindingClass, NodeReport, verdict
from gpunode.base.terminal import say
from gpunode.cli.drift import print_reports, write_reports
from gpunode.cli.errors import told
from gpunode.cli.report_file import REPORT, writable
from gpunode.cli.selection import called

if TYPE_CHECKING:
    from gpunode.system.readiness import Outcome, Readiness

_DEPLOY = Path("deploys/gpu_node.py")
_RUN = "run.failed"


@click.command()
@click.argument("inventory", type=click.Path(path_type=Path), default=Path("inventories/ci.py"))
@click.option(
    "--wait",
    "seconds",
    type=click.IntRange(0, 86400),
    default=600,
    show_default=True,
    help="Seconds that the machines may take to come up. The last look at them is finished, which takes "
    "up to two minutes more where one accepts a connection and falls silent.",
)
@click.option("--junit", type=REPORT, callback=writable, help="Write a JUnit report to this file.")
def ci(inventory: Path, seconds: int, junit: Path | None) -> None:
    """Wait for ssh and cloud-init on every machine of INVENTORY, provision them, and verify them.

    INVENTORY is inventories/ci.py unless given: its machines are named by the environment. Run it in the checkout.

    Exits 0 where every machine is as desired, 1 where one did not come up or its provisioning failed, 2 where one is
    not as desired afterwards, 3 on wrong settings.
    """
    # Imported here: pyinfra patches the process's sockets when it is imported.
    from gpunode.fleet.ci.judgement import came_up
    from gpunode.fleet.drift import inspect

    if not _DEPLOY.is_file():
        raise click.UsageError(f"there is no {_DEPLOY} here: run `gpunode ci` in the checkout of gpunode")
    with told():
        up = came_up(_awaited(inventory, seconds), seconds)
    late = {name: item for name, item in up.items() if item.finding_class is not FindingClass.OK}
    if late:
        for name, item in late.items():
            say(with_code(f"{name}: {item.cause}. Remedy: {item.remedy}", item.code), err=True)
        write_reports(tuple(NodeReport(name, (item,)) for name, item in up.items()), junit)
        sys.exit(ExitCode.ERROR)
    status = _provisioned(inventory)
    with told():
        reports = inspect(inventory)
    print_reports(reports, show_all=False, call=called(inventory))
    reports = tuple(replace(one, findings=(up[one.name], _run(status), *one.findings)) for one in reports)
    write_reports(reports, junit)
    sys.exit(ExitCode.ERROR if status else verdict(item for one in reports for item in one.findings))


def _awaited(inventory: Path, seconds: int) -> dict[str, Outcome]:
    from gpunode.facts.readiness import LONGEST
    from gpunode.facts.readiness import Readiness as ReadinessFact
    from gpunode.fleet import nodes as fleet
    from gpunode.fleet.ci.machines import known_hosts_made
    from gpunode.fleet.inventory import host_data
    from gpunode.system.readiness import Answer, Unconnectable, awaited

    known_hosts_made(host_data(inventory).values())

    def answered(answer: fleet.Answer[Readiness]) -> Answer:
        if answer.reading is not None:
            return answer.reading
        return Unconnectable(str(answer.reason)) if answer.lasting else str(answer.reason)

    def read(left: float) -> dict[str, Answer]:
        # A look at a machine that is up must not fail for want of time.
        limit = min(fleet.ANSWER_SECONDS, max(left, LONGEST))
        return {answer.name: answered(answer) for answer in fleet.read(inventory, ReadinessFact, seconds=limit)}

    return awaited(read, seconds, lambda name, outcome: say(f"{name}: {outcome.stage}: {outcome.why}", err=True))


def _provisioned(inventory: Path) -> int:
    """Run the main job as a user would, its output ours; return its exit status."""
    program = Path(sys.executable).with_name("pyinfra")
    done = subprocess.run([program, "-y", str(inventory), str(_DEPLOY)], stdin=subprocess.DEVNULL, check=False)
    return done.returncode


def _run(status: int) -> Finding:
    if status == 0:
        return Finding("run", FindingClass.OK, f"pyinfra {_DEPLOY}", "exit 0", "exit 0", code=_RUN)
    return Finding(
        "run",
        FindingClass.ERROR,
        f"pyinfra {_DEPLOY}",
        f"exit {status}",
        "exit 0",
        "an operation failed on this machine or on another of the job",
        "read the run's output in the job's log",
        code=_RUN,
    )
