"""A node that pulls, one story from test to test. Real: systemd, ssh-keygen, HTTPS, pyinfra on the node, containerd.

SIMULATED: the GPUs. The node is asked for containerd alone, so that a pull takes seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpunode.agent.files import LEFT, PLACES, PROGRAM, SERVICE, TIMER
from gpunode.agent.pull import BUNDLE, END
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from gpunode.system.running_boot import RECORD
from tests.molecule.agent.agent_nodes import ASKED, SECONDS, Site, codes, pulled, site
from tests.molecule.conftest import CHECKOUT, Run, command, inventory_with, out, thinned, third_tier
from tests.support.dask_cluster import BINARIES, until
from tests.support.slow_server import dripping

# Fixtures.
__all__ = ["site"]

# All that a pull could have changed, but for its report, its log, and the node's lock, which names its last holder.
STATE = (
    "dpkg-query -W; find /etc /opt/gpunode /var/lib/gpunode -type f ! -name report.json ! -name log "
    f"! -path {PLACES.lock} "
    "! -path '*/__pycache__/*' -printf '%p %s %T@\\n' | sort"
)


def install(site: Site) -> Run:
    return command(
        "gpunode", "agent", "install", "--from", site.source, "--public-key", str(site.folder / "key.pub"),
        "--ca", str(site.folder / "tls.pem"), "--every", "6h", "--textfile", "/var/lib/node-exporter", site.inventory,
    )  # fmt: skip


def test_the_agent_is_a_timer_and_opens_no_port(site: Site, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    ports = out(node, "ss -Hltun | awk '{print $5}' | sort")
    out(node, "mkdir -p /var/lib/node-exporter")
    run = install(site)
    assert run.code == 0, run.printed
    assert out(node, f"systemctl is-active {TIMER}; systemctl is-enabled {TIMER}") == "active\nenabled"
    assert out(node, f"systemctl is-active {SERVICE}; true") == "inactive"
    assert out(node, "ss -Hltun | awk '{print $5}' | sort") == ports
    before = out(node, STATE)
    again = install(site)
    assert again.code == 0 and out(node, STATE) == before, again.printed


def test_a_node_that_never_pulled_is_told_as_silent(site: Site) -> None:
    run = command("gpunode", "agent", "collect", "--json", site.inventory)
    assert run.code == 1 and [each["code"] for each in run.findings["gpu-1"]] == ["agent.silent"], run.printed


def test_the_node_brings_itself_to_what_its_bundle_asks(site: Site, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    site.make("--number", "10")
    report = pulled(node)
    assert report["exit_code"] == 0, (report, out(node, "cat /var/lib/gpunode/agent/private/run/log"))
    assert out(node, "systemctl is-active containerd") == "active"
    assert report["agent"]["number"] == 10
    # The controller finds the same, by its own reading and by the node's report.
    assert command("gpunode", "drift", site.inventory).code == 0
    run = command("gpunode", "agent", "collect", "--json", site.inventory)
    assert run.code == 0, run.printed
    assert {each["code"] for each in run.findings["gpu-1"]} > {"agent.no-success"}
    metric = out(node, "cat /var/lib/node-exporter/gpunode_agent.prom")
    assert "gpunode_agent_exit_code 0\n" in metric and "gpunode_agent_bundle_number 10" in metric
    assert out(node, "stat -c %a /var/lib/gpunode/agent/private") == "700"


def test_a_second_pull_changes_nothing(site: Site, nodes: tuple[Node, ...], start_times: Callable[[Node], str]) -> None:
    (node,) = nodes
    before, started = out(node, STATE), start_times(node)
    assert pulled(node)["exit_code"] == 0
    assert start_times(node) == started
    changed = {line.split()[0] for line in set(out(node, STATE).splitlines()) ^ set(before.splitlines())}
    assert all(path.startswith("/var/lib/gpunode/agent/private/") for path in changed), changed


def altered(site: Site) -> None:
    site.make("--number", "11")
    signature, end, text = site.signed.read_bytes().partition(END)
    site.signed.write_bytes(signature + end + text.replace(b'"runc"', b'"crun"'))


def by_another_key(site: Site) -> None:
    site.make("--number", "11", key="another")


def expired(site: Site) -> None:
    site.make("--number", "11", "--valid", "1s")
    time.sleep(1.1)


def older(site: Site) -> None:
    site.make("--number", "9")


def for_another_host(site: Site) -> None:
    site.make("--number", "11")
    other = site.folder / "other"
    path = inventory_with(other_folder(other), {"gpu-1": ASKED})
    text = Path(path).read_text().replace("nodes = [(name,", "nodes = [(name.replace('gpu', 'cpu'),")
    Path(path).write_text(text)
    run = command(
        "gpunode", "agent", "bundle", "--number", "11", "--key", str(site.folder / "key"), "--out", str(other), path
    )
    assert run.code == 0, run.printed
    shutil.copy(other / "cpu-1" / BUNDLE, site.signed)


def other_folder(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.parametrize(
    ("lay", "code"),
    [
        (altered, "agent.bundle-altered"), (by_another_key, "agent.bundle-signer"), (expired, "agent.bundle-expired"),
        (older, "agent.bundle-older"), (for_another_host, "agent.bundle-host"),
    ],
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)  # fmt: skip
def test_what_is_no_bundle_for_this_node_is_refused_and_the_node_stays_as_it_is(
    site: Site, nodes: tuple[Node, ...], lay: Callable[[Site], None], code: str
) -> None:
    (node,) = nodes
    lay(site)
    before = out(node, STATE)
    report = pulled(node)
    assert (codes(report), report["exit_code"]) == ([code], 3)
    assert out(node, STATE) == before
    run = command("gpunode", "agent", "collect", site.inventory)
    assert run.code == 1 and f"[{code}]" in run.stdout, run.printed


def test_a_deviation_is_healed_by_the_next_pull(site: Site, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    site.make("--number", "12")
    out(node, "systemctl disable --now containerd")
    report = pulled(node)
    assert report["exit_code"] == 0, report
    assert out(node, "systemctl is-active containerd; systemctl is-enabled containerd") == "active\nenabled"
    assert command("gpunode", "agent", "collect", site.inventory).code == 0


@third_tier
def test_a_pull_waits_for_a_push(site: Site, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    # So that the push is at work for as long as it takes to begin a pull beside it.
    drop_in = "/run/systemd/system/containerd.service.d"
    slow = f"printf '[Service]\\nExecStartPre=/bin/sleep 20\\n' > {drop_in}/slow.conf"
    out(node, f"systemctl stop containerd; mkdir -p {drop_in}; {slow}; systemctl daemon-reload")
    with began(site) as push:
        until(lambda: push.poll() is not None or f"process {push.pid} " in holder(node), seconds=SECONDS)
        out(node, f"systemctl start --no-block {SERVICE}")
        until(lambda: f"process {push.pid} there" in said(node), seconds=SECONDS)
        assert push.poll() is None
        assert push.wait(SECONDS) == 0
    until(lambda: out(node, f"systemctl is-active {SERVICE}; true") == "inactive", seconds=SECONDS)
    assert json.loads(out(node, "cat /var/lib/gpunode/agent/report.json"))["exit_code"] == 0


def test_a_push_waits_for_a_pull(site: Site, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    out(node, f"systemctl stop containerd; systemctl start --no-block {SERVICE}")
    until(
        lambda: "GPUNODE_PULL=1" in out(node, "cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"), seconds=SECONDS
    )
    with began(site) as push:
        _, words = push.communicate(timeout=SECONDS)
        assert push.returncode == 0, words
    assert "waits for another run" in words and SERVICE in words
    assert out(node, f"systemctl is-active {SERVICE}; true") == "inactive"
    assert command("gpunode", "agent", "collect", site.inventory).code == 0


@pytest.fixture
def held_by_eve(nodes: tuple[Node, ...]) -> Iterator[str]:
    """Have a user without any right hold the node's lock, whose file an older gpunode left with mode 644."""
    (node,) = nodes
    lock = PLACES.lock
    out(node, f"id eve > /dev/null 2>&1 || useradd eve; rm -f {lock}; touch {lock}; chmod 644 {lock}")
    out(node, f"systemd-run --quiet --unit=eve --uid=eve flock {lock} sleep infinity")
    until(lambda: lab_nodes.run(node, f"flock -n {lock} true").returncode == 1, seconds=SECONDS)
    yield out(node, "id -u eve")
    out(node, "systemctl stop eve")


