"""The record on the node of what was applied: a later gpunode knows by it what an earlier one did, and drift by it
whether a hand was at gpunode's own files since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

from pyinfra import host

from facts.applied import Applied as AppliedFact
from gpunode.applied import OWNED, PATH, Applied, OwnFile, PresentFile, record_text
from gpunode.settings import Settings
from operations.failure import known, node_operation
from operations.files import write_command
from operations.own_files import is_executing, kept

_MODE = "644"


@node_operation
def recorded(settings: Settings) -> Iterator[Any]:
    """Keep the record at gpunode's version, the settings' digest and the own files that this run keeps.

    + settings: the host's settings
    """
    there: Applied = known(host.get_fact(AppliedFact), "the record of what was applied")
    text = record_text(version("gpunode"), settings.digest(), _files(there))
    wanted = PresentFile(f"{_MODE} {OWNED}", hashlib.sha256(text.encode()).hexdigest())
    if dict(there.present).get(PATH) == wanted:
        host.noop(f"{PATH} is as it should be")
        return
    yield write_command(PATH, text, _MODE)


def _files(there: Applied) -> dict[str, OwnFile]:
    before, now = dict(there.files), kept()
    if now is None:
        # The verdict alone was run: what the deploys want is as it was.
        return before
    if is_executing():
        return dict(now)
    # What stands in a file may follow from what is installed, which a run may change before it comes to the file.
    return {path: before.get(path, file) for path, file in now.items()}


__all__ = ["PATH", "recorded"]
