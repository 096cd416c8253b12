"""A report's file is replaced as a whole: whoever reads it (a textfile collector, a CI job) never sees half of it."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

# Reports are read by other users (node_exporter's, a CI job's), and hold no secret: settings refuse those.
_MODE = 0o644
# As many as Linux follows.
_LINKS = 40


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace the file `path`; raise OSError, and leave what was there, where it cannot be written.

    A link stays, and the file that it names is replaced; what is no file (a pipe) is written to, as is what this
    program has open (/dev/stdout), whatever that is: others write to it, too.
    """
    data = content.encode() if isinstance(content, str) else content
    if (descriptor := _opened(path)) is not None:
        sys.stdout.flush()
        sys.stderr.flush()
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(data)
        return
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    path = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), _MODE)
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _opened(path: Path) -> int | None:
    """Return the descriptor of this program that the path stands for; None where it is a file's own name."""
    # One link after another: the last one's target is what is open, and no longer says so.
    for _ in range(_LINKS):
        if path.parent.resolve() == Path("/proc/self/fd").resolve() and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None
