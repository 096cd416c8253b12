"""containerd.io of Docker's repository: Debian's real containerd and runc, REPACKAGED under Docker's name."""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from gpunode.lab.packages.deb import DebError, pack
from gpunode.lab.world.docker import docker_packages, docker_version

_RECIPE = "2"
# Docker's package ships this very setting: the CRI plugin is off until somebody turns it on.
_CONFIG = """# SIMULATED: as Docker's containerd.io package ships it.
disabled_plugins = ["cri"]
"""
_SCRIPTS = {
    "postinst": """#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl enable --now containerd.service
fi
""",
    "prerm": """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now containerd.service || :; fi
""",
}


def build_containerd_io(cache: Path) -> Path:
    """Return containerd.io's .deb in the cache, made of the containerd and runc that apt offers on this machine.

    Raises DebError if apt cannot download the two.
    """
    versions = dict(_candidates("containerd", "runc"))
    made_of = f"{versions}{_CONFIG}{_SCRIPTS}{_RECIPE}{docker_packages()['containerd.io']}"
    key = hashlib.sha256(made_of.encode()).hexdigest()
    target = cache / f"{key}.deb"
    if target.exists():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        folder = Path(name)
        # apt downloads as its own user, which must be able to write here.
        folder.chmod(0o755)
        tree, draft = folder / "tree", folder / "draft.deb"
        for package, version in versions.items():
            _run(["apt-get", "download", f"{package}={version}"], folder)
            _run(["dpkg-deb", "-x", str(next(folder.glob(f"{package}_*.deb"))), str(tree)], folder)
        write_control(tree, versions["containerd"])
        pack(tree, draft, "containerd.io")
        draft.replace(target)
    return target


def write_control(tree: Path, version: str) -> None:
    """Make an unpacked tree containerd.io as Docker's repository has it, of a version of Debian's containerd."""
    upstream = (re.match(r"[\d.]*\d", version) or [""])[0]
    row = docker_packages()["containerd.io"]
    full = docker_version(row.name, upstream)
    relations = "".join(f"{key}: {value}\n" for key, value in row.control(full).items())
    shutil.rmtree(tree / "usr/share/doc", ignore_errors=True)
    (tree / "etc/containerd").mkdir(parents=True, exist_ok=True)
    (tree / "etc/containerd/config.toml").write_text(_CONFIG)
    debian = tree / "DEBIAN"
    debian.mkdir()
    (debian / "control").write_text(
        f"Package: {row.name}\nVersion: {full}\nArchitecture: amd64\n"
        f"Maintainer: gpunode lab <lab@gpunode.invalid>\n{relations}"
        "Section: admin\nPriority: optional\n"
        f"Description: containerd and runc, REPACKAGED for gpunode's lab\n Debian's containerd {version} and runc, "
        "under the name that Docker's repository gives them.\n"
    )
    (debian / "conffiles").write_text("".join(f"{path}\n" for path in row.conffiles))
    for name, script in _SCRIPTS.items():
        (debian / name).write_text(script)
        (debian / name).chmod(0o755)


@functools.cache
def _candidates(*packages: str) -> tuple[tuple[str, str], ...]:
    """Return each package and the version that apt offers; asked once a process, for apt takes a second to answer."""
    shown = _run(["apt-cache", "policy", *packages], Path("/"))
    found = dict(re.findall(r"^(\S+):\n(?:  .*\n)*?  Candidate: (\S+)", shown, re.MULTILINE))
    for package in packages:
        if found.get(package, "(none)") == "(none)":
            raise DebError(f"apt knows no package {package} on this machine: run apt-get update, then try again")
    return tuple((package, found[package]) for package in packages)


def _run(command: list[str], folder: Path) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**_ENVIRONMENT})
    if result.returncode:
        raise DebError(f"{' '.join(command[:3])} failed: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


_ENVIRONMENT = {"LC_ALL": "C", "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
