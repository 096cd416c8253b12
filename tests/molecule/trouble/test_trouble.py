"""Nodes and settings that cannot be; nothing may be installed before the last test. SIMULATED: the GPUs."""

from __future__ import annotations

import runpy
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpunode.fleet.access import connection
from gpunode.lab import access
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, LAB, Run, command, converge, inventory_with, out
from tests.support.answering import answering, inventory, recorded

WRONG: dict[str, dict[str, object]] = {
    "gpu-1": {"driver": {"flavour": "opne"}, "cuda": {"version": 12.9}},
    "gpu-2": {"containrd": {"enabled": True}, "driver": {"version": "580.95.05", "branch": "570"}},
    "gpu-3": {"toolkit": {"enabled": False, "chanel": "stable"}},
}
MISTAKES = ["driver.flavour", "cuda.version", "containrd", "driver.version", "toolkit.chanel"]


def repositories() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = runpy.run_path(str(CHECKOUT / "inventories" / "lab.py"))["_repositories"]["apt"]
    return found


def installed(node: Node) -> str:
    return lab_nodes.run(node, "dpkg-query -W | grep -E 'nvidia|cuda|containerd'; ls /etc/apt/sources.list.d").stdout


def accepted(node: Node) -> str:
    return lab_nodes.run(node, "journalctl -u ssh.service -o cat | grep -c 'Accepted publickey'").stdout.strip()


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    """Return an inventory with five kinds of mistakes on three hosts."""
    return inventory_with(tmp_path, WRONG)


def names_every_mistake(run: Run) -> bool:
    return all(mistake in run.printed for mistake in MISTAKES) and all(host in run.printed for host in WRONG)


def test_check_names_every_mistake_of_every_host_at_once(wrong: str) -> None:
    run = command("gpunode", "check", wrong)
    assert run.code == 3
    assert names_every_mistake(run), run.printed
    assert "Traceback" not in run.printed


def test_pyinfra_itself_refuses_them_before_any_connection(wrong: str, nodes: tuple[Node, ...]) -> None:
    before = [accepted(node) for node in nodes]
    run = converge(inventory=wrong)
    assert run.code == 1
    assert names_every_mistake(run), run.printed
    assert "Traceback" not in run.printed
    assert "Connect" not in run.printed
    assert [accepted(node) for node in nodes] == before


def test_a_key_with_the_wrong_fingerprint_is_refused_and_nothing_installed(
    tmp_path: Path, nodes: tuple[Node, ...]
) -> None:
    asked = repositories()
    asked["cuda"] = {**asked["cuda"], "key_url": "http://127.0.0.1:8900/keys/wrong.asc"}
    path = inventory_with(tmp_path, {"gpu-1": {"repositories": asked}})
    before = installed(nodes[0])
    run = converge("--limit", "gpu-1", inventory=path)
    assert run.code == 1
    assert asked["cuda"]["key_fingerprint"] in run.stderr
    assert "run.operation-failed" in run.stderr
    started = [line for line in run.stderr.splitlines() if "Starting operation" in line]
    assert "Trust the cuda repository" in started[-1]
    assert installed(nodes[0]) == before


# What Ubuntu's server images have, and a user's service that holds a library which an earlier upgrade replaced.
AUTOMATIC = """
set -e
export NEEDRESTART_SUSPEND=1 DEBIAN_FRONTEND=noninteractive
apt-get install -q -y --no-install-recommends needrestart
mkdir -p /etc/needrestart/conf.d
echo '$nrconf{restart} = q(a);' > /etc/needrestart/conf.d/50-auto.conf
printf '%s\\n' '[Service]' 'ExecStart=/usr/bin/python3 -c "import ssl, time; time.sleep(1e5)"' \\
  > /etc/systemd/system/users-job.service
systemctl daemon-reload
systemctl start users-job
until grep -q libssl /proc/$(systemctl show -P MainPID users-job)/maps; do sleep 0.1; done
apt-get install -q -y --reinstall libssl3
needrestart -b -l -r l | grep -q users-job
"""
# The units that a plan names.
_NAMED = ("containerd", "nvidia", "gpunode")


