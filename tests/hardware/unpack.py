"""`unpack.py CARRIED FOLDER`: unpack what carry.py packed; exit 3 where it is for another Python."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from pathlib import Path


def main(carried: Path, folder: Path) -> int:
    """Unpack the file, or copy the folder, unless that was done; return 3 where its wheels are for another Python."""
    about = folder / "about.json"
    if not about.exists() and carried.is_dir():
        shutil.copytree(carried, folder, symlinks=True, dirs_exist_ok=True)
    elif not about.exists():
        with tarfile.open(carried) as archive:
            # Python 3.11.2, which Debian 12 has, knows no filters; newer ones warn without one.
            archive.extraction_filter = getattr(tarfile, "fully_trusted_filter", None)
            archive.extractall(folder)
    needed = json.loads(about.read_text(encoding="utf-8"))["python"]
    if needed == f"{sys.version_info.major}.{sys.version_info.minor}":
        return 0
    print(f"{sys.executable} is Python {sys.version.split()[0]}; the carried wheels are for {needed}", file=sys.stderr)
    return 3


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
