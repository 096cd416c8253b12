"""`pyinfra INVENTORY deploys/COMPONENT.py` does what the file's name says, and an import of it does nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpunode import deploys
from tests.support import warm

pytestmark = [pytest.mark.pure, pytest.mark.tier2]

FOLDER = Path(deploys.__file__).parent
# What names no component, or several; smoke.py is a component of verify.py's, by a file that is never imported.
NONE = {"__init__", "component", "gpu_node", "preflight", "repositories", "smoke"}
# agent.py is run by a command of its own, and is none of a run's components.
FILES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in NONE | {"agent", "drain"})

DEPLOY = """
import importlib
import sys

from pyinfra_cli.util import exec_file

import gpunode.deploys.component

file = "begins"
begun = []
# Each is refused where it begins.
gpunode.deploys.component.accepted = lambda: begun.append(file) or False
for file in {files!r}:
    importlib.import_module("gpunode.deploys." + file)
print("by import:", *begun, file=sys.stderr)
for file in {files!r}:
    exec_file({folder!r} + "/" + file + ".py")
print("by file:", *sorted(set(begun)), file=sys.stderr)
"""


def test_a_file_that_is_run_by_itself_runs_its_component_and_an_import_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "deploy.py").write_text(DEPLOY.format(files=FILES, folder=str(FOLDER)))
    (tmp_path / "inventory.py").write_text("hosts = ['@fake/gpu-1']\n")
    environment = {**os.environ, "NO_COLOR": "1"}
    done = warm.run("pyinfra", "-y", str(tmp_path / "inventory.py"), str(tmp_path / "deploy.py"), env=environment)
    assert "driver" in FILES and len(FILES) == 21
    assert f"by file: {' '.join(FILES)}\n" in done.stderr, done.stderr
    assert "by import:\n" in done.stderr
