"""The fixture /usr/bin/nvidia-smi: one zip archive that Python runs."""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path

from gpunode.lab.hardware.compiled import compiled

_SOURCES = Path(__file__).parent.parent / "hardware" / "simulated"
_DATE = (2025, 10, 1, 0, 0, 0)
# By itself, without the environment and without site-packages: an nvidia-smi starts hundreds of times in a test run.
_FIRST_LINES = b"#!/usr/bin/python3 -ISB\n# SIMULATED nvidia-smi of gpunode's lab\n"


def smi_archive(version: str) -> bytes:
    """Return the program of a driver version: a first line for the kernel, then the archive, same bytes each time."""
    main = f"import sys\nfrom simulated.smi.main import main\nsys.exit(main(sys.argv[1:], {version!r}))\n"
    sources = {"__main__.py": main.encode()}
    for path in sorted(_SOURCES.rglob("*")):
        if path.suffix in (".py", ".json"):
            sources[f"simulated/{path.relative_to(_SOURCES).as_posix()}"] = path.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sources.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), content)
            if name.endswith(".py"):
                archive.writestr(zipfile.ZipInfo(f"{name}c", _DATE), compiled(name, content))
    return _FIRST_LINES + buffer.getvalue()


# One for all packages that a process makes or compares: forty of them have it, of a handful of versions.
program = functools.cache(smi_archive)
