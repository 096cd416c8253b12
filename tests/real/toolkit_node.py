"""A lab node whose container toolkit is NVIDIA's own, for programs of several versions that somebody gives."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gpunode.base import versions
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.cache import cache_dir
from gpunode.lab.nodes import Node
from gpunode.lab.packages.deb import build_deb
from gpunode.lab.packages.toolkit import packages_of
from gpunode.lab.repository import index_flat
from gpunode.lab.signing import key_file, sign_releases
from tests.molecule.conftest import CHECKOUT, Run, command

VARIABLE = "GPUNODE_REAL_TOOLKIT"
PROGRAMS = ("nvidia-ctk", "nvidia-cdi-hook", "nvidia-container-runtime", "nvidia-container-runtime-hook")
DRIVER = "580.95.05"
SPECIFICATIONS = ("/etc/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml")
_HERE = Path(__file__).parent
_SERVED = "http://127.0.0.1:8901"
# What depmod would write, which a node without a kernel of its own has not run: the toolkit's units look there.
_MODULES = "mkdir -p /lib/modules/$(uname -r); echo updates/dkms/nvidia.ko: > /lib/modules/$(uname -r)/modules.dep"


def given() -> dict[str, Path]:
    """Return version -> folder of its programs, oldest first; ValueError names a program that is missing."""
    root = Path(os.environ[VARIABLE])
    found = {folder.name: folder for folder in root.iterdir() if (folder / PROGRAMS[0]).is_file()}
    for folder in found.values():
        for name in PROGRAMS:
            if not (folder / name).is_file():
                raise ValueError(f"{VARIABLE}: {folder} has no {name}")
    if not found:
        raise ValueError(f"{VARIABLE}: {root} has no folder with a nvidia-ctk, such as {root}/1.17.9/nvidia-ctk")
    return {version: found[version] for version in sorted(found, key=versions.parsed)}


@dataclass(frozen=True)
class ToolkitNode:
    """Hold the node, and the folder in which inventories of it are written."""

    node: Node
    folder: Path

    def out(self, script: str) -> str:
        """Run a script on the node, which must succeed; return what it printed."""
        done = lab_nodes.run(self.node, script, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def run(self, toolkit: Mapping[str, object], deploy: str = "deploys/gpu_node.py") -> Run:
        """Run a deploy with settings of the toolkit."""
        return command("pyinfra", "-y", "--json", self._inventory(toolkit), deploy, GPUNODE_LAB=self.node.lab)

    def findings(self, toolkit: Mapping[str, object]) -> dict[str, dict[str, Any]]:
        """Return what `gpunode drift` finds wrong, by what it is about."""
        run = command("gpunode", "drift", "--json", self._inventory(toolkit), GPUNODE_LAB=self.node.lab)
        return {item["what"]: item for item in run.findings[self.node.name] if item["class"] != "ok"}

    def specification(self) -> dict[str, Any]:
        """Return the one CDI specification of the GPUs that the node has."""
        files = [path for path in SPECIFICATIONS if self.out(f"[ ! -e {path} ] || echo yes")]
        assert len(files) == 1, files
        found: dict[str, Any] = yaml.safe_load(self.out(f"cat {files[0]}"))
        return found

    def hooks(self) -> set[str]:
        """Return the names of all hooks that the specification has run."""
        found = self.specification()
        edits = [found["containerEdits"], *(device["containerEdits"] for device in found["devices"])]
        return {hook["args"][1] for edit in edits for hook in edit.get("hooks", [])}

    def _inventory(self, toolkit: Mapping[str, object]) -> str:
        asked = {"driver": {"version": DRIVER, "flavour": "open"}, "cuda": {"enabled": False}, "toolkit": dict(toolkit)}
        if toolkit.get("enabled") is False:
            asked["containerd"] = {"enabled": False}
        path = self.folder / "inventory.py"
        path.write_text(
            f"import runpy\n_found = runpy.run_path({str(CHECKOUT / 'inventories' / 'lab.py')!r})\n"
            "def _of(data):\n"
            f"    toolkit = {{**data['repositories']['toolkit'], 'url': {_SERVED!r}}}\n"
            f"    return {{**data, **{asked!r}, 'repositories': {{**data['repositories'], 'toolkit': toolkit}}}}\n"
            "nodes = [(name, _of(data)) for name, data in _found['nodes']]\n"
        )
        return str(path)

    def put(self, source: Path, target: str, mode: str = "644") -> None:
        """Copy a file or a folder's content to the node."""
        self.out(f"mkdir -p {Path(target).parent}")
        place = f"{self.node.container}:{target}"
        subprocess.run(["podman", "cp", source, place], check=True, capture_output=True, timeout=120)
        self.out(f"chmod -R a+rX {target}; [ -d {target} ] || chmod {mode} {target}")

    def prepare(self, programs: dict[str, Path], folder: Path) -> None:
        """Install driver and containerd, a runc that works in a container, and a repository of packages."""
        run = self.run({"enabled": False})
        assert run.code == 0, run.printed
        self.out(_MODULES)
        self.put(_HERE / "runc.py", "/usr/local/sbin/runc", "755")
        self.put(_repository(programs, folder), "/srv/real-toolkit")
        self.out(
            "systemd-run --quiet --unit=real-toolkit-mirror "
            "python3 -m http.server 8901 --bind 127.0.0.1 --directory /srv/real-toolkit"
        )


def _repository(programs: dict[str, Path], folder: Path) -> Path:
    """Return a folder with a signed repository of the lab's packages, with the real programs in them."""
    repository = folder / "repository"
    repository.mkdir()
    for version, source in programs.items():
        for package in packages_of(version, source):
            build_deb(package, folder / "packages").rename(repository / package.filename)
    release = index_flat(repository, {})
    sign_releases(key_file(cache_dir() / "keys", "repository"), [release])
    return repository
