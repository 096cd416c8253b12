"""Arch's repository: the fixture packages as pacman has them, one version of each in it, the older ones as files."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from lab.cache import locked
from lab.errors import LabError
from lab.packages.cuda import cuda_packages
from lab.packages.deb import Deb, Payload
from lab.packages.driver import BROKEN_VERSION, DRIVER_VERSIONS, driver_packages
from lab.packages.pkg import Pkg, build_pkgs
from lab.packages.toolkit import toolkit_packages
from lab.signing import key_file, public_key
from lab.toolbox import run_in

Report = Callable[[str], None]

# As https://archive.archlinux.org keeps what the repositories had before.
EXTRA, ARCHIVE = "extra/os/x86_64", "archive/packages"
_NEWEST = DRIVER_VERSIONS[-1]
# Which kernel each is for; what they bring is the same.
_MODULES = {
    "nvidia": ("nvidia-kernel-dkms", "linux"),
    "nvidia-lts": ("nvidia-kernel-dkms", "linux-lts"),
    "nvidia-dkms": ("nvidia-kernel-dkms", "dkms"),
    "nvidia-open": ("nvidia-kernel-open-dkms", "linux"),
    "nvidia-open-dkms": ("nvidia-kernel-open-dkms", "dkms"),
}
_USERLAND = ("libnvidia-ml1", "nvidia-driver-cuda", "nvidia-persistenced")
_FOLDERS = (("usr/lib/x86_64-linux-gnu/", "usr/lib/"), ("lib/systemd/system/", "usr/lib/systemd/system/"))
_CUDA_HOME = "opt/cuda"
# What a node has from the start, without the programs, which Debian's base has.
SYSTEM = ("bash", "ca-certificates", "curl", "gnupg", "linux", "linux-lts", "dkms", "pacman", "python", "systemd")
_INDEX = """
export GNUPGHOME=/root/gnupg; mkdir -m 700 "$GNUPGHOME"
gpg --batch --quiet --import /work/secret.asc
cd "/work/$extra"
repo-add --quiet --sign --key "$fingerprint" extra.db.tar.gz ./*.pkg.tar.zst > /work/log 2>&1 ||
  { tail -n 20 /work/log >&2; exit 1; }
# Links, which the repository's server need not follow.
for file in extra.db extra.files; do
  rm -f "$file" "$file.sig"; cp "$file.tar.gz" "$file"; cp "$file.tar.gz.sig" "$file.sig"
done
"""


class PacmanRepositoryError(LabError):
    """Say why the repository could not be made."""


def system_pkgs() -> list[Pkg]:
    """Return what a node of the distribution has from the start."""
    return [Pkg(name, "1.0-1", f"{name} of the distribution") for name in SYSTEM]


def fixture_pkgs() -> list[Pkg]:
    """Return every package at every version."""
    debs = {(deb.name, deb.version.rpartition("-")[0]): deb for deb in driver_packages()}
    found = []
    for version in DRIVER_VERSIONS:
        found += [_module(name, version, debs) for name in _MODULES]
        found.append(_userland(version, debs))
    # There is one CUDA, in /opt/cuda.
    found += [_cuda(deb) for deb in cuda_packages()]
    for deb in toolkit_packages():
        found.append(_pkg(deb, deb.name, depends=_TOOLKIT_NEEDS.get(deb.name, ())))
    # Something of the system's to upgrade to, beside which what is ignored stays.
    return [*found, Pkg("curl", "1.1-1", "curl of the distribution")]


_TOOLKIT_NEEDS = {
    "nvidia-container-toolkit": ("nvidia-container-toolkit-base", "libnvidia-container-tools"),
    "libnvidia-container-tools": ("libnvidia-container1",),
}


def _module(name: str, version: str, debs: dict[tuple[str, str], Deb]) -> Pkg:
    deb, needs = _MODULES[name]
    others = tuple(other for other in _MODULES if other != name)
    package = _pkg(debs[deb, version], name, depends=(f"nvidia-utils={version}", needs))
    return replace(package, provides=("NVIDIA-MODULE",), conflicts=others)


def _userland(version: str, debs: dict[tuple[str, str], Deb]) -> Pkg:
    parts = [_pkg(debs[name, version], "nvidia-utils") for name in _USERLAND]
    return replace(parts[0], files=tuple(file for part in parts for file in part.files), scripts=parts[-1].scripts)


def _cuda(deb: Deb) -> Pkg:
    files = tuple(replace(file, path="/".join([_CUDA_HOME, *file.path.split("/")[3:]])) for file in deb.files)
    return Pkg("cuda", deb.version, deb.description, files=files)


def _pkg(deb: Deb, name: str, depends: tuple[str, ...] = ()) -> Pkg:
    scripts = dict(deb.scripts)
    functions = []
    if "postinst" in scripts:
        body = "set -- configure\n" + scripts["postinst"].removeprefix("#!/bin/sh\n").replace("set -e\n", "", 1)
        functions += [("post_install", body), ("post_upgrade", body)]
    if "prerm" in scripts:
        body = scripts["prerm"].removeprefix("#!/bin/sh\n").replace("set -e\n", "", 1)
        functions.append(("pre_remove", f"set -- remove\n{body}"))
    return Pkg(
        name, deb.version, deb.description, depends, files=tuple(map(_placed, deb.files)), scripts=tuple(functions),
        backup=tuple(deb.conffiles),
    )  # fmt: skip


def _placed(file: Payload) -> Payload:
    for debian, there in _FOLDERS:
        if file.path.startswith(debian):
            return replace(file, path=there + file.path.removeprefix(debian))
    return file


def build_pacman_mirror(cache: Path, mirror: Path, tools: Path, report: Report) -> None:
    """Build the repository and the archive as the folder `pacman` of the mirror, unless nothing of them has changed.

    Raises PacmanRepositoryError, PkgError or SigningError if a tool fails.
    """
    with locked(cache / "mirror.lock"):
        key = key_file(cache / "keys", "repository")
        _, fingerprint = public_key(key)
        packages = fixture_pkgs()
        content = repr(packages) + fingerprint + Path(__file__).read_text(encoding="utf-8")
        digest = hashlib.sha256(content.encode()).hexdigest()
        there = mirror / "pacman"
        if (there / "digest").exists() and (there / "digest").read_text().strip() == digest:
            report("pacman mirror: up to date")
            return
        started = time.monotonic()
        report(f"pacman mirror: building {len(packages)} fixture packages")
        files = build_pkgs(packages, cache / "packages", tools, key)
        working = [package for package in packages if package.version.rpartition("-")[0] != BROKEN_VERSION]
        current = {package.name: package for package in working}
        with tempfile.TemporaryDirectory(prefix="pacman.", dir=cache) as name:
            draft = Path(name) / "draft"
            for folder in (EXTRA, ARCHIVE):
                (draft / folder).mkdir(parents=True)
            for package, file in zip(packages, files, strict=True):
                place = draft / (EXTRA if current[package.name] is package else ARCHIVE)
                for path in (file, file.with_name(f"{file.name}.sig")):
                    _link(path, place / path.name)
            shutil.copyfile(key, draft / "secret.asc")
            done = run_in(tools, draft, _INDEX, extra=EXTRA, fingerprint=fingerprint)
            if done.returncode:
                raise PacmanRepositoryError(f"cannot index pacman's repository: {done.stderr.strip()}")
            for leftover in ("secret.asc", "log"):
                (draft / leftover).unlink()
            (draft / "digest").write_text(digest + "\n")
            draft.chmod(0o755)
            if there.exists():
                there.rename(Path(name) / "old")
            draft.rename(there)
        report(f"pacman mirror: done in {time.monotonic() - started:.0f} s")


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
