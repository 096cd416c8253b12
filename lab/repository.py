"""Local package repositories: fixture packages in repositories shaped and signed like NVIDIA's and Docker's."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpunode.lab.cache import link, locked
from gpunode.lab.errors import LabError
from gpunode.lab.packages.archive import Archive, archives
from gpunode.lab.packages.built_driver import built_driver_packages
from gpunode.lab.packages.containerd import build_containerd_io
from gpunode.lab.packages.cuda import cuda_packages
from gpunode.lab.packages.cuda_driver import cuda_driver_packages
from gpunode.lab.packages.dcgm import dcgm_packages
from gpunode.lab.packages.deb import Deb, DebError, build_deb
from gpunode.lab.packages.runfile import RunfileFixture, runfiles
from gpunode.lab.packages.toolkit import legacy_packages, toolkit_packages
from gpunode.lab.signing import key_file, public_key, sign_releases
from gpunode.lab.world.apt import release_fields

# The lab's nodes are of Debian 12; NVIDIA's other repositories are tables alone (lab/world).
CUDA_DISTRIBUTIONS = ("debian12",)
# The CUDA repository of a node with a kernel of its own: modules that DKMS really builds.
BUILT = "built/debian12/x86_64"
_DOCKER_SUITE = "bookworm"
# Where Docker's repository has its packages, below its root.
DOCKER_POOL = f"dists/{_DOCKER_SUITE}/pool/stable/amd64"


class RepositoryError(LabError):
    """Say which repository could not be made, and why."""


@dataclass(frozen=True)
class Mirror:
    """Hold the built mirror: its folder, and the fingerprint of its signing key (40 upper-case hex digits)."""

    path: Path
    key_fingerprint: str


def build_mirror(cache: Path, report: Callable[[str], None]) -> Mirror:
    """Build the signed repositories in the cache folder, unless they are there and nothing they are made of changed.

    + cache: gpunode's cache folder; the mirror is its folder `mirror`, whose inode stays while its content is replaced
    + report: called with one line per step

    Raises RepositoryError, DebError or SigningError if a tool is missing or fails.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with locked(cache / "mirror.lock"):
        key = key_file(cache / "keys", "repository")
        wrong = key_file(cache / "keys", "wrong")
        armored, fingerprint = public_key(key)
        mirror = Mirror(cache / "mirror", fingerprint)
        cuda = [*cuda_driver_packages(), *cuda_packages(), *dcgm_packages()]
        toolkit = [*toolkit_packages(), *legacy_packages()]
        built = built_driver_packages()
        docker = _docker_package(cache, report)
        distributions = archives()
        of_archives = [package for archive in distributions for package in archive.packages]
        by_runfile = runfiles()
        digest = _digest([*cuda, *toolkit, *built, *of_archives], fingerprint, docker, by_runfile)
        if _recorded(mirror.path) == digest:
            report("package mirror: up to date")
            return mirror
        started = time.monotonic()
        count = len(cuda) + len(toolkit)
        report(f"package mirror: building {count} fixture packages and {len(by_runfile)} .run files")
        with tempfile.TemporaryDirectory(prefix="mirror.", dir=cache) as name:
            draft = Path(name)
            _fill(draft, cache / "packages", cuda, toolkit, docker)
            _place([*built, *cuda_packages()], cache / "packages", [draft / BUILT])
            report("package mirror: indexing and signing")
            sign_releases(key, [index_flat(folder, _fields_of(draft, folder)) for folder in _flat_folders(draft)])
            releases = [_index_archive(draft, archive, cache / "packages") for archive in distributions]
            sign_releases(key, releases)
            if docker is not None:
                sign_releases(key, [index_docker(draft / "docker/debian")])
            _place_runfiles(by_runfile, draft / "runfiles")
            (draft / "keys").mkdir()
            (draft / "keys/gpunode-lab.asc").write_bytes(armored)
            (draft / "keys/wrong.asc").write_bytes(public_key(wrong)[0])
            _swap_in(draft, mirror.path, digest)
        report(f"package mirror: done in {time.monotonic() - started:.0f} s")
        return mirror


def _docker_package(cache: Path, report: Callable[[str], None]) -> Path | None:
    try:
        return build_containerd_io(cache / "packages")
    except (DebError, OSError) as error:
        # All but Docker's repository works without it, for instance where apt's own mirror is down.
        report(f"package mirror: no containerd.io in it: {error}")
        return None


def _digest(packages: list[Deb], fingerprint: str, docker: Path | None, by_runfile: list[RunfileFixture]) -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes() + fingerprint.encode())
    for package in packages:
        digest.update(package.digest().encode())
    for file in by_runfile:
        digest.update(f"{file.path} {file.digest()}\n".encode())
    digest.update(docker.name.encode() if docker else b"none")
    return digest.hexdigest()


def _recorded(mirror: Path) -> str | None:
    """Return the digest of the mirror that lies there, or None if a part of it is gone: caches get cleaned."""
    needed = [mirror / "keys/gpunode-lab.asc", mirror / "keys/wrong.asc"]
    needed += [folder / "InRelease" for folder in _flat_folders(mirror)]
    needed += [mirror / archive.folder / "dists" / archive.suite / "InRelease" for archive in archives()]
    if not all(path.exists() for path in needed):
        return None
    try:
        return (mirror / "digest").read_text().strip()
    except OSError:
        return None


