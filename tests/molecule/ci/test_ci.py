"""`gpunode ci` by the steps of the examples: waits, provisions, verifies, reports.

SIMULATED: terraform, vagrant and the node's cloud-init (small programs of this test's), and the GPUs. Real: ssh that
comes up late, an unknown host key, the steps as they stand in docs/examples/ci.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import subprocess
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.checkout import copied
from tests.molecule.conftest import CHECKOUT, LAB, SECONDS

pytestmark = [pytest.mark.node, pytest.mark.simulated]

KEY = CHECKOUT / ".lab" / LAB / "id_ed25519"
_EXAMPLES = CHECKOUT / "docs" / "examples" / "ci"


def _cloud_init(node: Node, status: str, after: str = "") -> None:
    """SIMULATED: let the node have a cloud-init that says `status`, and `after` once /run/cloud-init-done is there."""
    said = f'#!/bin/sh\n[ -e /run/cloud-init-done ] && echo "status: {after}" || echo "status: {status}"\n'
    program = "/usr/bin/cloud-init"
    put = f"printf %s {shlex.quote(said)} > {program}; chmod 755 {program}; rm -f /run/cloud-init-done"
    done = lab_nodes.run(node, put)
    assert done.returncode == 0, done.stderr


class Job:
    """Hold a CI job's checkout, with the programs that make its machine SIMULATED on its PATH."""

    def __init__(self, folder: Path, node: Node) -> None:
        self.folder, self.programs = copied(folder / "checkout", ".venv"), folder / "programs"
        # Where the machine's packages come from is the job's own settings, as in any checkout.
        (lab,) = (data for name, data in runpy.run_path(str(CHECKOUT / "inventories" / "lab.py"))["nodes"])
        settings = self.folder / "inventories" / "group_data" / "ci.py"
        settings.write_text(settings.read_text() + f"\nrepositories = {lab['repositories']!r}\n")
        self.outputs = {"gpu_nodes": {"sensitive": False, "type": ["tuple"], "value": {node.name: node.address}}}
        self._program(
            "vagrant",
            f"[ \"$1\" != ssh-config ] || cat <<'END'\nHost {node.name}\n  HostName {node.address}\n  User root\n"
            f"  Port 22\n  UserKnownHostsFile /dev/null\n  StrictHostKeyChecking no\n  IdentityFile {KEY}\nEND\n",
        )

    def use(self, action: str, options: dict[str, Any]) -> None:
        """SIMULATED: bring what a step's action brings; a runner of GitHub's has no terraform of its own."""
        if action.startswith("hashicorp/setup-terraform@"):
            said = json.dumps(self.outputs)
            if options.get("terraform_wrapper", True):
                said = f"[command]/usr/bin/terraform\n{said}"
            self._program("terraform", f"[ \"$1\" != output ] || cat <<'END'\n{said}\nEND\n")

    def _program(self, name: str, text: str) -> None:
        self.programs.mkdir(exist_ok=True)
        (self.programs / name).write_text(f"#!/bin/sh\n# SIMULATED {name}\n{text}")
        (self.programs / name).chmod(0o755)

    def step(self, script: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a step as a runner does: in the checkout, by bash that stops at the first failure."""
        path = f"{self.programs}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", script],
            cwd=self.folder, env={**os.environ, "PATH": path, "NO_COLOR": "1", **environment},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip

    def suite(self) -> ElementTree.Element:
        """Return the only machine's suite of the JUnit report."""
        (suite,) = ElementTree.parse(self.folder / "gpunode.xml").getroot().findall("testsuite")
        return suite


@pytest.fixture
def job(tmp_path: Path, nodes: tuple[Node, ...]) -> Job:
    return Job(tmp_path, nodes[0])


def _example(name: str) -> Any:
    return yaml.safe_load((_EXAMPLES / name).read_text())["gpu" if name.startswith("gitlab") else "jobs"]


def test_a_machine_whose_cloud_init_failed_is_reported_and_left_alone(job: Job, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    _cloud_init(node, "error")
    environment = {"GPUNODE_CI_HOST": node.address, "GPUNODE_CI_KEY": str(KEY), "GPUNODE_CI_HOST_KEYS": "accept-new",
                   "GPUNODE_CI_KNOWN_HOSTS": str(job.folder / "new" / "known_hosts")}  # fmt: skip
    done = job.step(".venv/bin/gpunode ci --junit gpunode.xml", environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "cloud-init failed: status: error" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    suite = job.suite()
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    assert lab_nodes.run(node, "ls /var/lib/gpunode /etc/containerd").stdout == ""


def test_githubs_steps_wait_for_ssh_and_cloud_init_then_provision_and_verify(job: Job, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    _cloud_init(node, "running", after="done")
    # ssh comes up 8 seconds from now, cloud-init ends 7 seconds later.
    late = "sleep 8; systemctl start ssh; sleep 7; touch /run/cloud-init-done"
    started = lab_nodes.run(node, f"systemctl stop ssh; systemd-run --quiet sh -c {shlex.quote(late)}")
    assert started.returncode == 0, started.stderr
    gpu = _example("github-actions.yml")["gpu"]
    printed = ""
    for one in gpu["steps"]:
        if "uses" in one:
            job.use(one["uses"], one.get("with", {}))
            continue
        assert set(re.findall(r"\$\{\{(.*?)\}\}", str(one))) <= {" secrets.SSH_KEY "}
        secrets = {name: KEY.read_text().rstrip("\n") for name in one.get("env", {})}
        done = job.step(one["run"], {**gpu["env"], **secrets})
        assert done.returncode == 0, done.stdout + done.stderr
        printed += done.stdout + done.stderr
    lines = [line.removeprefix(f"{node.name}: ") for line in printed.splitlines() if line.startswith(node.name)]
    told = [line for line in lines if line.startswith(("waiting", "ready"))]
    assert "no connection" in told[0] and "cloud-init is running" in told[-2] and "ready" in told[-1], printed
    suite = job.suite()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0"), printed
    assert int(suite.get("tests") or 0) > 20
    assert lab_nodes.run(node, "cat /sys/module/nvidia/version").stdout.startswith("580.")
    assert (job.folder / "known_hosts").read_text().startswith(node.address)


def test_gitlabs_steps_find_nothing_to_change_on_a_provisioned_machine(job: Job, nodes: tuple[Node, ...]) -> None:
    gpu = _example("gitlab-ci.yml")
    printed = ""
    for script in (*gpu["before_script"], *gpu["script"], *gpu["after_script"]):
        done = job.step(script, gpu["variables"])
        assert done.returncode == 0, done.stdout + done.stderr
        printed += done.stdout + done.stderr
    assert "as desired" in printed
    assert f"[{nodes[0].name}] Success" not in printed, printed
    assert (job.suite().get("failures"), job.suite().get("errors")) == ("0", "0")
    # What the example calls its report is what it hands to GitLab.
    assert gpu["artifacts"]["reports"]["junit"] == "gpunode.xml"


def test_a_run_that_fails_fails_the_job_and_stands_in_the_report(job: Job, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    settings = job.folder / "inventories" / "group_data" / "ci.py"
    settings.write_text(settings.read_text().replace('"branch": "580"', '"branch": "570"').replace("12.9", "13.0"))
    environment = {"GPUNODE_CI_HOST": node.address, "GPUNODE_CI_KEY": str(KEY), "GPUNODE_CI_HOST_KEYS": "accept-new",
                   "GPUNODE_CI_KNOWN_HOSTS": str(job.folder / "known_hosts")}  # fmt: skip
    done = job.step(".venv/bin/gpunode ci --wait 30 --junit gpunode.xml", environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    kinds = {case.get("classname"): {child.get("type") for child in case} for case in job.suite().findall("testcase")}
    assert kinds["run"] == {"error"} and kinds["machine"] == set()
    assert any("unsupported" in types for types in kinds.values())
