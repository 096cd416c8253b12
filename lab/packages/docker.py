"""docker-ce and docker-ce-cli of Docker's repository: Debian trixie's real docker, REPACKAGED under Docker's names."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from lab.packages.deb import pack
from lab.packages.other_release import unpacked

# Of the lab's own release comes 20.10, which has neither `dockerd --validate` nor CDI.
_SUITE = "trixie"
_POSTINST = """#!/bin/sh
set -e
getent group docker > /dev/null || groupadd --system docker
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl enable --now docker.socket docker.service
fi
"""
_PRERM = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now docker.service docker.socket || :; fi
"""
_CONTROL = """Package: {name}
Version: {version}
Architecture: amd64
Maintainer: gpunode lab <lab@gpunode.invalid>
Depends: {depends}
Conflicts: docker.io
Replaces: docker.io
Section: admin
Priority: optional
Description: docker, REPACKAGED for gpunode's lab
 Debian {suite}'s docker, under a name that Docker's repository gives it.
"""
_DEPENDS = {
    "docker-ce": "containerd.io, docker-ce-cli, iptables, libc6 (>= 2.34), libsystemd0",
    "docker-ce-cli": "libc6 (>= 2.34)",
}


def build_docker_ce(folder: Path) -> list[Path]:
    """Write the .deb files of docker-ce and docker-ce-cli into a folder, and return them.

    Raises DebError if apt cannot download what they are made of.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        there = Path(name) / "debian"
        found = unpacked(_SUITE, ("docker.io", "docker-cli"), there)
        upstream = (re.match(r"[\d.]*\d", found["docker.io"]) or [""])[0]
        made = []
        for package in _DEPENDS:
            tree = Path(name) / package
            _fill(package, there, tree)
            # As Docker numbers its own, epoch and all.
            version = f"{upstream}-1~debian.12~bookworm"
            _write_control(package, f"5:{version}", tree)
            made.append(folder / f"{package}_{version}_amd64.deb")
            pack(tree, made[-1], package)
        return made


def _fill(package: str, there: Path, tree: Path) -> None:
    """Put what a package holds where Docker's packages have it."""
    (tree / "usr/bin").mkdir(parents=True)
    if package == "docker-ce-cli":
        shutil.copy2(there / "usr/bin/docker", tree / "usr/bin/docker")
        return
    for program in ("dockerd", "docker-proxy"):
        source = next(path for path in (there / "usr/sbin" / program, there / "usr/bin" / program) if path.exists())
        shutil.copy2(source, tree / "usr/bin" / program)
    units = tree / "lib/systemd/system"
    units.mkdir(parents=True)
    for unit in ("docker.service", "docker.socket"):
        text = (there / "usr/lib/systemd/system" / unit).read_text()
        (units / unit).write_text(text.replace("/usr/sbin/dockerd", "/usr/bin/dockerd").replace(" $DOCKER_OPTS", ""))


def _write_control(package: str, version: str, tree: Path) -> None:
    debian = tree / "DEBIAN"
    debian.mkdir()
    control = _CONTROL.format(name=package, version=version, depends=_DEPENDS[package], suite=_SUITE)
    (debian / "control").write_text(control)
    scripts = {"postinst": _POSTINST, "prerm": _PRERM} if package == "docker-ce" else {}
    for name, script in scripts.items():
        (debian / name).write_text(script)
        (debian / name).chmod(0o755)