def test_a_lock_of_a_user_without_root_stops_no_pull(site: Site, nodes: tuple[Node, ...], held_by_eve: str) -> None:
    (node,) = nodes
    assert pulled(node)["exit_code"] == 0
    assert f"of user {held_by_eve}," in said(node) and out(node, f"stat -c '%a %U' {PLACES.lock}") == "600 root"
    # She still holds the lock of the file that is no longer there.
    assert out(node, "systemctl is-active eve") == "active"


@third_tier
def test_a_lock_of_a_user_without_root_stops_no_push(site: Site, nodes: tuple[Node, ...], held_by_eve: str) -> None:
    (node,) = nodes
    out(node, "systemctl stop containerd")
    with began(site) as push:
        _, words = push.communicate(timeout=SECONDS)
    assert push.returncode == 0 and f"of user {held_by_eve}," in words, words


def test_a_server_that_sends_a_byte_now_and_then_is_reported_in_time(site: Site, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    # Three seconds instead of a minute.
    out(node, f"cp -p {PROGRAM} {PLACES.config} /root; sed -i 's/512 << 20, 60.0,/512 << 20, 3.0,/' {PROGRAM}")
    here = site.source.split("/")[2].split(":")[0]
    with dripping(site.folder / "tls.pem", site.folder / "tls.key", b"", b"X", here) as port:
        out(node, f"sed -i 's|{site.source}|https://{here}:{port}|' {PLACES.config}")
        began_at = time.monotonic()
        report = pulled(node)
        assert time.monotonic() - began_at < 30
    out(node, f"cp -p /root/pull.py {PROGRAM}; cp -p /root/agent.json {PLACES.config}")
    assert (codes(report), report["exit_code"]) == (["agent.not-fetched"], 3)
    assert command("gpunode", "agent", "collect", site.inventory).code == 1
    assert pulled(node)["exit_code"] == 0


PRIVATE = f"{PLACES.private}"


HARMS = {
    "an empty module": (f"truncate -s 0 {PLACES.programs}/*/site-packages/pyinfra/__init__.py", 0),
    "both states": (f": > {PRIVATE}/state.json; : > {PRIVATE}/state-copy.json", 3),
    "a full disk": (
        f"mount -t tmpfs -o size=16k full {PLACES.state}; mkdir {PRIVATE}; cp -p /root/private/s*.json {PRIVATE}; "
        f"head -c 1M /dev/zero > {PLACES.state}/file",
        None,
    ),
    # tests/unit/test_agent_pull.py damages the like of these.
    "zeros": (f"head -c 20 /dev/zero > {PRIVATE}/state.json", 0),
    "a folder for the copy": (f"rm {PRIVATE}/state-copy.json; mkdir {PRIVATE}/state-copy.json", 0),
    "brackets": (f"head -c 100000 /dev/zero | tr '\\0' '[' > {PLACES.config}", 0),
    "no configuration": (f"rm {PLACES.config}", 0),
    "no templates": (f"rm -r {PLACES.programs}/*/site-packages/gpunode/templates", 0),
    "a file for a folder": (f"rm -r {PRIVATE}/run; touch {PRIVATE}/run", 0),
    "a folder for the report": (f"rm {PLACES.report}; mkdir -p {PLACES.report}/folder", 0),
    "no ssh-keygen": ("mv /usr/bin/ssh-keygen /root", 3),
    "no keys": (f": > {PLACES.signers}", 3),
}


@pytest.mark.parametrize("name", thinned(HARMS, *list(HARMS)[3:]))
def test_damaged_files_of_its_own_are_repaired_or_reported(site: Site, nodes: tuple[Node, ...], name: str) -> None:
    (node,), (harm, status) = nodes, HARMS[name]
    out(node, f"rm -rf /root/private; cp -a {PRIVATE} {PLACES.config} {PLACES.signers} /root")
    lab_nodes.run(node, harm)
    try:
        out(node, f"systemctl reset-failed {SERVICE}; systemctl start {SERVICE}", SECONDS)
        ended = out(node, f"systemctl show {SERVICE} -p ExecMainStatus --value")
        report = out(node, f"cat {PLACES.report} 2>/dev/null; true")
        assert "Traceback" not in said(node)
        if status is None:
            assert int(ended) and not report
        else:
            assert (int(ended), json.loads(report)["exit_code"]) == (status, status), (report, said(node))
    finally:
        lab_nodes.run(
            node,
            f"umount {PLACES.state}; mv /root/ssh-keygen /usr/bin; rm -rf {PRIVATE} {PLACES.config}; "
            f"cp -a /root/private {PLACES.state}; cp -a /root/agent.json {PLACES.config}; "
            f"cp -a /root/agent-signers {PLACES.signers}",
        )
    assert pulled(node)["exit_code"] == 0


def holder(node: Node) -> str:
    """Return who took the node's lock last."""
    return out(node, f"cat {PLACES.lock}; true")


def said(node: Node) -> str:
    return out(node, f"journalctl -u {SERVICE} -o cat --since -2min; true")


def began(site: Site) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [BINARIES / "pyinfra", "-y", site.inventory, "deploys/gpu_node.py"], cwd=CHECKOUT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )  # fmt: skip


