"""Arch's repositories: the fixture packages as pacman has them. A repository holds one version of each package.

What the rolling release was on a day stands beside what it was on another, as https://archive.archlinux.org keeps it:
a node moves on by another line in its mirrorlist.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from gpunode.lab.cache import link, locked
from gpunode.lab.errors import LabError
from gpunode.lab.packages.containerd import build_containerd_io
from gpunode.lab.packages.cuda import cuda_packages
from gpunode.lab.packages.deb import Deb, DebError, Payload
from gpunode.lab.packages.driver import BROKEN_VERSION, driver_packages
from gpunode.lab.packages.pkg import Pkg, build_pkgs
from gpunode.lab.packages.toolkit import toolkit_packages
from gpunode.lab.signing import key_file, public_key
from gpunode.lab.toolbox import run_in
from gpunode.lab.world.arch import ArchRow, arch_packages, elsewhere

Report = Callable[[str], None]


@dataclass(frozen=True)
class Day:
    """Hold what the repositories had on one day: versions of driver, CUDA and toolkit, and the system's packages."""

    driver: str
    cuda: str
    toolkit: str
    system: Mapping[str, str]


# What a node has from the start, without the programs, which Debian's base has.
_SYSTEM = MappingProxyType(
    {name: "1.0-1" for name in ("bash", "ca-certificates", "curl", "dkms", "gnupg", "pacman", "python", "systemd")}
    | {"glibc": "2.41-1", "linux": "6.16.8.arch1-1", "linux-lts": "6.12.48-1"}
)
# What the kernel linux-lts calls itself, and so the folder of its modules: the same on every day.
LTS_RELEASE = f"{_SYSTEM['linux-lts']}-lts"
_NEWER = MappingProxyType({**_SYSTEM, "curl": "1.1-1", "glibc": "2.42-1", "linux": "6.17.9.arch1-1"})
DAYS: Mapping[str, Day] = MappingProxyType(
    {
        "2025-09": Day("580.82.07", "12.9.1", "1.16.2", _SYSTEM),
        "2025-10": Day("580.95.05", "12.9.1", "1.17.8", _SYSTEM),
        # Kernel and C library have moved on with the driver.
        "2025-12": Day("590.48.01", "13.0.2", "1.18.0", _NEWER),
        "2026-01": Day(BROKEN_VERSION, "13.0.2", "1.18.0", _NEWER),
    }
)
# The day of the nodes' own mirrorlist.
TODAY = "2025-10"
REPOSITORIES = ("core", "extra")


# Which .deb brings the same module.
_MODULES = {
    "nvidia": "nvidia-kernel-dkms",
    "nvidia-lts": "nvidia-kernel-dkms",
    "nvidia-dkms": "nvidia-kernel-dkms",
    "nvidia-open": "nvidia-kernel-open-dkms",
    "nvidia-lts-open": "nvidia-kernel-open-dkms",
    "nvidia-open-dkms": "nvidia-kernel-open-dkms",
}
_USERLAND = ("libnvidia-ml1", "nvidia-driver-cuda", "nvidia-persistenced")
_FOLDERS = (("usr/lib/x86_64-linux-gnu/", "usr/lib/"), ("lib/systemd/system/", "usr/lib/systemd/system/"))
_CUDA_HOME = "opt/cuda"
_INDEX = """
export GNUPGHOME=/root/gnupg; mkdir -m 700 "$GNUPGHOME"
gpg --batch --quiet --import /work/secret.asc
for folder in /work/*/*/os/x86_64; do
  cd "$folder"; name=${folder%/os/x86_64}; name=${name##*/}
  repo-add --quiet --sign --key "$fingerprint" "$name.db.tar.gz" ./*.pkg.tar.zst > /work/log 2>&1 ||
    { tail -n 20 /work/log >&2; exit 1; }
  # Links, which the repository's server need not follow.
  for file in "$name.db" "$name.files"; do
    rm -f "$file" "$file.sig"; cp "$file.tar.gz" "$file"; cp "$file.tar.gz.sig" "$file.sig"
  done
done
"""


class PacmanRepositoryError(LabError):
    """Say why the repository could not be made."""


def system_pkgs(day: str = TODAY) -> list[Pkg]:
    """Return what a node of the distribution has from the start, as it was on a day."""
    return [Pkg(name, version, f"{name} of the distribution") for name, version in DAYS[day].system.items()]


def fixture_pkgs(day: str = TODAY) -> list[Pkg]:
    """Return every package of the repository extra, as it was on a day."""
    of = DAYS[day]
    debs = {(deb.name, deb.version.rpartition("-")[0]): deb for deb in driver_packages()}
    rows = arch_packages(of.driver)
    found = [
        _related(_of_its_kernel(_pkg(debs[deb, of.driver], name)), rows[name], of.driver)
        for name, deb in _MODULES.items()
        if name in rows
    ]
    found.append(_related(_userland(of.driver, debs), rows["nvidia-utils"], of.driver))
    found += [Pkg(name, "1.0-1", f"{name} of the distribution") for name in elsewhere()]
    # There is one CUDA, in /opt/cuda.
    found += [_cuda(deb) for deb in cuda_packages() if deb.version.startswith(f"{of.cuda}-")]
    return [
        *found,
        *_toolkit({deb.name: deb for deb in toolkit_packages() if deb.version.startswith(f"{of.toolkit}-")}),
    ]


