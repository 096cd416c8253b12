"""docker-ce and docker-ce-cli of Docker's repository: Debian trixie's real docker, REPACKAGED under Docker's names.

Names, shapes of versions and relations are those of lab/world/docker.yaml.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

from gpunode.lab.packages.deb import pack
from gpunode.lab.packages.other_release import unpacked
from gpunode.lab.world.docker import docker_packages, docker_version

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
{relations}
Section: admin
Priority: optional
Description: docker, REPACKAGED for gpunode's lab
 Debian {suite}'s docker, under a name that Docker's repository gives it.
"""
PACKAGES = ("docker-ce", "docker-ce-cli")


def build_docker_ce(folder: Path) -> list[Path]:
    """Write the .deb files of docker-ce and docker-ce-cli into a folder, and return them.

    Raises DebError if apt cannot download what they are made of.
    """
    with tempfile.TemporaryDirectory(dir=folder) as name:
        there = Path(name) / "debian"
        found = unpacked(_SUITE, ("docker.io", "docker-cli"), there)
        upstream = (re.match(r"[\d.]*\d", found["docker.io"]) or [""])[0]
        made = []
        for package in PACKAGES:
            tree = Path(name) / package
            _fill(package, there, tree)
            version = docker_version(package, upstream)
            write_control(package, version, tree)
            made.append(folder / f"{package}_{version.partition(':')[2]}_amd64.deb")
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


def write_control(package: str, version: str, tree: Path) -> None:
    """Make an unpacked tree one of PACKAGES as Docker's repository has it."""
    debian = tree / "DEBIAN"
    debian.mkdir()
    relations = "\n".join(f"{key}: {value}" for key, value in docker_packages()[package].control(version).items())
    control = _CONTROL.format(name=package, version=version, relations=relations, suite=_SUITE)
    (debian / "control").write_text(control)
    scripts = {"postinst": _POSTINST, "prerm": _PRERM} if package == "docker-ce" else {}
    for name, script in scripts.items():
        (debian / name).write_text(script)
        (debian / name).chmod(0o755)
