"""`python -m tests.hardware.carry FILE [--python 3.12]`: pack what the main job needs on a machine without a network.

Into one tar.xz: gpunode's wheel and its dependencies for that Python, a signed apt repository with containerd, runc and
NVIDIA's container toolkit, a CUDA program, the lab's NVML library, and Debian's systemd and a few programs for machines
that lack them. FILE may have 50 MiB; more is an error. tests/hardware/run.sh takes it.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from gpunode.lab.cache import cache_dir
from gpunode.lab.errors import LabError
from gpunode.lab.go_programs import programs, version
from gpunode.lab.hardware import simulated
from gpunode.lab.hardware.nvml.build import functions, library
from gpunode.lab.image import debian_base
from gpunode.lab.packages.deb import Deb, Payload, build_deb
from gpunode.lab.packages.toolkit import packages_of
from gpunode.lab.repository import index_flat
from gpunode.lab.signing import key_file, public_key, sign_releases
from gpunode.lab.toolkit_repository import deployments

_HERE = Path(__file__).parent
CHECKOUT = _HERE.parents[1]
_MOST_MIB = 50
# Groups of lab/go.
CONTAINERD, RUNC, TOOLKIT = "containerd-2.4.2", "runc-1.5.3", "toolkit-1.20.2"
_UV = str(Path(sys.executable).with_name("uv"))
# What gpunode and the boot of systemd need and a container's image may lack; with what each of them depends on.
_PROGRAMS = ("systemd", "dbus", "kmod", "procps", "gpg", "curl", "util-linux", "mount")
# Every Debian and Ubuntu has these, and newer.
_EVERYWHERE = (
    "libc6",
    "libgcc-s1",
    "dpkg",
    "perl-base",
    "debconf",
    "base-files",
    "bash",
    "coreutils",
    "init-system-helpers",
)
_LEFT_OUT = ("usr/share/", "etc/init.d", "etc/default", "lib/udev", "lib/systemd/systemd-networkd")
_SOURCES = (".c", ".h", ".hpp", ".pyx", ".pxd", ".pyi", ".pyc")
# Go's programs resemble each other, far apart. The first filter is for jumps in machine code. Higher presets take
# minutes.
_FILTERS = ({"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 27})
_UNIT = """[Unit]
Description=containerd
After=network.target
[Service]
ExecStart=/usr/bin/containerd
Type=notify
Delegate=yes
KillMode=process
Restart=always
OOMScoreAdjust=-999
[Install]
WantedBy=multi-user.target
"""
_STARTED = """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
systemctl daemon-reload
systemctl enable --now containerd.service
"""


def site(folder: Path, python: str) -> None:
    """Install gpunode's wheel and the dependencies of uv.lock for a Python of this version, from wheels alone."""
    with tempfile.TemporaryDirectory() as name:
        wheels = Path(name)
        _run(_UV, "build", "--quiet", "--wheel", "--out-dir", name, CHECKOUT)
        (wheel,) = wheels.glob("*.whl")
        line = ("export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "--output-file")
        _run(_UV, *line, wheels / "requirements.txt")
        into = ("--python-version", python, "--python-platform", "x86_64-manylinux_2_28", "--target", folder)
        for what in (("--require-hashes", "-r", wheels / "requirements.txt"), ("--no-deps", wheel)):
            _run(_UV, "pip", "install", "--quiet", "--only-binary", ":all:", *into, *what)
    # Some wheels hold debug symbols, and sources: a third of all.
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if ".so" in path.suffixes:
            # Not written through: uv links files to its cache.
            shutil.copy2(path, f"{path}.new")
            Path(f"{path}.new").replace(path)
            _run("strip", "--strip-unneeded", path)
        elif path.suffix in _SOURCES or "tests" in path.relative_to(folder).parts:
            path.unlink()


def repository(folder: Path, report: Callable[[str], None]) -> str:
    """Write two flat, signed apt repositories into a folder; return their key's fingerprint."""
    unit = Payload("usr/lib/systemd/system/containerd.service", _UNIT.encode())
    parts = {
        "archive": [
            _package(CONTAINERD, report, depends="runc", files=(unit,), scripts=(("postinst", _STARTED),)),
            _package(RUNC, report),
        ],
        "toolkit": packages_of(version(TOOLKIT), (programs(TOOLKIT, report), deployments(version(TOOLKIT)))),
    }
    secret = key_file(cache_dir() / "keys", "repository")
    for name, packages in parts.items():
        (folder / name).mkdir(parents=True)
        with tempfile.TemporaryDirectory() as cache:
            for deb in packages:
                # The lab's own runtime is a Python program, NVIDIA's is not.
                file = build_deb(replace(deb, depends=deb.depends.replace("python3", "")), Path(cache))
                # The archive compresses once, and better.
                _run("dpkg-deb", "-R", file, Path(cache) / deb.name)
                _run(
                    "dpkg-deb",
                    "--root-owner-group",
                    "-Znone",
                    "--build",
                    Path(cache) / deb.name,
                    folder / name / deb.filename,
                )
        sign_releases(secret, [index_flat(folder / name, {})])
    armored, fingerprint = public_key(secret)
    (folder / "key.asc").write_bytes(armored)
    return fingerprint


def _package(
    group: str, report: Callable[[str], None], depends: str = "", files: tuple[Payload, ...] = (),
    scripts: tuple[tuple[str, str], ...] = (),
) -> Deb:  # fmt: skip
    """Return a package of a group's programs, with the name that Debian's has."""
    name = group.partition("-")[0]
    built = sorted(programs(group, report).iterdir())
    payload = tuple(Payload(f"usr/bin/{path.name}", path.read_bytes(), 0o755) for path in built)
    return Deb(name, f"{version(group)}-1", name, depends=depends, files=(*payload, *files), scripts=scripts)


def debian_programs(folder: Path, base: Path) -> None:
    """Copy systemd and a few programs with their libraries out of an unpacked Debian, to where merged /usr has them."""
    for package in sorted(_closure(base)):
        for path in _files(base, package):
            source = base / path
            target = folder / re.sub(r"^(bin|sbin|lib|lib64)/", r"usr/\1/", path)
            if path.startswith(_LEFT_OUT) and not path.startswith("usr/share/dbus-1"):
                continue
            if (source.is_file() or source.is_symlink()) and not source.is_dir():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target, follow_symlinks=False)