def units(node: Node) -> set[str]:
    """Return unit, time and invocation of the start of each active unit that no plan names."""
    shown = out(node, "systemctl show --state=active -p Id,ActiveEnterTimestampMonotonic,InvocationID '*'")
    return {each for each in shown.split("\n\n") if not each.partition("Id=")[2].startswith(_NAMED)}


def test_the_good_node_converges_beside_a_refused_and_an_unreachable_one(
    tmp_path: Path, nodes: tuple[Node, ...]
) -> None:
    # gpu-1 is good and reached as a sudo user; gpu-2 asks for a driver that its CUDA cannot use; gpu-3 is not there.
    data: dict[str, dict[str, object]] = {
        "gpu-1": {"ssh_user": "operator", "_sudo": True},
        "gpu-2": {"driver": {"branch": "570"}, "cuda": {"version": "13.0"}},
        "gpu-3": {"ssh_port": 1, "ssh_connect_retries": 0},
    }
    before = installed(nodes[1])
    out(nodes[0], AUTOMATIC)
    started = units(nodes[0])
    run = converge(inventory=inventory_with(tmp_path, data))
    assert run.code == 1
    assert "Traceback" not in run.printed
    assert "users-job.service" in str(started) and started <= units(nodes[0])
    assert "node.outdated-services" in run.printed and "users-job.service" in run.printed
    assert run.payload["results"]["failed_hosts"] == ["gpu-2", "gpu-3"]
    assert run.operations("error") == {"Refuse this node": ["gpu-2"]}
    assert "CUDA 13.0 needs driver 580" in run.stderr
    assert "[gpu-3]" in run.stderr and "onnect" in run.stderr
    assert installed(nodes[1]) == before
    assert lab_nodes.run(nodes[0], "cat /sys/module/nvidia/version").stdout.strip() != ""
    assert "gpu-1" in run.operations("no_change")["Verify the node"]


def test_drift_tells_refused_unreachable_and_good_apart(tmp_path: Path) -> None:
    data: dict[str, dict[str, object]] = {
        "gpu-2": {"driver": {"branch": "570"}, "cuda": {"version": "13.0"}},
        "gpu-3": {"ssh_port": 1, "ssh_connect_retries": 0},
    }
    run = command("gpunode", "drift", "--json", inventory_with(tmp_path, data))
    assert run.code == 1, run.printed
    classes = {name: {item["class"] for item in items} for name, items in run.findings.items()}
    assert classes.pop("gpu-2") > {"unsupported", "drift"}
    assert classes == {"gpu-1": {"ok"}, "gpu-3": {"unreachable"}}


def test_what_is_broken_on_a_refused_node_is_reported_next_to_the_refusal(
    tmp_path: Path, nodes: tuple[Node, ...]
) -> None:
    data: dict[str, dict[str, object]] = {"gpu-1": {"driver": {"branch": "570"}, "cuda": {"version": "13.0"}}}
    path = inventory_with(tmp_path, data)
    assert lab_nodes.run(nodes[0], "systemctl stop containerd").returncode == 0
    try:
        drift = command("gpunode", "drift", "--json", "--limit", "gpu-1", path)
        run = converge("--limit", "gpu-1", inventory=path)
    finally:
        lab_nodes.run(nodes[0], "systemctl start containerd")
    assert drift.code == 2, drift.printed
    found = {item["code"]: item for item in drift.findings["gpu-1"] if item["class"] != "ok"}
    assert {"preflight.cuda-driver-too-old", "containerd.service", "driver.loaded-module"} <= set(found)
    assert found["containerd.service"]["actual"] == "stopped" and found["containerd.service"]["disruption"] is None
    assert drift.payload["hosts"]["gpu-1"]["summary"]["driver"]
    assert run.code == 1 and "containerd.service" in run.stderr, run.printed