def test_a_node_that_may_be_booted_boots_itself_and_the_next_pull_goes_on(site: Site, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    # ECC changes with a boot, and needs no other driver than the one that comes with the same pull.
    asked = {**ASKED, "driver": {}, "power": {"ecc": False}, "disruption": {"allow": "reboot"}}
    served = replace(site, inventory=inventory_with(other_folder(site.folder / "booting"), {"gpu-1": asked}))
    served.make("--number", "20")
    report = "/var/lib/gpunode/agent/report.json"
    before, told = lab_nodes.booted(node), out(node, f"cat {report}")
    out(node, f"systemctl start --no-block {SERVICE}")
    until(lambda: lab_nodes.booted(node) not in ("", before), seconds=SECONDS)
    until(lambda: lab_nodes.run(node, f"systemctl is-active {TIMER}").returncode == 0, seconds=SECONDS)
    # The pull that the boot ended says nothing: it is told by the one before it, and by the record of what was tried.
    assert out(node, f"cat {report}") == told
    after = lab_nodes.booted(node)
    found = pulled(node)
    assert found["exit_code"] == 0, (found, out(node, "cat /var/lib/gpunode/agent/private/run/log"))
    assert out(node, "nvidia-smi --query-gpu=ecc.mode.current --format=csv,noheader").split() == ["Disabled"] * 2
    assert pulled(node)["exit_code"] == 0 and lab_nodes.booted(node) == after
    # What was tried has helped, so that another boot for the same would be one more try.
    assert out(node, f"ls {RECORD} 2>/dev/null || true") == ""


def test_removed_it_leaves_nothing_but_what_it_brought_about(site: Site, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    run = command("gpunode", "agent", "remove", "--textfile", "/var/lib/node-exporter", site.inventory)
    assert run.code == 0, run.printed
    paths = " ".join((*LEFT, "/var/lib/node-exporter/gpunode_agent.prom", "/etc/gpunode", "/usr/local/lib/gpunode"))
    assert out(node, f"ls -d {paths} 2>/dev/null; true") == ""
    assert out(node, "systemctl list-unit-files 'gpunode-agent*' --no-legend; true") == ""
    assert out(node, "systemctl is-active containerd") == "active"
    assert command("gpunode", "drift", site.inventory).code == 0
    again = command("gpunode", "agent", "remove", site.inventory)
    assert again.code == 0, again.printed
