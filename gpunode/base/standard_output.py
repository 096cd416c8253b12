"""Standard output is for results: `gpunode drift --json INVENTORY | jq` reads one document there, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

_OUTPUT, _ERRORS = 1, 2
_has_results = True


def has_no_results() -> None:
    """Say that this process prints no result: its standard output is anybody's, and what others print stays there."""
    global _has_results
    _has_results = False


@contextmanager
def kept_for_results() -> Iterator[None]:
    """Send to standard error what somebody else's code prints meanwhile, and what the programs print that it starts."""
    if not _has_results:
        yield
        return
    with redirect_stdout(sys.stderr), _descriptor_redirected():
        yield


@contextmanager
def _descriptor_redirected() -> Iterator[None]:
    # Where a stream is closed when Python begins, its descriptor may be any other file's by now.
    if sys.__stdout__ is None:
        yield
        return
    # What was printed before goes where it belongs.
    sys.__stdout__.flush()
    kept = os.dup(_OUTPUT)
    try:
        if sys.__stderr__ is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, _OUTPUT)
            os.close(nowhere)
        else:
            os.dup2(_ERRORS, _OUTPUT)
        yield
    finally:
        # What was written to Python's own stream meanwhile is not to come to the results later.
        sys.__stdout__.flush()
        os.dup2(kept, _OUTPUT)
        os.close(kept)
