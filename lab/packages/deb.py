"""A Debian package as data, and its building with dpkg-deb."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from gpunode.lab.errors import LabError

_MAINTAINER = "gpunode lab <lab@gpunode.invalid>"
# Files of equal content must give packages of equal bytes, whenever they are built.
_EPOCH = "1760000000"
# Raise it when packages of the same data are to be built in another way.
_BUILD = "2"


class DebError(LabError):
    """Say which package dpkg-deb could not build, in dpkg-deb's words."""


@dataclass(frozen=True)
class Payload:
    """Hold one file of a package: its path in the node without the first slash; `link` makes it a symbolic link."""

    path: str
    content: bytes = b""
    mode: int = 0o644
    link: str | None = None


@dataclass(frozen=True)
class Deb:
    """Hold one binary package; dependency fields are written as in debian/control, scripts by name (postinst ...)."""

    name: str
    version: str
    description: str
    architecture: str = "amd64"
    depends: str = ""
    provides: str = ""
    conflicts: str = ""
    replaces: str = ""
    pre_depends: str = ""
    recommends: str = ""
    breaks: str = ""
    files: tuple[Payload, ...] = ()
    scripts: tuple[tuple[str, str], ...] = ()
    conffiles: tuple[str, ...] = ()

    @property
    def filename(self) -> str:
        """Return the file name that a repository uses; an epoch is left out as dpkg does."""
        return f"{self.name}_{self.version.partition(':')[2] or self.version}_{self.architecture}.deb"

    def digest(self) -> str:
        """Return a SHA-256 (hex) over everything that the built file depends on."""
        content = json.dumps(asdict(self), default=lambda raw: hashlib.sha256(raw).hexdigest(), sort_keys=True)
        return hashlib.sha256((content + _EPOCH + _BUILD).encode()).hexdigest()

    def control(self) -> str:
        """Return the control file."""
        fields = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": _MAINTAINER,
            "Pre-Depends": self.pre_depends,
            "Depends": self.depends,
            "Recommends": self.recommends,
            "Provides": self.provides,
            "Conflicts": self.conflicts,
            "Breaks": self.breaks,
            "Replaces": self.replaces,
            "Section": "non-free/libs",
            "Priority": "optional",
            "Description": f"{self.description}\n SIMULATED: a fixture of gpunode's lab; holds nothing of NVIDIA's.",
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items() if value)


def build_deb(deb: Deb, cache: Path) -> Path:
    """Return the package's file in the cache folder, built if it is not there; raise DebError if dpkg-deb fails."""
    target = cache / f"{deb.digest()}.deb"
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        tree, draft = Path(folder) / "tree", Path(folder) / "draft.deb"
        _write_tree(deb, tree)
        pack(tree, draft, deb.name)
        draft.replace(target)
    return target


def pack(tree: Path, target: Path, name: str) -> None:
    """Run dpkg-deb on an unpacked package; raise DebError if it fails or is not installed."""
    command = ["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(target)]
    try:
        result = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "SOURCE_DATE_EPOCH": _EPOCH, "LC_ALL": "C"}
        )
    except FileNotFoundError:
        raise DebError("dpkg-deb is not installed: apt-get install dpkg-dev") from None
    if result.returncode:
        raise DebError(f"cannot build package {name}: {result.stderr.strip()}")


def _write_tree(deb: Deb, tree: Path) -> None:
    debian = tree / "DEBIAN"
    debian.mkdir(parents=True)
    tree.chmod(0o755)
    debian.chmod(0o755)
    (debian / "control").write_text(deb.control())
    for name, script in deb.scripts:
        (debian / name).write_text(script)
        (debian / name).chmod(0o755)
    if any(".so." in file.path for file in deb.files):
        # As debhelper does for packages with libraries: dpkg runs ldconfig.
        (debian / "triggers").write_text("activate-noawait ldconfig\n")
    if deb.conffiles:
        (debian / "conffiles").write_text("".join(f"/{path}\n" for path in deb.conffiles))
    write_files(deb.files, tree)


def write_files(files: Iterable[Payload], tree: Path) -> None:
    """Write a package's files below a folder; every folder there has mode 755 then."""
    for file in files:
        path = tree / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.link is not None:
            path.symlink_to(file.link)
        else:
            path.write_bytes(file.content)
            path.chmod(file.mode)
    for folder in tree.rglob("*"):
        if folder.is_dir() and not folder.is_symlink():
            folder.chmod(0o755)