def _closure(base: Path) -> set[str]:
    """Return the packages and all that they depend on, but for what every machine has."""
    status = _run(
        "dpkg-query", "--admindir", base / "var/lib/dpkg", "-W", "-f", "${Package}\t${Pre-Depends},${Depends}\n"
    )
    needs = {}
    for line in status.splitlines():
        name, _, relations = line.partition("\t")
        needs[name] = {
            alternative.split()[0].split(":")[0] for alternative in relations.split(",") if alternative.strip()
        }
    found: set[str] = set()
    todo = [*_PROGRAMS]
    while todo:
        name = todo.pop()
        if name in needs and name not in found and name not in _EVERYWHERE:
            found.add(name)
            todo += needs[name]
    return found


def _files(base: Path, package: str) -> Iterator[str]:
    for name in (package, f"{package}:amd64"):
        listed = base / "var/lib/dpkg/info" / f"{name}.list"
        if listed.is_file():
            yield from (line.lstrip("/") for line in listed.read_text().splitlines() if line.strip("/."))


def client(target: Path) -> None:
    """Compile the CUDA program: it loads libcuda at run time, so that no part of CUDA is needed here."""
    _run("gcc", "-std=gnu11", "-O1", "-s", "-o", target, _HERE / "client.c", "-ldl")


def nvml(folder: Path) -> None:
    """Copy the lab's NVML library, what it reads its state by, and the names of NVML's functions."""
    folder.mkdir()
    shutil.copy2(library(), folder)
    hardware = Path(simulated.__file__).parent
    shutil.copytree(hardware, folder / "simulated", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "functions.txt").write_text("\n".join(functions()))


def packed(folder: Path, target: Path) -> float:
    """Write the folder as a tar.xz; return its size in MiB, and raise LabError where that is too much."""
    with lzma.open(target, "wb", filters=_FILTERS) as file, tarfile.open(fileobj=file, mode="w|") as archive:
        archive.add(folder, ".")
    size = target.stat().st_size / 2**20
    if size > _MOST_MIB:
        sizes = ", ".join(f"{path.name} {_mib(path):.0f}" for path in sorted(folder.iterdir()))
        raise LabError(f"{target} has {size:.1f} MiB, {_MOST_MIB} are allowed; unpacked, in MiB: {sizes}")
    return size


def _mib(path: Path) -> float:
    files = [path, *path.rglob("*")]
    return sum(each.lstat().st_size for each in files) / 2**20


def carry(target: Path, python: str) -> float:
    """Make the file for machines with this Python; return its size in MiB."""
    started = time.monotonic()

    def step(text: str) -> None:
        print(f"{time.monotonic() - started:4.0f} s  {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="gpunode-carry-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        step(f"wheels for Python {python}")
        site(folder / "site", python)
        step("containerd, runc and the container toolkit")
        fingerprint = repository(folder / "repository", step)
        step("Debian's systemd")
        with debian_base(step) as base:
            debian_programs(folder / "programs", base)
        step("the CUDA program")
        client(folder / "client")
        step("the lab's NVML library")
        nvml(folder / "nvml")
        versions = {group.partition("-")[0]: version(group) for group in (CONTAINERD, RUNC, TOOLKIT)}
        about = {"python": python, "fingerprint": fingerprint, **versions}
        (folder / "about.json").write_text(json.dumps(about))
        step("packing (a minute)")
        size = packed(folder, target)
    step(f"{target}: {size:.1f} MiB")
    return size


def _run(*line: object) -> str:
    done = subprocess.run([str(word) for word in line], capture_output=True, text=True, cwd=CHECKOUT, check=False)
    if done.returncode:
        raise LabError(f"{line[0]} {line[1]}: exit status {done.returncode}: {done.stderr.strip()[-800:]}")
    return done.stdout


def main(arguments: list[str]) -> int:
    """Make the file that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m tests.hardware.carry", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--python", default="3.12", help="the Python of the machine with the GPU")
    given = parser.parse_args(arguments)
    given.file.parent.mkdir(parents=True, exist_ok=True)
    try:
        carry(given.file, given.python)
    except LabError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
