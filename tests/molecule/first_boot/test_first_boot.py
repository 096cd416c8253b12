"""A machine's first boot by cloud-init's user data, one story from test to test; nobody reaches the machine before.

Real: Debian's cloud-init with a NoCloud seed, systemd, HTTPS, pyinfra on the node, containerd; the cluster with roles,
its scheduler and a kubelet that registers with a taint. SIMULATED: the GPUs. The bundle asks for containerd alone, so
that a pull takes seconds. A lab node is a container: a reboot of it is its first boot, with another instance-id.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.agent.files import CA as AGENT_CA
from gpunode.agent.files import FIRST_PULL, GATE, LEFT, OPTIONAL, SERVICE, TIMER
from gpunode.agent.gate import TAINT
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.cluster import cluster, control_plane
from gpunode.lab.cluster.kubectl import asked, program, told
from gpunode.lab.cluster.programs import programs
from gpunode.lab.nodes import Node
from gpunode.lab.state import lab_folder
from tests.molecule.agent.agent_nodes import SECONDS, Site, codes, pulled, site
from tests.molecule.conftest import CHECKOUT, LAB, Run, command, out, third_tier
from tests.support.dask_cluster import until

__all__ = ["site"]
pytestmark = [pytest.mark.simulated, pytest.mark.life]

SEED = "/var/lib/cloud/seed/nocloud"
TOKEN, CA = "/etc/gpunode/gate-token", "/etc/kubernetes/pki/ca.crt"
# The lab's image has the package lists of what it needs alone, and no locales; podman is who gives a node its network.
INSTALL = """set -e
mkdir -p /root/lists/partial
lists="-o Dir::State::lists=/root/lists"
# A name may not be found for a moment where many labs' networks come and go on one machine.
for again in 1 2 3 4 5 6; do apt-get -q -q $lists -o APT::Update::Error-Mode=any update && break; sleep 10; done
DEBIAN_FRONTEND=noninteractive apt-get -q -y $lists install --no-install-recommends cloud-init
printf 'network: {config: disabled}\\ndatasource_list: [NoCloud, None]\\nlocale: C.UTF-8\\n' > \
  /etc/cloud/cloud.cfg.d/99-lab.cfg
