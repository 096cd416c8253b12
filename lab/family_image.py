"""Images of other families, derived from Debian's base: with the package manager first, without apt and dpkg last."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from gpunode.lab.chroot import within
from gpunode.lab.families import Family
from gpunode.lab.newer import install_newer, newer_digest

_APART = "usr/lib/gpunode-lab/debian"
# update-alternatives stays, with its records: other families have it as well.
_DEBIAN = ("etc/apt", "etc/debian_version", "etc/dpkg", "var/lib/apt", "var/cache/apt", "var/lib/dpkg")
_ALTERNATIVES = "var/lib/dpkg/alternatives"


def tools_digest(base_digest: str, family: Family) -> str:
    """Return the digest of a family's base: Debian's with the package manager installed."""
    return hashlib.sha256(
        f"{base_digest}\0{family.packages}\0{_source()}{newer_digest(family.newer)}".encode()
    ).hexdigest()[:16]


def family_digest(family: Family, fingerprint: str, system: Sequence[str]) -> str:
    """Return a SHA-256 (hex) over what `finish` puts into an image; `system` are digests of the system's packages."""
    parts = (family.name, family.setup, *family.removed, *(f"{a}\0{b}" for a, b in family.files.items()))
    return hashlib.sha256("\0".join([*parts, fingerprint, *system, _source()]).encode()).hexdigest()


def install_tools(folder: Path, family: Family) -> None:
    """Install the family's package manager with apt in a root filesystem."""
    within(folder, "apt-get", "-o", "APT::Update::Error-Mode=any", "update")
    within(folder, "apt-get", "install", "-y", "--no-install-recommends", *family.packages)
    within(folder, "apt-get", "clean")
    install_newer(folder, family.newer)


def finish(folder: Path, family: Family, key: bytes, system: Sequence[Path]) -> None:
    """Make the folder a root of the family: its settings and os-release, the system's packages, and no apt or dpkg.

    + key: the armored key that signs the lab's repositories
    + system: files of the packages that the distribution has from the start
    """
    for path, text in family.files.items():
        target = folder / path
        # os-release is a link to /usr/lib.
        target.unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    for path in family.removed:
        (folder / path).unlink(missing_ok=True)
    work = folder / "work"
    (work / "system").mkdir(parents=True)
    (work / "key.asc").write_bytes(key)
    for package in system:
        shutil.copyfile(package, work / "system" / package.name)
    try:
        within(folder, "sh", "-eu", "-c", family.setup)
    finally:
        shutil.rmtree(work)
    _put_debian_apart(folder)


def _put_debian_apart(folder: Path) -> None:
    """Take apt and dpkg from the PATH and from their places: a program that looks for them must not find them."""
    apart = folder / _APART
    apart.mkdir(parents=True, exist_ok=True)
    alternatives = folder / _ALTERNATIVES
    kept = alternatives.rename(folder / "alternatives.kept")
    for pattern in ("usr/bin/apt*", "usr/bin/dpkg*", "usr/sbin/dpkg*", *_DEBIAN):
        for path in folder.glob(pattern):
            path.rename(apart / str(path.relative_to(folder)).replace("/", "-"))
    alternatives.parent.mkdir(parents=True)
    kept.rename(alternatives)


def _source() -> str:
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
