"""The own files that the operations of this run keep on each host, for the verdict and for the record of the run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from pyinfra.api import Host
from pyinfra.context import ctx_host

from gpunode.base.run_context import Slot
from gpunode.operations.phase import is_executing
from gpunode.system.applied import OwnFile

# Preparation and execution apart: what a step before it brings may decide on a file's text.
_noted: Slot[dict[bool, dict[str, OwnFile | None]]] = Slot(dict)


def keeps_no_others(host: Host) -> None:
    """Note that this run, which brings everything about on the host, keeps what it notes and no others, maybe none."""
    of_phases = _noted.of(host)
    for executing in (False, True):
        of_phases.setdefault(executing, {})


def keeps(path: str, text: str | None, mode: str | None = None) -> None:
    """Note that this run keeps a file at a text; None: that it keeps none there.

    + mode: octal digits, where the operation keeps the mode, too
    """
    current = ctx_host.get()
    if current is None:
        return
    files = _noted.of(current).setdefault(is_executing(), {})
    files[path] = None if text is None else OwnFile(hashlib.sha256(text.encode()).hexdigest(), mode)


def keeps_all(texts: Mapping[str, str], actual: Mapping[str, str] | None = None) -> None:
    """Note that this run keeps these files at these texts.

    + actual: path -> SHA-256 (hex) as the node has it, before it is known whether the run may write: what is another
      there may have to stay so for the time being, and is not noted
    """
    for path, text in texts.items():
        if actual is None or actual.get(path) == hashlib.sha256(text.encode()).hexdigest():
            keeps(path, text)


def kept() -> Mapping[str, OwnFile] | None:
    """Return path -> file of what this run keeps on the host, in this phase; None where nothing of it was run.

    A whole run keeps those files and no others, maybe none.
    """
    found = noted()
    return None if found is None else {path: file for path, file in found.items() if file is not None}


def noted() -> Mapping[str, OwnFile | None] | None:
    """Return path -> file of what was noted on the host in this phase, None where this run keeps none there.

    None in place of the mapping: no operation of this run was about own files, and it is no whole run.
    """
    current = ctx_host.get()
    return None if current is None else _noted.of(current).get(is_executing())
