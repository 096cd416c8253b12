"""A report's file is replaced as a whole: whoever reads it (a textfile collector, a CI job) never sees half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# Reports are read by other users (node_exporter's, a CI job's), and hold no secret: settings refuse those.
_MODE = 0o644


def write_whole(path: Path, content: str | bytes) -> None:
    """Replace the file `path`; raise OSError, and leave what was there, where it cannot be written.

    A link stays, and the file that it names is replaced; what is no file (a pipe, /dev/stdout) is written to.
    """
    path = path.resolve()
    data = content.encode() if isinstance(content, str) else content
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
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
