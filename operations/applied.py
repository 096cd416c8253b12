"""The record on the node of what was applied: a later gpunode knows by it what an earlier one did, and drift by it
whether a hand was at gpunode's own files since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from pyinfra import host

from gpunode.base.findings import waiting
from gpunode.facts.records import Applied as AppliedFact
from gpunode.operations.failure import OperationRefused, node_operation, read_fact
from gpunode.operations.files import write_command
from gpunode.operations.own_files import noted
from gpunode.operations.phase import is_executing
from gpunode.operations.verify import left
from gpunode.settings import Settings
from gpunode.system.applied import OWNED, PATH, Applied, OwnFile, PresentFile, record_text

_MODE = "644"


@node_operation
def recorded(settings: Settings, whole: bool = True) -> Iterator[Any]:
    """Keep the record at gpunode's version, the settings' digest and the own files that this run keeps.

    + whole: whether the run keeps all own files that the settings ask for; else what it says nothing of stays recorded
    """
    actual = read_fact(AppliedFact, "the record of what was applied")
    if actual.newer:
        raise OperationRefused(f"{PATH} is kept: {actual.newer}")
    text = record_text(version("gpunode"), settings.digest(), _files(actual, whole), _waiting(actual))
    yield from _written(actual, text)


@node_operation
def brought_up_to_date() -> Iterator[Any]:
    """Keep what the record says of the files that this deploy keeps or took away; no record where there is none."""
    if not noted():
        host.noop("this deploy keeps no own file")
        return
    actual = read_fact(AppliedFact, "the record of what was applied")
    before = dict(actual.files)
    files = {path: file for path, file in _files(actual, whole=False).items() if path in before}
    if files == before or not (actual.gpunode and actual.settings):
        host.noop(f"{PATH} says nothing of what was done")
        return
    text = record_text(actual.gpunode, actual.settings, files, dict(actual.waiting))
    yield from _written(actual, text)


def _written(actual: Applied, text: str) -> Iterator[Any]:
    desired = PresentFile(f"{_MODE} {OWNED}", hashlib.sha256(text.encode()).hexdigest())
    if dict(actual.present).get(PATH) == desired:
        host.noop(f"{PATH} is as it should be")
        return
    yield write_command(PATH, text, _MODE)


def _waiting(actual: Applied) -> dict[str, str]:
    """Return what waits on the node, and since when; before the run's verdict it is what waited before."""
    before, found = dict(actual.waiting), left()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return before if found is None else waiting(found, before, now)


def _files(actual: Applied, whole: bool) -> dict[str, OwnFile]:
    before, now = dict(actual.files), noted()
    if now is None:
        # The verdict alone was run: what the deploys want is as it was.
        return before
    if not is_executing():
        # What stands in a file may follow from what is installed, which a run may change before it comes to the file.
        now = {path: file and before.get(path, file) for path, file in now.items()}
    found = now if whole else {**before, **now}
    return {path: file for path, file in found.items() if file is not None}
