"""Python modules compiled for a lab node: to compile them takes longer than most of its programs run."""

from __future__ import annotations

import functools
import importlib.util
import marshal


@functools.cache
def compiled(name: str, source: bytes) -> bytes:
    """Return a module as the file that Python reads in place of its source, which it does not look at for it.

    A Python of another version takes the source. Version 2 of the format is the same bytes each time.
    """
    unchecked = (1).to_bytes(4, "little")
    code = marshal.dumps(compile(source, name, "exec", dont_inherit=True), 2)
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + code