def _of_its_kernel(package: Pkg) -> Pkg:
    """Return a package with modules whose scripts go by the kernel that it is for, whichever one runs."""
    if not package.name.startswith("nvidia-lts"):
        return package
    scripts = tuple((name, body.replace("$(uname -r)", LTS_RELEASE)) for name, body in package.scripts)
    return replace(package, scripts=scripts)


def _toolkit(debs: Mapping[str, Deb]) -> list[Pkg]:
    """Return the toolkit as Arch divides it: programs and library."""
    programs = _pkg(
        debs["nvidia-container-toolkit-base"], "nvidia-container-toolkit", ("libnvidia-container", "python")
    )
    library = _pkg(debs["libnvidia-container1"], "libnvidia-container")
    tools = _pkg(debs["libnvidia-container-tools"], "libnvidia-container")
    return [programs, replace(library, files=(*library.files, *tools.files))]


def _related(package: Pkg, row: ArchRow, driver: str) -> Pkg:
    """Return the package with the relations and the version of the table."""
    depends = (*row.of("depends", driver), *row.more)
    return replace(
        package, version=row.version(driver), depends=depends, provides=row.of("provides", driver),
        conflicts=row.of("conflicts", driver), replaces=row.of("replaces", driver),
    )  # fmt: skip


def _userland(version: str, debs: dict[tuple[str, str], Deb]) -> Pkg:
    parts = [_pkg(debs[name, version], "nvidia-utils") for name in _USERLAND]
    return replace(parts[0], files=tuple(file for part in parts for file in part.files), scripts=parts[-1].scripts)


def _cuda(deb: Deb) -> Pkg:
    files = tuple(replace(file, path="/".join([_CUDA_HOME, *file.path.split("/")[3:]])) for file in deb.files)
    profile = Payload("etc/profile.d/cuda.sh", b"export CUDA_PATH=/opt/cuda\nexport PATH=$PATH:/opt/cuda/bin\n")
    return Pkg("cuda", deb.version, deb.description, ("glibc",), files=(*files, profile))


def _containerd_deb(cache: Path, report: Report) -> Path | None:
    """Return the .deb of containerd with runc that is made of Debian's real ones; None without them."""
    try:
        return build_containerd_io(cache / "packages")
    except (DebError, OSError) as error:
        report(f"pacman mirror: no containerd in it: {error}")
        return None


def _containerd(deb: Path, cache: Path) -> Pkg:
    with tempfile.TemporaryDirectory(dir=cache) as unpacked:
        subprocess.run(["dpkg-deb", "-x", str(deb), unpacked], check=True)
        shown = subprocess.run(["dpkg-deb", "-f", str(deb), "Version"], capture_output=True, text=True, check=True)
        tree = Path(unpacked)
        found = [path for path in sorted(tree.rglob("*")) if path.is_symlink() or path.is_file()]
        files = tuple(_placed(_payload(path, str(path.relative_to(tree)))) for path in found)
    reload = "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi"
    version = f"{shown.stdout.strip().rpartition('-')[0]}-1"
    return Pkg(
        "containerd", version, "containerd and runc, REPACKAGED for gpunode's lab", provides=("runc",), files=files,
        scripts=(("post_install", reload), ("post_remove", reload)),
    )  # fmt: skip


def _payload(path: Path, target: str) -> Payload:
    if path.is_symlink():
        return Payload(target, link=str(path.readlink()))
    return Payload(target, path.read_bytes(), path.stat().st_mode & 0o777)


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
    """Build each day's repositories in the folder `pacman` of the mirror, unless nothing of them has changed.

    Raises PacmanRepositoryError, PkgError or SigningError if a tool fails.
    """
    with locked(cache / "mirror.lock"):
        key = key_file(cache / "keys", "repository")
        _, fingerprint = public_key(key)
        containerd = _containerd_deb(cache, report)
        content = {(day, "core"): system_pkgs(day) for day in DAYS}
        content |= {(day, "extra"): fixture_pkgs(day) for day in DAYS}
        # The .deb is named after what it is made of.
        text = f"{content!r}{containerd and containerd.name}{fingerprint}{Path(__file__).read_text(encoding='utf-8')}"
        digest = hashlib.sha256(text.encode()).hexdigest()
        there = mirror / "pacman"
        if (there / "digest").exists() and (there / "digest").read_text().strip() == digest:
            report("pacman mirror: up to date")
            return
        started = time.monotonic()
        if containerd is not None:
            found = _containerd(containerd, cache)
            for day in DAYS:
                content[day, "extra"].append(found)
        packages = list({package.filename: package for group in content.values() for package in group}.values())
        report(f"pacman mirror: building {len(packages)} fixture packages")
        built = {path.name: path for path in build_pkgs(packages, cache / "packages", tools, key)}
        with tempfile.TemporaryDirectory(prefix="pacman.", dir=cache) as name:
            draft = Path(name) / "draft"
            for (day, repository), group in content.items():
                place = draft / day / repository / "os/x86_64"
                place.mkdir(parents=True)
                for file in (built[package.filename] for package in group):
                    for path in (file, file.with_name(f"{file.name}.sig")):
                        link(path, place / path.name)
            shutil.copyfile(key, draft / "secret.asc")
            done = run_in(tools, draft, _INDEX, fingerprint=fingerprint)
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