def test_a_node_that_hangs_and_one_with_a_broken_shell_are_told_of_and_hold_up_no_other(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    shells = {
        "gpu-2": "#!/bin/sh\nexec sleep 900\n",
        "gpu-3": "#!/bin/sh\necho 'sh: libc.so.6: bad ELF magic' >&2; exit 127\n",
    }
    for node in nodes[1:]:
        put = f"printf %s {shlex.quote(shells[node.name])} > /usr/local/bin/odd; chmod 755 /usr/local/bin/odd"
        assert lab_nodes.run(node, f"{put}; usermod -s /usr/local/bin/odd root").returncode == 0
    try:
        run = command("gpunode", "drift", "--json", "--timeout", "15", inventory_with(tmp_path, {}))
    finally:
        for node in nodes[1:]:
            lab_nodes.run(node, "usermod -s /bin/bash root; pkill -x sleep")
    assert run.code == 1, run.printed
    assert "Traceback" not in run.printed
    told = {name: {(item["class"], item["cause"]) for item in items} for name, items in run.findings.items()}
    assert told["gpu-1"] == {("ok", None)}
    assert told["gpu-2"] == {("unreachable", "no answer within 15 s")}
    ((kind, cause),) = told["gpu-3"]
    assert kind == "error" and "bad ELF magic" in cause, told["gpu-3"]


NEEDY = """
set -e
apt-get install -q -y --no-install-recommends tcsh
useradd --create-home --shell /usr/bin/tcsh needy
echo 'needy:pa!ss w0rd' | chpasswd
echo 'needy ALL=(ALL) ALL' > /etc/sudoers.d/needy
usermod --shell /usr/bin/tcsh root
mount -o remount,noexec /tmp
"""


@pytest.fixture(scope="module")
def hardened() -> Iterator[Node]:
    """Return a node whose root has tcsh, whose /tmp is noexec, and whose user `needy` gives sudo a password."""
    node = lab_nodes.node(LAB, "gpu-3")
    made = lab_nodes.run(node, NEEDY, timeout=300)
    assert made.returncode == 0, made.stderr
    yield node
    lab_nodes.run(node, "mount -o remount,exec /tmp; usermod -s /bin/bash root")


def test_a_login_shell_that_is_a_csh_runs_no_line_of_a_command_as_its_own(hardened: Node, tmp_path: Path) -> None:
    shell = lab_nodes.run(hardened, "getent passwd root | cut -d : -f 7").stdout.strip()
    assert shell == "/usr/bin/tcsh"
    run = command("gpunode", "drift", "--json", inventory_with(tmp_path, {}))
    assert {item["class"] for item in run.findings["gpu-3"]} >= {"drift"}, run.findings["gpu-3"]
    assert not {"unreadable", "not known"} & {item["actual"] for item in run.findings["gpu-3"]}
    # pyinfra's own form of such a command: tcsh runs its second line, as root.
    text = "sh -c 'echo one\ntouch /root/ran\n'"
    ssh = access.ssh_command(CHECKOUT / ".lab" / LAB, hardened.address)
    subprocess.run([*ssh, text], capture_output=True, check=False)
    assert lab_nodes.run(hardened, "rm /root/ran").returncode == 0
    subprocess.run([*ssh, connection.GUARD + text], capture_output=True, check=False)
    assert lab_nodes.run(hardened, "test -e /root/ran").returncode == 1


@pytest.mark.parametrize(
    ("password", "cause", "remedy"),
    [
        (None, "sudo on the node asks for a password, and none was given", "NOPASSWD"),
        ("another", "sudo on the node does not take the password", "own password"),
    ],
)
def test_sudo_that_gets_no_password_it_takes_is_told_with_cause_and_remedy_and_nobody_is_asked(
    hardened: Node, tmp_path: Path, password: str | None, cause: str, remedy: str
) -> None:
    data: dict[str, object] = {"ssh_user": "needy", "_sudo": True, "_sudo_password": password}
    path = inventory_with(tmp_path, {hardened.name: data})
    drift = command("gpunode", "drift", "--json", path)
    (finding,) = drift.findings[hardened.name]
    assert drift.code == 1 and finding["class"] == "error"
    assert cause in finding["cause"] and remedy in finding["remedy"], finding
    plan, facts = command("gpunode", "plan", path), command("gpunode", "facts", path)
    run = converge("--limit", hardened.name, inventory=path)
    for done in (plan, facts, run):
        assert done.code == 1, done.printed
        assert cause in done.printed and remedy in done.printed, done.printed
    for done in (drift, plan, facts, run):
        assert "Traceback" not in done.printed and "password:" not in done.printed, done.printed
    assert run.operations("success") == {}


def test_tcsh_a_noexec_tmp_and_a_password_for_sudo_keep_no_node_from_its_goal(hardened: Node, tmp_path: Path) -> None:
    data: dict[str, object] = {"ssh_user": "needy", "_sudo": True, "_sudo_password": "pa!ss w0rd"}
    path = inventory_with(tmp_path, {hardened.name: data})
    run = converge("--limit", hardened.name, inventory=path)
    assert run.code == 0, run.printed
    assert hardened.name in run.operations("no_change")["Verify the node"]
    for shown in (path, inventory_with(tmp_path, {})):
        drift = command("gpunode", "drift", "--json", shown)
        assert {item["class"] for item in drift.findings[hardened.name]} == {"ok"}, drift.findings
    left = lab_nodes.run(hardened, "ls -d /tmp/pyinfra* /var/tmp/pyinfra* /home/needy/pyinfra* /root/[12]").stdout
    assert left == ""


def test_several_processes_read_the_nodes_as_one_does(tmp_path: Path) -> None:
    inventory = inventory_with(tmp_path, {})
    one = command("gpunode", "drift", "--json", "--processes", "1", inventory)
    several = command("gpunode", "drift", "--json", "--processes", "3", inventory)
    assert several.findings == one.findings
    assert {item["class"] for item in several.findings["gpu-1"]} == {"ok"}


def test_of_a_hundred_hosts_two_down_one_hanging_and_one_with_a_broken_shell_are_told_and_hold_up_no_other(
    tmp_path: Path, nodes: tuple[Node, ...]
) -> None:
    # SIMULATED hosts: an SSH server that gives each what the good node answers.
    with answering(tmp_path, recorded(nodes[0])) as data:
        hosts = {f"gpu-{number}": dict(data) for number in range(100)}
        down, hangs, broken = ("gpu-7", "gpu-93"), "gpu-40", "gpu-41"
        for name in down:
            hosts[name] |= {"ssh_port": 1, "ssh_connect_retries": 0}
        hosts[hangs]["ssh_user"], hosts[broken]["ssh_user"] = "hangs", "broken"
        path = inventory(tmp_path, LAB, hosts, group="none")
        started = time.monotonic()
        run = command("gpunode", "drift", "--json", "--timeout", "30", str(path))
        seconds = time.monotonic() - started
    assert run.code == 1 and "Traceback" not in run.printed, run.printed
    classes = {name: {item["class"] for item in items} for name, items in run.findings.items()}
    wrong = dict.fromkeys((*down, hangs), "unreachable") | {broken: "error"}
    assert classes == {name: {wrong.get(name, "ok")} for name in hosts}
    assert [item["cause"] for item in run.findings[hangs]] == ["no answer within 30 s"]
    # Connections are made before the clock of an answer runs.
    assert seconds < 60


def test_neither_an_upgrade_nor_a_removal_restarts_a_service_of_others(tmp_path: Path, nodes: tuple[Node, ...]) -> None:
    node = nodes[0]
    started = units(node)
    upgraded = inventory_with(tmp_path, {node.name: {"toolkit": {"version": "1.18.0"}}})
    run = command("pyinfra", "-y", "--json", "--limit", node.name, upgraded, "deploys.toolkit.toolkit")
    assert run.code == 0 and "Install NVIDIA container toolkit 1.18.0" in run.operations("success"), run.printed
    out(node, "systemctl stop nvidia-persistenced; rmmod nvidia_uvm; rmmod nvidia")
    off: dict[str, object] = {name: {"enabled": False} for name in ("cuda", "toolkit", "containerd")}
    removed = inventory_with(tmp_path, {node.name: {**off, "driver": {"source": "absent"}}})
    run = command("pyinfra", "-y", "--json", "--limit", node.name, removed, "deploys.driver.driver")
    assert run.code == 0 and "Remove the NVIDIA driver" in run.operations("success"), run.printed
    assert "users-job.service" in str(started) and started <= units(node)
