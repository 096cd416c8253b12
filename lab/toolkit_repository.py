"""The container toolkit's apt repository with NVIDIA's own programs, built from their Go module where nodes want it."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpunode.lab.cache import link, locked
from gpunode.lab.go_programs import programs, sources
from gpunode.lab.packages.deb import Payload, build_deb
from gpunode.lab.packages.toolkit import legacy_packages, packages_of
from gpunode.lab.repository import index_flat
from gpunode.lab.signing import key_file, public_key, sign_releases
from gpunode.lab.world.toolkit import built_versions, lab_versions

Report = Callable[[str], None]

# Below the mirror's folder.
_FOLDER = "nvidia-toolkit"
_REPOSITORY = "stable/deb/amd64"
# A lab node is itself a container; it takes the place before runc on the PATH.
_NESTED_RUNC = Path(__file__).parent / "packages" / "nested_runc.py"


def build_toolkit_repository(cache: Path, mirror: Path, report: Report) -> None:
    """Build the repository in its folder of the mirror, unless nothing that it is made of has changed.

    + cache: gpunode's cache folder

    Raises LabError if Go, gcc or the module proxy is missing, DebError or SigningError if a tool fails.
    """
    built = {version: programs(f"toolkit-{version}", report) for version in built_versions()}
    with locked(cache / "mirror.lock"):
        key = key_file(cache / "keys", "repository")
        # What an old node has is SIMULATED here, too: it is removed, or upgraded from.
        packages = [*packages_of(lab_versions()[0]), *legacy_packages()]
        nested = Payload("usr/local/sbin/runc", _NESTED_RUNC.read_bytes(), 0o755)
        for version, folder in built.items():
            packages += packages_of(version, (folder, deployments(version)), (nested,))
        parts = (public_key(key)[1], *(package.digest() for package in packages))
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        recorded = mirror / _FOLDER / "digest"
        if recorded.is_file() and recorded.read_text().strip() == digest:
            report("container toolkit's repository: up to date")
            return
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="toolkit.", dir=cache) as name:
            draft = Path(name) / "draft"
            repository = draft / _REPOSITORY
            repository.mkdir(parents=True)
            for package in packages:
                link(build_deb(package, cache / "packages"), repository / package.filename)
            sign_releases(key, [index_flat(repository, {})])
            (draft / "digest").write_text(digest + "\n")
            draft.chmod(0o755)
            place = mirror / _FOLDER
            if place.exists():
                place.rename(Path(name) / "old")
            draft.rename(place)
        report(f"container toolkit's repository: {', '.join(built)}, {time.monotonic() - started:.0f} s")


def deployments(version: str) -> Path:
    """Return the folder of NVIDIA's module with the systemd units and udev rules of its packages; raise LabError."""
    return sources(f"toolkit-{version}") / "deployments"
