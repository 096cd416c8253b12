"""gpunode from its wheel, in a repository of a user's own. Real: the wheel, the environment, the node. SIMULATED: GPUs.

The wheel is built from the sdist, as a package index serves both. The environment has nothing of the checkout. The node
begins as a copy of a node that the checkout's own run converged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, Run

# A user's own rooms of the same names, which nothing of gpunode's may take for its own.
OWN = ("facts", "operations", "deploys", "lab", "templates")
ALONE = """\
from gpunode.deploys.containerd import containerd
from gpunode.deploys.toolkit import toolkit

toolkit()
containerd()
"""


class Installed:
    """Be gpunode in a fresh environment, and a repository that its `init` wrote."""

    def __init__(self, folder: Path) -> None:
        """Build the wheel from the sdist, and install it with the versions of uv.lock."""
        self.environment, self.repository = folder / "environment", folder / "mine"
        self.history = folder / "history.sqlite"
        uv = str(Path(sys.executable).with_name("uv"))
        pinned = str(folder / "requirements.txt")
        for line in (
            [uv, "build", "--quiet", "--out-dir", str(folder), str(CHECKOUT)],
            [uv, "export", "--quiet", "--frozen", "--no-dev", "--no-emit-project", "--output-file", pinned],
            [uv, "venv", "--quiet", "--python", sys.executable, str(self.environment)],
            [uv, "pip", "install", "--quiet", "--python", str(self.environment), "--require-hashes", "-r", pinned],
        ):
            self._done(line, CHECKOUT)
        (wheel,) = folder.glob("*.whl")
        to = ["--python", str(self.environment), "--no-deps", str(wheel)]
        self._done([uv, "pip", "install", "--quiet", *to], folder)
        self.written = self.run("gpunode", "init", str(self.repository), cwd=folder)
        for room in OWN:
            (self.repository / room).mkdir(exist_ok=True)
            (self.repository / room / "__init__.py").write_text("raise RuntimeError('the user has this')\n")
        (self.repository / "deploys" / "alone.py").write_text(ALONE)
        # The lab is the checkout's.
        (self.repository / ".lab").symlink_to(CHECKOUT / ".lab")

    @property
    def packages(self) -> set[str]:
        """Return what the wheel brought to the top of site-packages."""
        (folder,) = self.environment.glob("lib/python3*/site-packages")
        (record,) = folder.glob("gpunode-*.dist-info/RECORD")
        names = {line.partition("/")[0] for line in record.read_text().splitlines()}
        return {name for name in names if name != ".." and not name.endswith(".dist-info")}

    def run(self, program: str, *words: str, cwd: Path | None = None) -> Run:
        """Run a program of the environment, in the repository."""
        done = subprocess.run(
            [self.environment / "bin" / program, *words],
            cwd=cwd or self.repository,
            capture_output=True,
            text=True,
            env={**_outside(), "NO_COLOR": "1", "GPUNODE_HISTORY": str(self.history)},
            stdin=subprocess.DEVNULL,
            timeout=600,
            check=False,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    def _done(self, line: list[str], cwd: Path) -> None:
        done = subprocess.run(line, cwd=cwd, env=_outside(), capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr


def _outside() -> dict[str, str]:
    """Return the environment's variables without those that tell of the checkout's own."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def node() -> Node:
    return lab_nodes.nodes(os.environ["GPUNODE_LAB"])[0]


def test_the_wheel_has_one_package_and_init_writes_a_repository(mine: Installed) -> None:
    assert mine.packages == {"gpunode"}
    assert mine.written.code == 0, mine.written.printed
    assert (mine.repository / "deploys" / "gpu_node.py").is_file()


def test_check_and_plan_of_a_converged_node_find_nothing_to_do(mine: Installed) -> None:
    checked = mine.run("gpunode", "check", "inventories/lab.py")
    assert checked.code == 0, checked.printed
    planned = mine.run("gpunode", "plan", "--json", "inventories/lab.py")
    assert planned.code == 0, planned.printed
    assert [host["verdict"] for host in planned.payload["hosts"].values()] == ["nothing to do"]


def test_the_main_job_changes_nothing_where_nothing_differs_and_heals_what_was_broken(
    mine: Installed, node: Node
) -> None:
    words = ("-y", "--json", "inventories/lab.py", "deploys/gpu_node.py")
    first = mine.run("pyinfra", *words)
    assert (first.code, first.operations("success")) == (0, {}), first.printed
    lab_nodes.run(node, "sed -i s/SystemdCgroup.=.true/SystemdCgroup=false/ /etc/containerd/config.toml")
    assert mine.run("gpunode", "drift", "inventories/lab.py").code == 2
    healed = mine.run("pyinfra", *words)
    assert healed.code == 0 and healed.operations("success"), healed.printed
    drift = mine.run("gpunode", "drift", "inventories/lab.py")
    assert drift.code == 0 and drift.stdout.startswith(f"{node.name}: ok"), drift.printed
    # The wheel has what makes the tables of a history.
    told = mine.run("gpunode", "history", "changes", "inventories/lab.py", "--component", "containerd", "--json")
    assert {each["change"] for each in told.payload["changes"]} == {"began", "ended"}, told.printed


def test_a_deploy_and_a_fact_are_taken_from_a_repository_that_has_rooms_of_the_same_names(mine: Installed) -> None:
    alone = mine.run("pyinfra", "-y", "--json", "inventories/lab.py", "deploys/alone.py")
    assert (alone.code, alone.operations("success")) == (0, {}), alone.printed
    assert any("containerd" in name for name in alone.operations("no_change")), alone.printed
    fact = mine.run("pyinfra", "--json", "inventories/lab.py", "fact", "gpunode.facts.requirements.Requirements")
    assert fact.code == 0, fact.printed
    assert all(json.loads(fact.stdout)["gpunode.facts.requirements.Requirements"].values())
