"""How `gpunode apply` ends: what it says of the nodes behind the run, and where no run was made."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from gpunode.base.findings import ExitCode, NodeReport
from gpunode.base.terminal import say, say_coloured
from gpunode.cli.errors import complain
from gpunode.cli.output import columns, is_json, is_quiet, say_document, talk
from gpunode.cli.recording import recorded

if TYPE_CHECKING:
    from gpunode.cli.plan import Plans
    from gpunode.fleet.call import Call
    from gpunode.fleet.reports.run_end import HostEnd
    from gpunode.fleet.run.child import Files
    from gpunode.fleet.run.progress import Progress

_UNJUDGED = "no operation failed on it, and it was not verified"


def end_of_no_run(call: Call, plans: Plans) -> NoReturn:
    """End where no node takes part, with what there is to say of them where nobody has seen the plan."""
    from gpunode.fleet.reports.run_end import ends_of, status_of
    from gpunode.fleet.run.progress import Progress

    ends = ends_of(plans, Progress(0), 0)
    if is_json() or is_quiet():
        _say_ends(ends, call)
    sys.exit(status_of(ends))


def end_of_nodes(call: Call, ends: Collection[HostEnd]) -> NoReturn:
    """Say how the nodes are behind a run of other machines, and end the program."""
    from gpunode.fleet.reports.run_end import status_of

    _say_ends(ends, call)
    sys.exit(status_of(ends))


def end_of_run(call: Call, plans: Plans, code: int, progress: Progress, files: Files, nodes: int) -> NoReturn:
    """Say how the nodes are behind a run, and end the program; code: pyinfra's, nodes: how many it was made on."""
    from gpunode.fleet.reports.run_end import BROKEN_OFF, ends_of, how_it_ended, is_lost, status_of
    from gpunode.fleet.run.child import last_lines

    ends = ends_of(plans, progress, code)
    before = " before it could say how the nodes are" if progress.ends is None else ""
    lost = f"{how_it_ended(code)}{before}" if is_lost(ends, progress, nodes) else None
    _say_ends(ends, call, files, lost)
    if lost is not None:
        complain(f"{lost}. Its last lines are these", BROKEN_OFF)
        say(last_lines(files.log), err=True)
    status = status_of(ends)
    if status is not ExitCode.GOOD:
        talk(f"log: {files.log}", err=True)
    sys.exit(status)


def _say_ends(ends: Collection[HostEnd], call: Call, files: Files | None = None, lost: str | None = None) -> None:
    """Say how the nodes are; files: of the run, None where none was made; lost: how it was broken off."""
    from gpunode.cli.drift import coloured
    from gpunode.fleet.reports.run_end import report_of, status_of, verdict_text

    reports = [report for each in ends if (report := report_of(each)) is not None]
    alone = {end.name: end.left_alone or end.unverified or _UNJUDGED for end in ends if report_of(end) is None}
    found = document(call, reports, alone, status_of(ends), files, lost)
    if is_json():
        say_document(found)
    elif text := verdict_text(ends, columns(), call, coloured, is_quiet()):
        say_coloured(text)
    recorded(found, "apply")


def document(
    call: Call,
    reports: Sequence[NodeReport],
    alone: Mapping[str, str],
    status: ExitCode,
    files: Files | None = None,
    lost: str | None = None,
) -> dict[str, Any]:
    """Return what drift's document says, of the nodes as the run left them; `alone`: why others were not judged."""
    from gpunode.fleet.reports.document import document as document_of
    from gpunode.fleet.reports.run_end import BROKEN_OFF

    log = None if files is None else str(files.log)
    errors = [] if lost is None else [{"error": lost, "code": BROKEN_OFF}]
    own = {"exit_code": int(status), "errors": errors, "left_alone": dict(alone), "log": log}
    return {**document_of(reports, call), **own}
