"""`gpunode ci` by the steps of the examples: waits, provisions, verifies, reports.

SIMULATED: terraform, vagrant and the node's cloud-init (small programs of this test's), and the GPUs. Real: ssh that
comes up late, an unknown host key, the steps as they stand in docs/examples/ci. Where vagrant is installed the last
test has the real one make a machine; scenario first_boot has Debian's real cloud-init.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
from collections.abc import Iterator
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


# A machine of vagrant's own, as its provider for docker makes one; podman answers for docker, as it does in Debian's
# podman-docker. It is a node of the lab's image, and asks for containerd alone, so that this takes seconds.
VAGRANTFILE = """
Vagrant.configure("2") do |config|
  config.vm.synced_folder ".", "/vagrant", disabled: true
  config.ssh.insert_key = false
  config.ssh.username = "root"
  config.ssh.private_key_path = "@KEY@"
  config.vm.define "made-by-vagrant" do |machine|
    machine.vm.provider "docker" do |docker|
      docker.name = "@CONTAINER@"
      docker.image = "@IMAGE@"
      docker.cmd = ["/sbin/init"]
      docker.has_ssh = true
      docker.privileged = true
      docker.create_args = @ARGUMENTS@
    end
  end
end
"""
ALONE = {
    "containerd": {"default_runtime": "runc"},
    **{name: {"enabled": False} for name in ("driver", "cuda", "toolkit")},
}


@pytest.fixture
def made_by_vagrant(job: Job, nodes: tuple[Node, ...]) -> Iterator[str]:
    """Have the job's checkout describe a machine to the real vagrant; return its container's name."""
    (node,) = nodes
    container = f"{node.container}-of-vagrant"
    found = subprocess.run(
        ["podman", "inspect", node.container, "--format", "{{json .Config.CreateCommand}}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    words = json.loads(found.stdout)
    own = job.folder / "of-vagrant"
    shutil.copytree(node.folder, own)
    mounts = [f"{own}:/etc/gpunode-lab:rw", *(word for word in words if word.endswith(":/srv/gpunode-lab/mirror:ro"))]
    arguments = [
        *("--hostname", "made-by-vagrant", "--network", words[words.index("--network") + 1], "--systemd=always"),
        *("--ulimit", "nofile=20000:20000", "--ulimit", "nproc=6000:6000"),
        *(part for mount in mounts for part in ("--volume", mount)),
        "--rootfs",
    ]
    values = {"KEY": str(KEY), "CONTAINER": container, "IMAGE": words[words.index("--rootfs") + 1],
              "ARGUMENTS": json.dumps(arguments)}  # fmt: skip
    text = VAGRANTFILE
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    (job.folder / "Vagrantfile").write_text(text)
    settings = job.folder / "inventories" / "group_data" / "ci.py"
    asked = "\n".join(f"{name} = {value!r}" for name, value in ALONE.items())
    settings.write_text(f"{settings.read_text()}\n{asked}\n")
    # The real one is on the PATH.
    (job.programs / "vagrant").unlink()
    # It looks at every container that it is told of, and those of other labs come and go meanwhile.
    alone = f'[ "$1" != ps ] || set -- "$@" --filter name={container}'
    (job.programs / "docker").write_text(f'#!/bin/sh\n{alone}\nexec podman --runtime runc "$@"\n')
    (job.programs / "docker").chmod(0o755)
    yield container
    subprocess.run(["podman", "rm", "--force", "--time", "0", container], capture_output=True, check=False)


@pytest.mark.skipif(shutil.which("vagrant") is None, reason="needs vagrant (`make all-tools`)")
def test_gitlabs_steps_provision_a_machine_that_vagrant_itself_made(job: Job, made_by_vagrant: str) -> None:
    gpu = _example("gitlab-ci.yml")
    environment = {
        **gpu["variables"], "VAGRANT_DEFAULT_PROVIDER": "docker", "VAGRANT_HOME": str(job.folder / ".vagrant.d"),
        "VAGRANT_CHECKPOINT_DISABLE": "1",
    }  # fmt: skip
    printed, runs = "", []
    # The script twice: a machine that is as desired is left as it is.
    for script in (*gpu["before_script"], *gpu["script"], *gpu["script"], *gpu["after_script"]):
        done = job.step(script, environment)
        assert done.returncode == 0, done.stdout + done.stderr
        printed += done.stdout + done.stderr
        if "gpunode ci" in script:
            runs.append(done.stdout + done.stderr)
    config = (job.folder / "ssh-config").read_text()
    assert config.startswith("Host made-by-vagrant\n") and "Port 22\n" not in config, config
    assert [run.count("[made-by-vagrant] Success") > 2 for run in runs] == [True, False], printed
    assert "[made-by-vagrant] Success" not in runs[1], runs[1]
    assert "containerd" in printed and printed.count("made-by-vagrant: ready") == 2, printed
    assert (job.suite().get("failures"), job.suite().get("errors")) == ("0", "0")
    left = subprocess.run(["podman", "container", "exists", made_by_vagrant], check=False)
    assert left.returncode == 1, "vagrant destroyed it"


def test_a_run_that_fails_fails_the_job_and_stands_in_the_report(job: Job, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    settings = job.folder / "inventories" / "group_data" / "ci.py"
    settings.write_text(settings.read_text().replace('"branch": "580"', '"branch": "570"').replace("12.9", "13.0"))
    environment = {"GPUNODE_CI_HOST": node.address, "GPUNODE_CI_KEY": str(KEY), "GPUNODE_CI_HOST_KEYS": "accept-new",
                   "GPUNODE_CI_KNOWN_HOSTS": str(job.folder / "known_hosts")}  # fmt: skip
    done = job.step(".venv/bin/gpunode ci --wait 30 --junit gpunode.xml", environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    kinds: dict[str | None, set[str | None]] = {}
    for case in job.suite().findall("testcase"):
        kinds.setdefault(case.get("classname"), set()).update(child.get("type") for child in case)
    # Preflight refuses the machine: it was not provisioned.
    assert kinds["run"] == {"not known"} and kinds["machine"] == set()
    assert any("unsupported" in types for types in kinds.values())
