"""`python -m tests.type_check`: run mypy on a temporary folder of links, in which facts/ is gpunode/facts/.

mypy does not follow the `__path__` that gpunode/__init__.py extends. Its cache stays in the checkout.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
_ROOMS = ("facts", "operations", "deploys", "lab")


def linked(checkout: Path, folder: Path) -> Path:
    """Fill a folder with links to the packages of a checkout, by the names that Python imports them by."""
    (folder / "gpunode").mkdir(parents=True)
    for path in (*(checkout / "gpunode").iterdir(), *(checkout / room for room in _ROOMS)):
        (folder / "gpunode" / path.name).symlink_to(path)
    (folder / "tests").symlink_to(checkout / "tests")
    return folder


def main() -> int:
    """Print what mypy prints, with the paths of the checkout; return its exit status."""
    with tempfile.TemporaryDirectory() as folder:
        options = ["--config-file", str(CHECKOUT / "pyproject.toml"), "--cache-dir", str(CHECKOUT / ".mypy_cache")]
        line = [sys.executable, "-m", "mypy", *options, "gpunode", "tests"]
        done = subprocess.run(line, cwd=linked(CHECKOUT, Path(folder)), stdout=subprocess.PIPE, text=True, check=False)
    print(re.sub(rf"^gpunode/(?=(?:{'|'.join(_ROOMS)})/)", "", done.stdout, flags=re.MULTILINE), end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
