"""`gpunode ci`: wait for a job's test machines, provision them, and say in JUnit whether they are GPU nodes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpunode.base.findings import ExitCode, Finding, FindingClass, NodeReport, cluster_of, verdict
from gpunode.base.host_names import folded
from gpunode.base.messages import with_code
from gpunode.base.terminal import say
from gpunode.cli.drift import print_reports, unwritten_reports
from gpunode.cli.errors import complain, told
from gpunode.cli.output import Mode, is_json, is_quiet, mode, no_color, output_option, talk
from gpunode.cli.report_file import REPORT, finish, writable
from gpunode.cli.selection import called, inventory_argument

if TYPE_CHECKING:
    from gpunode.fleet.reports.run_end import HostEnd
    from gpunode.system.readiness import Outcome, Readiness

_DEPLOY = Path("deploys/gpu_node.py")
# Lines of a run that failed, where nothing else of it is shown.
_LAST = 20


@click.command()
@inventory_argument(required=False, default=Path("inventories/ci.py"))
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
@output_option("every finding (docs/output.md)", "what is not as desired, and the end of a run that failed")
def ci(inventory: Path, seconds: int, junit: Path | None) -> None:
    """Wait for ssh and cloud-init on every machine of INVENTORY, provision them, and verify them.

    INVENTORY is inventories/ci.py unless given: its machines are named by the environment. Run it in the checkout.

    Exits 0 where every machine is as desired, 1 where one did not come up or its provisioning failed, 2 where one is
    not as desired afterwards, or something desired is not known, 3 on wrong settings.
    """
    # Imported here: pyinfra patches the process's sockets when it is imported.
    from gpunode.fleet.ci.machines import came_up
    from gpunode.fleet.drift import inspect

    if not _DEPLOY.is_file():
        raise click.UsageError(f"there is no {_DEPLOY} here: run `gpunode ci` in the checkout of gpunode")
    with told():
        up = came_up(_awaited(inventory, seconds), seconds)
    late = {name: item for name, item in up.items() if item.finding_class is not FindingClass.OK}
    if late:
        reports = tuple(NodeReport(name, (item,)) for name, item in up.items())
        for said, names in _alike(late).items():
            complain(f"{folded(names)}: {said}")
        _finish(reports, inventory, junit, ExitCode.ERROR, asks_cluster=False)
    status, ends = _provisioned(inventory, tuple(up))
    with told():
        reports = inspect(inventory)
    cluster = cluster_of(reports)
    whole = tuple(
        one
        if one is cluster
        else replace(one, findings=tuple(dict.fromkeys((up[one.name], _run(status, ends[one.name]), *one.findings))))
        for one in reports
    )
    # Of the run a person has read the output; of a program's document it is a finding.
    if not is_json():
        print_reports(reports, show_all=False, call=called(inventory))
    code = ExitCode.ERROR if status else verdict(item for one in whole for item in one.findings)
    _finish(whole, inventory, junit, code)


def _finish(
    reports: tuple[NodeReport, ...], inventory: Path, junit: Path | None, status: ExitCode, asks_cluster: bool = True
) -> NoReturn:
    # Late, as all that the help does not need.
    from gpunode.fleet.reports.document import document

    found = document(reports, called(inventory))
    if not asks_cluster:
        del found["cluster"]
    finish(found, unwritten_reports(reports, junit), status, indent=2)


def _alike(late: Mapping[str, Finding]) -> dict[str, list[str]]:
    """Return what is to be said -> the machines of which it is."""
    found: dict[str, list[str]] = {}
    for name, item in late.items():
        found.setdefault(with_code(f"{item.cause}. Remedy: {item.remedy}", item.code), []).append(name)
    return found


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

    return awaited(read, seconds, lambda name, outcome: talk(f"{name}: {outcome.stage}: {outcome.why}", err=True))


def _provisioned(inventory: Path, names: tuple[str, ...]) -> tuple[int, Mapping[str, HostEnd]]:
    """Run the main job as a user would, its output ours; return its exit status, and how it ended on each machine."""
    from gpunode.fleet.reports.run_end import run_ends
    from gpunode.fleet.run.events import EVENTS, read
    from gpunode.fleet.run.progress import Progress, after

    with tempfile.NamedTemporaryFile() as events:
        status = _exit_status(inventory, {EVENTS: events.name})
        progress = reduce(after, read(events.file)[0], Progress(len(names)))
    return status, {end.name: end for end in run_ends(names, progress, status, "the job's log")}


def _exit_status(inventory: Path, environment: Mapping[str, str]) -> int:
    from gpunode.fleet.run.child import ended_with_us

    environment = {**os.environ, **environment}
    program = Path(sys.executable).with_name("pyinfra")
    words = [str(program), "-y", str(inventory), str(_DEPLOY)]
    if mode() in (Mode.AUTO, Mode.TTY) and not no_color():
        with subprocess.Popen(words, stdin=subprocess.DEVNULL, env=environment) as shown, ended_with_us(shown):
            return shown.wait()
    # Through a pipe pyinfra writes no colours and moves no cursor.
    last: deque[str] = deque(maxlen=_LAST)
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
        errors="replace", env=environment,
    ) as run, ended_with_us(run):  # fmt: skip
        for line in run.stdout or ():
            last.append(line.rstrip("\n"))
            talk(last[-1])
    if is_quiet() and run.returncode:
        say("\n".join(last), err=True)
    return run.returncode


def _run(status: int, end: HostEnd) -> Finding:
    """Return why the run failed on a machine, or that it did not."""
    from gpunode.fleet.reports.run_end import why_failed
    from gpunode.fleet.rollout.choice import RUN_FAILED

    good = Finding("run", FindingClass.OK, f"pyinfra {_DEPLOY}", "no failure", "no failure", code=RUN_FAILED)
    return (why_failed(end) if status else None) or good