def _fill(draft: Path, store: Path, cuda: list[Deb], toolkit: list[Deb], docker: Path | None) -> None:
    folders = [draft / "cuda" / distribution / "x86_64" for distribution in CUDA_DISTRIBUTIONS]
    _place(cuda, store, folders)
    _place(toolkit, store, [draft / "toolkit/stable/deb/amd64"])
    if docker is not None:
        pool = draft / "docker/debian" / DOCKER_POOL
        pool.mkdir(parents=True)
        version = subprocess.run(["dpkg-deb", "-f", str(docker), "Version"], capture_output=True, text=True, check=True)
        shutil.copyfile(docker, pool / f"containerd.io_{version.stdout.strip()}_amd64.deb")


def _place(packages: list[Deb], store: Path, folders: list[Path]) -> None:
    for folder in folders:
        folder.mkdir(parents=True)
    for package in packages:
        built = build_deb(package, store)
        for folder in folders:
            link(built, folder / package.filename)


def _place_runfiles(files: list[RunfileFixture], folder: Path) -> None:
    for file in files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)


def _flat_folders(draft: Path) -> list[Path]:
    cuda = [draft / f"cuda/{name}/x86_64" for name in CUDA_DISTRIBUTIONS]
    return [*cuda, draft / "toolkit/stable/deb/amd64", draft / BUILT]


def _fields_of(draft: Path, folder: Path) -> dict[str, str]:
    """Return the fields of the Release file by which a repository is told from others."""
    return release_fields() if folder.is_relative_to(draft / "cuda") else {}


def index_flat(folder: Path, fields: dict[str, str]) -> Path:
    """Write Packages and Release of a flat repository; return the Release file."""
    (folder / "Packages").write_bytes(_ftparchive(folder, "packages", "."))
    release = _ftparchive(folder, *_release_options("NVIDIA", **fields), "release", ".")
    (folder / "Release").write_bytes(release)
    return folder / "Release"


def index_docker(root: Path) -> Path:
    """Write Packages and Release of a repository in Docker's shape; return the Release file."""
    suite = root / "dists" / _DOCKER_SUITE
    binary = suite / "stable/binary-amd64"
    binary.mkdir(parents=True)
    (binary / "Packages").write_bytes(_ftparchive(root, "packages", DOCKER_POOL))
    options = _release_options("Docker", Suite=_DOCKER_SUITE, Codename=_DOCKER_SUITE, Components="stable")
    release = _ftparchive(suite, *options, "-o", "APT::FTPArchive::Release::Architectures=amd64", "release", ".")
    (suite / "Release").write_bytes(release)
    return suite / "Release"


def _index_archive(draft: Path, archive: Archive, store: Path) -> Path:
    """Place a distribution's archive, and write Packages of each component and Release; return the Release file."""
    root = draft / archive.folder
    suite = root / "dists" / archive.suite
    for component, packages in archive.components:
        pool = root / "pool" / component
        _place(list(packages), store, [pool])
        binary = suite / component / "binary-amd64"
        binary.mkdir(parents=True)
        (binary / "Packages").write_bytes(_ftparchive(root, "packages", f"pool/{component}"))
    names = " ".join(component for component, _ in archive.components)
    # The origin is what an archive is known by: the mirror of one keeps it.
    options = _release_options(
        archive.origin, Origin=archive.origin, Suite=archive.suite, Codename=archive.suite, Components=names
    )
    release = _ftparchive(suite, *options, "-o", "APT::FTPArchive::Release::Architectures=amd64", "release", ".")
    (suite / "Release").write_bytes(release)
    return suite / "Release"


def _release_options(whose: str, **more: str) -> list[str]:
    said = f"SIMULATED {whose} repository"
    fields = {"Origin": "gpunode lab", "Label": said, "Description": f"{said} of gpunode's lab", **more}
    return [part for key, value in fields.items() for part in ("-o", f"APT::FTPArchive::Release::{key}={value}")]


def _ftparchive(folder: Path, *arguments: str) -> bytes:
    try:
        result = subprocess.run(["apt-ftparchive", *arguments], cwd=folder, capture_output=True)
    except FileNotFoundError:
        raise RepositoryError("apt-ftparchive is not installed: apt-get install apt-utils") from None
    if result.returncode:
        raise RepositoryError(f"apt-ftparchive failed in {folder}: {result.stderr.decode(errors='replace').strip()}")
    return result.stdout


def _swap_in(draft: Path, mirror: Path, digest: str) -> None:
    """Replace the mirror's content but keep its folder: running nodes have that very folder mounted."""
    mirror.mkdir(exist_ok=True)
    mirror.chmod(0o755)
    (mirror / "digest").unlink(missing_ok=True)
    for new in sorted(draft.iterdir()):
        old = mirror / new.name
        if old.exists():
            old.rename(draft / f"{new.name}.old")
        new.rename(old)
    (mirror / "digest").write_text(digest + "\n")