sed -i 's,^AuthorizedKeysFile.*,& .ssh/authorized_keys,' /etc/ssh/sshd_config.d/*.conf
"""
# What a user's own part says: lists of the same names as in gpunode's.
OWN = f"""#cloud-config
ssh_authorized_keys: [@KEY@]
write_files:
- path: /etc/default/kubelet
  content: |
    KUBELET_EXTRA_ARGS=--register-with-taints={TAINT}=first-boot:NoSchedule
runcmd:
- [sh, -c, "echo own >> /root/own"]
"""
POD: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "rest"},
    "spec": {"containers": [{"name": "main", "image": "registry.k8s.io/pause:3.6", "imagePullPolicy": "Never"}]},
}  # fmt: skip


@pytest.fixture
def node(nodes: tuple[Node, ...]) -> Node:
    (found,) = nodes
    return found


@pytest.fixture(scope="module")
def kubeconfig() -> Path:
    """Start the lab's control plane, where users may do what roles give them; no node has joined yet."""
    path = lab_folder(LAB) / "kubeconfig"
    control_plane.start(cluster.folder(LAB), programs(print), path, print, real_kubelets=True, rights=True)
    # The kubelets of the lab have one token for all, and no names of their own.
    until(lambda: "system:node" in told(path, "get", "clusterroles", "--output", "name"))
    told(
        path, "create", "clusterrolebinding", "lab-kubelets", "--clusterrole", "system:node", "--group", "system:nodes"
    )
    return path


@pytest.fixture(scope="module")
def user_data(site: Site, kubeconfig: Path) -> Iterator[str]:
    """Make the user data of the machine, as `cloud-init devel make-mime` and Terraform's cloudinit_config do."""
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    run = command(
        "gpunode", "agent", "user-data", "--from", site.source, "--public-key", str(site.folder / "key.pub"),
        "--ca", str(site.folder / "tls.pem"), "--every", "6h", "--gate", server,
    )  # fmt: skip
    assert run.code == 0, run.printed
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(site.folder / "person")], check=True)
    key = (site.folder / "person.pub").read_text().strip()
    whole = MIMEMultipart()
    whole.attach(MIMEText(OWN.replace("@KEY@", key), "cloud-config"))
    whole.attach(MIMEText(run.stdout, "jinja2"))
    yield whole.as_string()


def seed(node: Node, instance: str, text: str) -> None:
    """Have the machine begin its life as a new one at the next boot."""
    packed = base64.b64encode(text.encode()).decode()
    out(
        node,
        f"rm -f /root/own; mkdir -p {SEED}; echo {packed} | base64 -d > {SEED}/user-data; "
        f"printf 'instance-id: {instance}\\nlocal-hostname: {node.name}\\n' > {SEED}/meta-data",
    )


def reboot(node: Node) -> None:
    """Begin a boot, and return as soon as it has begun."""
    before = lab_nodes.booted(node)
    lab_nodes.run(node, "systemctl --no-block reboot")
    until(lambda: lab_nodes.booted(node) not in ("", before), seconds=90)


def came_up(node: Node) -> str:
    """Wait until cloud-init has ended; return what it says of it."""
    until(lambda: "status: running" not in (found := status(node)) and "not run" not in found, seconds=SECONDS)
    return status(node)


def status(node: Node) -> str:
    return lab_nodes.run(node, "cloud-init status --long").stdout


def ci(*words: str, **environment: str) -> Run:
    return command("gpunode", "ci", *words, **environment)


def test_cloud_init_takes_what_gpunode_prints(site: Site, node: Node) -> None:
    out(node, INSTALL, SECONDS)
    run = command(
        "gpunode", "agent", "user-data", "--host", "a-group", "--from", site.source, "--public-key",
        str(site.folder / "key.pub"), "--gate", "https://10.0.0.1:6443",
    )  # fmt: skip
    packed = base64.b64encode(run.stdout.encode()).decode()
    assert "Valid cloud-config" in out(
        node, f"echo {packed} | base64 -d > /root/ours; cloud-init schema --config-file /root/ours"
    )


@third_tier
def test_a_machine_whose_first_pull_failed_is_told_by_cloud_init_and_left_alone_by_ci(
    site: Site, node: Node, user_data: str, tmp_path: Path
) -> None:
    # There is no bundle of this machine's yet.
    seed(node, "first", user_data)
    reboot(node)
    run = ci(
        "--wait", "300", GPUNODE_CI_HOST=node.address, GPUNODE_CI_USER="debian",
        GPUNODE_CI_KEY=str(site.folder / "person"), GPUNODE_CI_HOST_KEYS="accept-new",
        GPUNODE_CI_KNOWN_HOSTS=str(tmp_path / "known_hosts"),
    )  # fmt: skip
    assert run.code == 1, run.printed
    assert "cloud-init is running" in run.printed, run.printed
    assert "cloud-init failed: status: error" in run.printed and Path(FIRST_PULL).name in run.printed
    report = json.loads(out(node, "cat /var/lib/gpunode/agent/report.json"))
    assert codes(report) == ["agent.not-fetched"]
    assert lab_nodes.run(node, "ls /etc/containerd").stdout == ""
    # It goes on by its timer.
    assert out(node, f"systemctl is-active {TIMER}; systemctl is-enabled {TIMER}") == "active\nenabled"


def test_at_first_boot_a_machine_brings_itself_to_its_bundle_while_ci_waits(
    site: Site, node: Node, user_data: str
) -> None:
    site.make("--number", "10")
    seed(node, "second", user_data)
    reboot(node)
    run = ci("--wait", str(SECONDS), site.inventory)
    assert run.code == 0, run.printed
    said = [line for line in run.printed.splitlines() if line.startswith(f"{node.name}: ")]
    assert any("cloud-init is running" in line for line in said), run.printed
    assert f"{node.name}: ready: cloud-init: done" in said, run.printed
    # Nothing was left to do for ci's own run.
    assert f"[{node.name}] Success" not in run.printed, run.printed
    report = json.loads(out(node, "cat /var/lib/gpunode/agent/report.json"))
    assert (report["exit_code"], report["agent"]["number"], list(report["hosts"])) == (0, 10, [node.name])
    assert out(node, "systemctl is-active containerd; cat /root/own") == "active\nown"
    assert out(node, f"stat -c %a {FIRST_PULL} /etc/gpunode/agent.json") == "755\n644"
    # The gate waits for the machine to join a cluster.
    assert out(node, f"systemctl is-active {GATE}") == "active"
    assert f"{node.name}: waits: " in out(node, f"journalctl -b -u {GATE} -o cat")


def test_a_pull_that_a_reboot_cut_off_goes_on_at_the_next_boot(site: Site, node: Node, user_data: str) -> None:
    # As a machine that has not pulled yet.
    out(node, "rm -rf /var/lib/gpunode/agent; systemctl disable containerd")
    seed(node, "third", user_data)
    reboot(node)
    until(lambda: out(node, f"systemctl is-active {SERVICE}; true") == "activating", seconds=SECONDS)
    reboot(node)
    assert "status: done" in came_up(node), status(node)
    report = json.loads(out(node, "cat /var/lib/gpunode/agent/report.json"))
    assert report["exit_code"] == 0, report
    # The user's own runcmd is run once for each instance.
    assert out(node, "cat /root/own") == "own"
    # From now on a boot leaves it to the timer.
    reboot(node)
    assert "status: done" in came_up(node)
    assert out(node, f"journalctl -b -u {SERVICE} -o cat | wc -l") == "0"


def gate_token(kubeconfig: Path) -> str:
    """Give the gate its rights by the example of the documentation, and return its token."""
    for each in yaml.safe_load_all((CHECKOUT / "docs/examples/first-boot/gate.yaml").read_text()):
        told(kubeconfig, "apply", "--filename", "-", sends=each)

    def token() -> str:
        data = asked(kubeconfig, "-n", "kube-system", "get", "secret", "gpunode-gate").get("data", {})
        return base64.b64decode(data.get("token", "")).decode()

    until(lambda: token() != "")
    return token()


def may(kubeconfig: Path, token: str, *words: str) -> bool:
    """Say whether the token's user may do something."""
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"] = [{"name": "admin", "user": {"token": token}}]
    path = kubeconfig.with_name("kubeconfig-gate")
    path.write_text(yaml.safe_dump(content))
    done = subprocess.run(
        [program(), "--kubeconfig", path, "auth", "can-i", *words], capture_output=True, text=True, check=False
    )
    path.unlink()
    return done.stdout.strip() == "yes"


def taints(kubeconfig: Path, node: Node) -> list[str]:
    found = asked(kubeconfig, "get", "node", node.name)["spec"].get("taints", [])
    return [each["key"] for each in found]


def phase(kubeconfig: Path) -> str:
    return str(asked(kubeconfig, "get", "pod", "rest")["status"]["phase"])


def test_a_machine_that_joins_before_its_pull_was_good_takes_no_pods(site: Site, node: Node, kubeconfig: Path) -> None:
    # Its next bundle is another one's.
    site.make("--number", "11", key="another")
    assert codes(pulled(node)) == ["agent.bundle-signer"]
    until(lambda: "stays" in out(node, f"journalctl -b -u {GATE} -o cat -n 5"))
    cluster.up(LAB, print, real_kubelets=True)
    certificate = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["certificate-authority-data"]
    token = gate_token(kubeconfig)
    out(node, f"mkdir -p {Path(CA).parent}; echo {certificate} | base64 -d > {CA}")
    out(node, f"(umask 077; printf %s '{token}' > {TOKEN})")
    assert may(kubeconfig, token, "patch", "nodes") and may(kubeconfig, token, "get", "nodes")
    for words in (("list", "nodes"), ("delete", "nodes"), ("get", "secrets"), ("create", "pods"), ("list", "pods")):
        assert not may(kubeconfig, token, *words), words
    told(kubeconfig, "taint", "node", node.name, "somebody=else:NoSchedule")
    told(kubeconfig, "create", "--filename", "-", sends=POD)
    assert codes(pulled(node)) == ["agent.bundle-signer"]
    time.sleep(5)
    assert TAINT in taints(kubeconfig, node) and phase(kubeconfig) == "Pending"


def test_the_verdict_takes_the_taint_off_and_leaves_everybody_else_s(site: Site, node: Node, kubeconfig: Path) -> None:
    site.make("--number", "12")
    report = pulled(node)
    assert report["exit_code"] == 0, report
    until(lambda: TAINT not in taints(kubeconfig, node))
    assert taints(kubeconfig, node) == ["somebody"]
    assert f"{node.name}: taint {TAINT} taken off" in out(node, f"journalctl -b -u {GATE} -o cat -n 5")
    until(lambda: out(node, f"systemctl is-active {GATE}; true") == "inactive")  # it ends after its last word
    told(kubeconfig, "taint", "node", node.name, "somebody-")
    until(lambda: phase(kubeconfig) == "Running")
    # Nothing that others may read has the token.
    told_there = out(node, f"journalctl -b -u {GATE} -u {SERVICE} -o cat; cat /etc/gpunode/*.json")
    readable = out(node, "cat /var/lib/gpunode/agent/report.json; systemctl show gpunode-gate; ps -ef")
    assert out(node, f"cat {TOKEN}") not in told_there + readable


def test_install_finds_nothing_to_change_there_and_takes_a_gate_away_that_is_not_asked_for(
    site: Site, node: Node, kubeconfig: Path
) -> None:
    server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    words = (
        "gpunode", "agent", "install", "--from", site.source, "--public-key", str(site.folder / "key.pub"),
        "--ca", str(site.folder / "tls.pem"), "--every", "6h",
    )  # fmt: skip
    same = command(*words, "--gate", server, site.inventory)
    assert same.code == 0 and f"[{node.name}] No changes" in same.printed, same.printed
    without = command(*words, site.inventory)
    assert without.code == 0 and f"[{node.name}] Success" in without.printed, without.printed
    paths = " ".join(path for path in OPTIONAL if path != AGENT_CA)
    assert out(node, f"ls -d {paths} 2>/dev/null; systemctl cat {SERVICE} | grep {GATE}; true") == ""
    assert out(node, f"systemctl is-active {TIMER}") == "active"
    assert pulled(node)["exit_code"] == 0
    again = command(*words, site.inventory)
    assert again.code == 0 and f"[{node.name}] No changes" in again.printed, again.printed


def test_removed_it_leaves_nothing_for_the_next_boot(site: Site, node: Node) -> None:
    run = command("gpunode", "agent", "remove", site.inventory)
    assert run.code == 0, run.printed
    assert out(node, f"ls -d {' '.join(LEFT)} 2>/dev/null; true") == ""
    assert out(node, "systemctl list-unit-files 'gpunode-*' --no-legend | grep -e agent -e gate; true") == ""
    assert command("gpunode", "drift", site.inventory).code == 0
