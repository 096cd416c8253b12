"""The fixture /usr/bin/nvidia-smi: a small program that lets Python run the zip archive behind it in the same file."""

from __future__ import annotations

import functools
import io
import zipfile
from pathlib import Path

from gpunode.lab.hardware.compiled import compiled
from gpunode.lab.hardware.nvml.build import smi

_SOURCES = Path(__file__).parent.parent / "hardware" / "simulated"
_DATE = (2025, 10, 1, 0, 0, 0)


def smi_archive(version: str) -> bytes:
    """Return the program of a driver version: lab/hardware/nvml/smi.c, then the archive, same bytes each time."""
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
    return smi().read_bytes() + buffer.getvalue()


# One for all packages that a process makes or compares: forty of them have it, of a handful of versions.
program = functools.cache(smi_archive)
