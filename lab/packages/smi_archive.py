"""The fixture /usr/bin/nvidia-smi: one zip archive that Python runs."""

from __future__ import annotations

import importlib.util
import io
import marshal
import zipfile
from pathlib import Path

_SOURCES = Path(__file__).parent.parent / "hardware" / "simulated"
_DATE = (2025, 10, 1, 0, 0, 0)


def smi_archive(version: str) -> bytes:
    """Return the program of a driver version: a first line for the kernel, then the archive, same bytes each time."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        main = f"import sys\nfrom simulated.smi.main import main\nsys.exit(main(sys.argv[1:], {version!r}))\n"
        archive.writestr(zipfile.ZipInfo("__main__.py", _DATE), main)
        for path in sorted(_SOURCES.rglob("*")):
            if path.suffix in (".py", ".json"):
                name = f"simulated/{path.relative_to(_SOURCES).as_posix()}"
                archive.writestr(zipfile.ZipInfo(name, _DATE), path.read_bytes())
            if path.suffix == ".py":
                archive.writestr(zipfile.ZipInfo(f"{name}c", _DATE), _compiled(name, path.read_bytes()))
    return b"#!/usr/bin/python3\n# SIMULATED nvidia-smi of gpunode's lab\n" + buffer.getvalue()


def _compiled(name: str, source: bytes) -> bytes:
    """Return a module as Python reads it at once: to compile it takes a fifth of a call, and there are thousands.

    A Python of another version takes the source beside it. Version 2 of the format is the same bytes each time.
    """
    unchecked = (1).to_bytes(4, "little")
    code = marshal.dumps(compile(source, name, "exec", dont_inherit=True), 2)
    return importlib.util.MAGIC_NUMBER + unchecked + importlib.util.source_hash(source) + code
