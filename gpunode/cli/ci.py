"""`gpunode ci`: wait for a job's test machines, provision them, and say in JUnit whether they are GPU nodes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from gpunode.base.findings import ExitCode, Finding, FindingClass, NodeReport, cluster_of, verdict
from gpunode.base.folding import folded
from gpunode.base.messages import with_code
from gpunode.base.terminal import say
from gpunode.cli.drift import print_reports
from gpunode.cli.errors import complain, told
from gpunode.cli.output import Mode, is_json, is_quiet, mode, no_color, output_option, talk
from gpunode.cli.report_file import REPORT, finish, unwritten, writable
from gpunode.cli.selection import called, inventory_argument, limit_option, set_option

if TYPE_CHECKING:
    from gpunode.fleet.call import Call
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
@limit_option
@set_option
def ci(inventory: Path, seconds: int, junit: Path | None, limit: tuple[str, ...]) -> None:
    """Wait for ssh and cloud-init on every machine of INVENTORY, provision them, and verify them.

    INVENTORY is inventories/ci.py unless given: its machines are named by the environment. With --limit the others are
    neither waited for nor changed. Run it in the checkout.

    Exits 0 where every machine is as desired, 1 where one did not come up or its provisioning failed, 2 where one is
    not as desired afterwards, or something desired is not known, 3 on wrong settings.
    """
    # Imported here: pyinfra patches the process's sockets when it is imported.
    from gpunode.fleet.ci.machines import came_up
    from gpunode.fleet.drift import inspect

    if not _DEPLOY.is_file():
        raise click.UsageError(f"there is no {_DEPLOY} here: run `gpunode ci` in the checkout of gpunode")
    began = time.monotonic()
    with told():
        call = called(inventory, limit)
        up = came_up(_awaited(call, seconds), seconds)
    steps = {"machine": time.monotonic() - began}
    late = {name: item for name, item in up.items() if item.finding_class is not FindingClass.OK}
    if late:
        why = f"{folded(late)} did not come up"
        skipped = _run(FindingClass.NOT_KNOWN, "not begun", why, "look first at the machine that the cause names")
        reports = tuple(NodeReport(name, (item,) if name in late else (item, skipped)) for name, item in up.items())
        for said, names in _alike(late).items():
            complain(f"{folded(names)}: {said}")
        _finish(reports, call, junit, ExitCode.ERROR, steps)
    status, ends = _provisioned(call, up)
    steps["run"] = time.monotonic() - began - sum(steps.values())
    with told():
        reports = inspect(inventory, limit=limit)
    steps["read"] = time.monotonic() - began - sum(steps.values())
    cluster = cluster_of(reports)
    whole = tuple(
        one if one is cluster else replace(one, findings=(up[one.name], *_of_run(ends[one.name]), *one.findings))
        for one in reports
    )
    # Of the run a person has read the output; of a program's document it is a finding.
    if not is_json():
        print_reports(reports, show_all=False, call=call)
    code = ExitCode.ERROR if status else verdict(item for one in whole for item in one.findings)
    _finish(whole, call, junit, code, steps)


def _finish(
    reports: tuple[NodeReport, ...], call: Call, junit: Path | None, status: ExitCode, steps: Mapping[str, float]
) -> NoReturn:
    """Write the reports, and end the program; steps: as of write_junit."""
    # Late, as all that the help does not need.
    from gpunode.fleet.reports.document import document
    from gpunode.fleet.reports.junit import write_junit

    found = document(reports, call)
    if "read" not in steps:
        del found["cluster"]
    why_not = unwritten(junit, lambda file: write_junit(reports, file, "gpunode ci", steps))
    finish(found, why_not, status, indent=2)


def _alike(late: Mapping[str, Finding]) -> dict[str, list[str]]:
    """Return what is to be said -> the machines of which it is."""
    found: dict[str, list[str]] = {}
    for name, item in late.items():
        found.setdefault(with_code(f"{item.cause}. Remedy: {item.remedy}", item.code), []).append(name)
    return found


def _awaited(call: Call, seconds: int) -> dict[str, Outcome]:
    from gpunode.facts.system import LONGEST
    from gpunode.facts.system import Readiness as ReadinessFact
    from gpunode.fleet import nodes as fleet
    from gpunode.fleet.ci.machines import known_hosts_made
    from gpunode.fleet.inventory import host_data
    from gpunode.system.readiness import Answer, Unconnectable, awaited

    inventory = Path(call.name)
    known_hosts_made(host_data(inventory).values())

    def answered(answer: fleet.Answer[Readiness]) -> Answer:
        if answer.reading is not None:
            return answer.reading
        return Unconnectable(str(answer.reason)) if answer.lasting else str(answer.reason)

    def read(left: float) -> dict[str, Answer]:
        # A look at a machine that is up must not fail for want of time.
        answers = fleet.read(
            inventory, ReadinessFact, seconds=min(fleet.ANSWER_SECONDS, max(left, LONGEST)), limit=call.limit
        )
        return {answer.name: answered(answer) for answer in answers}

    return awaited(read, seconds, lambda name, outcome: talk(f"{name}: {outcome.stage}: {outcome.why}", err=True))


def _provisioned(call: Call, names: Collection[str]) -> tuple[int, dict[str, HostEnd]]:
    """Run the main job as a user would, its output ours; return its exit status, and how it ended on each machine."""
    from gpunode.base.parent_watch import bound
    from gpunode.fleet.reports.run_end import run_ends
    from gpunode.fleet.run import events
    from gpunode.fleet.run.child import ended_with_us
    from gpunode.fleet.run.progress import Progress, after

    limit = [word for pattern in call.limit for word in ("--limit", pattern)]
    words = [str(Path(sys.executable).with_name("pyinfra")), "-y", *limit, call.name, str(_DEPLOY)]
    # Through a pipe pyinfra writes no colours and moves no cursor.
    is_shown, last = mode() in (Mode.AUTO, Mode.TTY) and not no_color(), deque[str](maxlen=_LAST)
    pipes = (None, None) if is_shown else (subprocess.PIPE, subprocess.STDOUT)
    with tempfile.NamedTemporaryFile() as told_of, subprocess.Popen(
        bound(words), stdin=subprocess.DEVNULL, stdout=pipes[0], stderr=pipes[1], encoding="utf-8", errors="replace",
        env={**os.environ, **call.environment(), events.EVENTS: told_of.name},
    ) as run, ended_with_us(run):  # fmt: skip
        for line in run.stdout or ():
            last.append(line.rstrip("\n"))
            talk(last[-1])
        status = run.wait()
        progress = reduce(after, events.read(told_of)[0], Progress(len(names)))
    if is_quiet() and status:
        say("\n".join(last), err=True)
    return status, {end.name: end for end in run_ends(names, progress, status, "the job's log")}


def _of_run(end: HostEnd) -> tuple[Finding, ...]:
    """Return what the run did on a machine: the operation that failed; skipped where preflight refused the machine."""
    from gpunode.fleet.reports.run_end import report_of

    if why := "preflight refuses this machine" if end.refused else end.left_alone:
        return (_run(FindingClass.NOT_KNOWN, "not begun", why, "do what the other findings of this machine say"),)
    # What the run's verdict found is read again.
    report = report_of(replace(end, findings=None))
    return report.findings if report else (_run(FindingClass.OK, "no operation failed"),)


def _run(found: FindingClass, actual: str, cause: str | None = None, remedy: str | None = None) -> Finding:
    from gpunode.fleet.rollout.choice import RUN_FAILED

    desired = actual if found is FindingClass.OK else None
    return Finding("run", found, f"pyinfra {_DEPLOY}", actual, desired, cause, remedy, code=RUN_FAILED)
