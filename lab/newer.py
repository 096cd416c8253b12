"""Programs of Debian sid in an image of an older release: each with its own loader and libraries.

Nothing of the image is upgraded: sid's C library would bring sid's systemd, which does not start where there are
cgroups of version 1. What such a program starts is the image's own.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpunode.lab.chroot import write
from gpunode.lab.packages.other_release import unpacked_with_needed

SUITE = "sid"
_FOLDER = "usr/lib/debian-sid"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
# Loaded by their path: programs look for them at the place that they were built for.
_PLUGINS = ("dnf5", "libdnf5")
# What the programs read, at its own place; rpm's own configuration is told by RPM_CONFIGDIR.
_DATA = ("etc/dnf", "usr/share/dnf5")
# Program -> links to it.
_PROGRAMS = {"dnf5": ("dnf",), "rpm": (), "rpmkeys": ()}
_WRAPPER = f"""#!/bin/sh
# Debian {SUITE}'s program, with its own libraries (gpunode/lab/newer.py).
export RPM_CONFIGDIR=/{_FOLDER}/usr/lib/rpm
there=/{_FOLDER}/{_LIBRARIES}
exec "$there/ld-linux-x86-64.so.2" --argv0 "$0" --library-path "$there" "/{_FOLDER}/usr/bin/@PROGRAM@" "$@"
"""


def newer_digest(packages: Sequence[str]) -> str:
    """Return text that differs where other programs would come; empty where none do."""
    source = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    return f"{SUITE} {' '.join(packages)} {source}" if packages else ""


def install_newer(folder: Path, packages: Sequence[str]) -> None:
    """Put programs of sid's packages into a root filesystem, with all that they load; nothing where none is named.

    Raises DebError where apt cannot fetch them.
    """
    if not packages:
        return
    with tempfile.TemporaryDirectory(prefix="newer.", dir=folder.parent) as name:
        found = Path(name)
        unpacked_with_needed(SUITE, packages, found)
        there = folder / _FOLDER
        (there / "usr/bin").mkdir(parents=True)
        libraries = found / _LIBRARIES
        for path in libraries.iterdir():
            if path.is_dir() and path.name not in _PLUGINS:
                shutil.rmtree(path)
        shutil.copytree(libraries, there / _LIBRARIES, symlinks=True)
        shutil.copytree(found / "usr/lib/rpm", there / "usr/lib/rpm", symlinks=True)
        for data in _DATA:
            shutil.copytree(found / data, folder / data, symlinks=True, dirs_exist_ok=True)
        for plugins in _PLUGINS:
            (folder / _LIBRARIES / plugins).symlink_to(f"/{_FOLDER}/{_LIBRARIES}/{plugins}")
        for program, links in _PROGRAMS.items():
            shutil.copy2(found / "usr/bin" / program, there / "usr/bin" / program)
            (folder / "usr/bin" / program).unlink(missing_ok=True)
            write(folder / "usr/bin" / program, _WRAPPER.replace("@PROGRAM@", program), 0o755)
            for link in links:
                (folder / "usr/bin" / link).symlink_to(program)
