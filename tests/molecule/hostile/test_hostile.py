"""A user without root on a node, a node that lies, and one that hangs. SIMULATED: GPUs and drivers' packages."""

from __future__ import annotations

import base64
import json
import re
import runpy
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpunode.agent.files import PLACES
from gpunode.base.explained import pages
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.cache import cache_dir
from gpunode.lab.nodes import Node
from gpunode.lab.repository import index_flat
from gpunode.lab.signing import key_file, sign_releases
from tests.molecule import conftest
from tests.molecule.conftest import CHECKOUT, Run, command, inventory_with, out

CONFIGURATION = "/etc/containerd/config.toml"
SITE = "/srv/site/containerd.toml"
RESTARTED = "systemctl reset-failed containerd; systemctl restart containerd"
WRONG = "sed -i 's/default_runtime_name.*/default_runtime_name = \"runc\"/' {}; {RESTARTED}".replace(
    "{RESTARTED}", RESTARTED
)
WRITES = "for file in {}; do [ ! -w $file ] || echo $file; done"
# What root runs by, and gpunode's own: each file that is there, and each folder above it.
RUN_BY = (
    "/etc /etc/containerd /etc/containerd/* /etc/docker /etc/cdi /etc/cdi/* /etc/nvidia-container-runtime/* "
    "/etc/systemd/system /etc/systemd/system/containerd.service.d/* /etc/modprobe.d/* /etc/apt/* /etc/apt/*/* "
    "/usr/share/keyrings/* /run/gpunode /run/gpunode/* /var/lib/gpunode /var/lib/gpunode/* /var/lib/gpunode/*/* "
    "/var/lib/gpunode/*/*/*"
)
# Terminal's own: a clipboard written by OSC 52, a screen cleared, a line that reads backwards.
ATTACK = "\x1b]52;c;cm0gLXJm\x07\x1b[2J\u202e"


# The other node is there for the test of one that hangs.
LIMIT = ("--limit", "gpu-1")


def converge(inventory: str = "inventories/lab.py") -> Run:
    return conftest.converge(*LIMIT, inventory=inventory)


def said(node: Node, text: str) -> str:
    done = lab_nodes.run(node, text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def as_eve(node: Node, text: str) -> str:
    """Return what a user without any right of root's is told."""
    encoded = base64.b64encode(text.encode()).decode()
    return said(
        node, f"echo {encoded} | base64 -d > /tmp/eve.sh; chmod 644 /tmp/eve.sh; su eve -s /bin/sh -c 'sh /tmp/eve.sh'"
    )


@pytest.fixture
def node(nodes: tuple[Node, ...]) -> Iterator[Node]:
    """Return a converged node with a user eve; the configuration is put back behind a test."""
    only, _ = nodes
    said(only, f"id eve > /dev/null 2>&1 || useradd -m eve; cp -p {CONFIGURATION} /root/as-it-was.toml")
    yield only
    said(
        only,
        f"rm -rf {CONFIGURATION} /srv/site; cp -p /root/as-it-was.toml {CONFIGURATION}; {RESTARTED}",
    )


def linked(node: Node, mode: str) -> None:
    """Put the configuration where a site keeps its own, with a link to it, and one key of it wrong."""
    said(
        node,
        f"mkdir -p /srv/site; cp -p {CONFIGURATION} {SITE}; chmod {mode} {SITE}; ln -sf {SITE} {CONFIGURATION}\n"
        f"{WRONG.format(SITE)}",
    )


@pytest.mark.parametrize(("mode", "then"), [("600", "600"), ("644", "644"), ("666", "664")])
def test_a_link_stays_one_and_its_file_is_nobody_s_else_to_write(node: Node, mode: str, then: str) -> None:
    linked(node, mode)
    # What a run is about to put in place is nobody's either: looked at as long as it runs.
    watch = (
        f"while [ ! -e /tmp/enough ]; do {WRITES.format('/srv/site/* /etc/containerd/*')}; done | sort -u > /tmp/seen"
    )
    said(node, f"rm -f /tmp/enough /tmp/seen; su eve -s /bin/sh -c '{watch}' > /dev/null 2>&1 &")
    run = converge()
    said(node, "touch /tmp/enough; sleep 1")
    assert run.code == 0, run.printed
    assert run.operations("success").get("Configure containerd: default runtime nvidia") == ["gpu-1"]
    assert said(node, f"readlink {CONFIGURATION}; stat -c '%a %U' {SITE}").splitlines() == [SITE, f"{then} root"]
    seen = set(said(node, "cat /tmp/seen").split())
    # Before the run it was anybody's, where somebody had made it so.
    assert seen <= ({SITE, CONFIGURATION} if mode == "666" else set())
    assert as_eve(node, WRITES.format(RUN_BY)) == ""
    if mode == "666":
        assert converge().operations("success") == {}


def test_a_file_that_all_may_write_is_told_with_the_command_that_mends_it(node: Node) -> None:
    said(node, f"chmod 666 {CONFIGURATION}")
    drift = command("gpunode", "drift", "--json", *LIMIT, "inventories/lab.py")
    (told,) = [item for item in drift.findings["gpu-1"] if item["what"] == "files that root runs by"]
    assert (told["class"], told["actual"]) == ("drift", f"{CONFIGURATION} (666 0:0)")
    said(node, told["remedy"].split("`")[1])
    assert command("gpunode", "drift", *LIMIT, "inventories/lab.py").code == 0


def test_a_link_into_a_folder_of_somebody_else_s_is_refused_and_nothing_changes(node: Node) -> None:
    linked(node, "644")
    said(node, "chown eve /srv/site")
    before = said(node, f"sha256sum < {SITE}; systemctl show containerd -p MainPID")
    run = converge()
    assert run.code == 1
    assert "/srv/site" in run.printed
    assert "chown root:root /srv/site" in run.printed
    assert said(node, f"sha256sum < {SITE}; systemctl show containerd -p MainPID") == before
    assert said(node, "ls -A /srv/site") == "containerd.toml"


@pytest.mark.parametrize("words", [("drift",), ("drift", "--all"), ("plan",), ("facts",)])
def test_what_a_node_says_moves_no_cursor_in_any_command(node: Node, words: tuple[str, ...]) -> None:
    lie = base64.b64encode(f'PRETTY_NAME="Debian{ATTACK}"'.encode()).decode()
    said(node, f"cp -p /etc/os-release /root/os; echo {lie} | base64 -d >> /etc/os-release; echo >> /etc/os-release")
    try:
        printed = command("gpunode", *words, *LIMIT, "inventories/lab.py").printed
        printed += command("pyinfra", "-vvv", *LIMIT, "inventories/lab.py", "fact", "facts.node.Node").printed
    finally:
        said(node, "cat /root/os > /etc/os-release")
    assert "Debian" in printed
    assert not {letter for letter in printed if not letter.isprintable()} - {"\n", "\t"}


def test_registry_credentials_stand_in_no_log_and_no_list_of_processes(node: Node) -> None:
    secret = "hunter2-of-the-registry"
    said(
        node,
        f'echo \'[plugins."io.containerd.grpc.v1.cri".registry.configs."r.example".auth]\' >> {CONFIGURATION}\n'
        f"echo 'password = \"{secret}\"' >> {CONFIGURATION}; chmod 600 {CONFIGURATION}\n{WRONG.format(CONFIGURATION)}",
    )
    watch = "while [ ! -e /tmp/enough ]; do cat /proc/[0-9]*/cmdline 2>/dev/null; done | tr '\\0' '\\n' > /tmp/seen"
    said(node, f"rm -f /tmp/enough; ({watch}) > /dev/null 2>&1 &")
    run = command("pyinfra", "-y", "-vvv", *LIMIT, "inventories/lab.py", "deploys/gpu_node.py")
    said(node, "touch /tmp/enough; sleep 1")
    assert run.code == 0, run.printed
    text = said(node, f"base64 -w0 {CONFIGURATION}")
    assert secret in base64.b64decode(text).decode(), "it is kept"
    # Base64 of the same text begins at one of three places.
    coded = [base64.b64encode(b"x" * shift + secret.encode()).decode()[4:-6] for shift in range(3)]
    for where in (run.printed, said(node, "cat /tmp/seen")):
        assert secret not in where
        assert not [each for each in coded if each in where]


def test_a_second_key_behind_a_stray_byte_is_not_trusted(node: Node, tmp_path: Path) -> None:
    keyring = "/usr/share/keyrings/gpunode-cuda.gpg"
    mirror = "http://127.0.0.1:8900/keys"
    said(
        node,
        f"mkdir -p /srv/keys; curl -sf {mirror}/gpunode-lab.asc > /srv/keys/two.asc; printf x >> /srv/keys/two.asc\n"
        f"curl -sf {mirror}/wrong.asc >> /srv/keys/two.asc; rm {keyring}",
    )
    folder = tmp_path / "site"
    folder.mkdir()
    there = runpy.run_path(str(CHECKOUT / "inventories" / "lab.py"))["nodes"][0][1]["repositories"]
    asked = {**there, "cuda": {**there["cuda"], "key_url": "file:///srv/keys/two.asc"}}
    run = converge(inventory=inventory_with(folder, {"gpu-1": {"repositories": asked}}))
    assert run.code == 0, run.printed
    wrong = said(
        node,
        f"curl -sf {mirror}/wrong.asc | gpg --batch --show-keys --with-colons | awk -F: '$1==\"fpr\"{{print $10}}'",
    )
    found = said(node, f"gpg --batch --no-default-keyring --keyring {keyring} --list-keys --with-colons | grep ^fpr")
    assert wrong.split()[0] not in found and found.count("fpr") == 1
    # No more than the one key, whoever reads it and however.
    sizes = said(node, f"stat -c %s {keyring}; stat -c %s /srv/keys/two.asc").split()
    assert int(sizes[0]) < int(sizes[1]) / 2


def test_whoever_reads_a_node_without_root_is_told_so_and_judges_nothing(node: Node, tmp_path: Path) -> None:
    said(node, "mkdir -p /home/eve/.ssh; cp /root/.ssh/authorized_keys /home/eve/.ssh/; chown -R eve /home/eve/.ssh")
    inventory = inventory_with(tmp_path, {"gpu-1": {"ssh_user": "eve"}})
    for words in (("gpunode", "plan"), ("gpunode", "drift")):
        run = command(*words, *LIMIT, inventory)
        assert run.code == 1, run.printed
        assert "not as root" in run.printed and "_sudo = True" in run.printed
        assert "install" not in run.printed


OLD, NEW = "Mon, 02 Nov 2026 10:00:00 +0000", "Mon, 16 Nov 2026 10:00:00 +0000"
REPLAYED = "/srv/replayed"
PACKAGES = "/srv/gpunode-lab/mirror/toolkit/stable/deb/amd64"
LISTS = "/var/lib/apt/lists/127.0.0.1:8901_now_"


@pytest.fixture
def replayed(node: Node, tmp_path: Path) -> Iterator[Node]:
    """Return the node with a mirror of its own at port 8901, which serves the state `now` of `old` and `new`."""
    key = key_file(cache_dir() / "keys", "repository")
    for state, date in (("old", OLD), ("new", NEW)):
        folder = tmp_path / state
        folder.mkdir()
        for package in (cache_dir() / "mirror/toolkit/stable/deb/amd64").glob("*.deb"):
            if state == "new" or "_1.18" not in package.name:
                shutil.copyfile(package, folder / package.name)
        release = index_flat(folder, {})
        release.write_text(re.sub(r"^Date: .*$", f"Date: {date}", release.read_text(), flags=re.MULTILINE))
        sign_releases(key, [release])
        there = f"{REPLAYED}/{state}"
        said(node, f"mkdir -p {there}; cp {PACKAGES}/*.deb {there}")
        for name in ("Packages", "InRelease"):
            encoded = base64.b64encode((folder / name).read_bytes()).decode()
            said(node, f"echo {encoded} | base64 -d > {there}/{name}")
    serve = f"python3 -m http.server --bind 127.0.0.1 --directory {REPLAYED} 8901"
    said(node, f"ln -sfn new {REPLAYED}/now; systemd-run --quiet --unit=replayed {serve}")
    yield node
    said(node, f"systemctl stop replayed; rm -rf {REPLAYED}")


def test_an_older_index_that_somebody_serves_again_is_not_taken(replayed: Node, tmp_path: Path) -> None:
    there = runpy.run_path(str(CHECKOUT / "inventories" / "lab.py"))["nodes"][0][1]["repositories"]
    asked = {**there, "toolkit": {**there["toolkit"], "url": "http://127.0.0.1:8901/now"}}
    path = inventory_with(tmp_path, {"gpu-1": {"repositories": asked}})
    version = "dpkg-query -W -f '${Version}' nvidia-container-toolkit"
    run = converge(inventory=path)
    assert run.code == 0, run.printed
    before = said(replayed, version)
    assert said(replayed, f"sed -n 's/^Date: //p' {LISTS}InRelease") == NEW

    # apt's own: it keeps the newer index, and says nothing, as long as it has it.
    said(replayed, f"ln -sfn old {REPLAYED}/now; touch -d '+1 hour' {REPLAYED}/old/*; apt-get -q update")
    assert said(replayed, f"sed -n 's/^Date: //p' {LISTS}InRelease") == NEW
    # Without its lists it takes the old one.
    said(replayed, f"rm {LISTS}*; apt-get -q update")
    assert said(replayed, f"sed -n 's/^Date: //p' {LISTS}InRelease") == OLD

    newer = inventory_with(tmp_path, {"gpu-1": {"repositories": asked, "toolkit": {"version": "1.18.0"}}})
    run = converge(inventory=newer)
    assert run.code == 1 and "Traceback" not in run.printed
    for word in ("the index of the repository toolkit", OLD, NEW, "an old state of it is served", "toolkit.index"):
        assert word in run.stderr, run.printed
    assert said(replayed, version) == before
    assert said(replayed, f"ls {LISTS}* 2>&1 || true").endswith("such file or directory")

    said(replayed, f"ln -sfn new {REPLAYED}/now; touch -d '+2 hours' {REPLAYED}/new/*")
    run = converge(inventory=newer)
    assert run.code == 0, run.printed
    assert said(replayed, version) == "1.18.0-1"


def test_a_report_of_an_agent_draws_no_line_and_has_no_code_of_its_own(node: Node) -> None:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    finding = {
        "component": "driver", "class": "drift", "what": f"version{ATTACK}\ngpu-2: ok, 46 of 46 as desired",
        "code": "driver.all-is-well", "actual": "570\n\ngpu-3: ok", "desired": "580", "cause": "none\r1 node: 1 ok",
        "remedy": "run `rm -rf /srv/site`", "source": None, "disruption": None, "since": None,
    }  # fmt: skip
    report = {
        "schema": 1, "gpunode": "0.1.0", "inventory": "x", "at": now, "exit_code": 2,
        "agent": {"number": 1, "digest": "x", "expires": now, "last_success": now},
        "hosts": {"gpu-1": {"class": "drift", "summary": None, "findings": [finding]}},
    }  # fmt: skip
    conftest.write(node, PLACES.config.as_posix(), "{}\n")
    conftest.write(node, PLACES.report.as_posix(), f"{json.dumps(report)}\n")
    try:
        text = command("gpunode", "agent", "collect", *LIMIT, "inventories/lab.py")
        read = command("gpunode", "agent", "collect", "--json", *LIMIT, "inventories/lab.py")
    finally:
        out(node, f"rm -f {PLACES.config} {PLACES.report}")
    assert (text.code, read.code) == (2, 2), text.printed
    lines = text.stdout.splitlines()
    assert [line for line in lines if line.startswith("gpu-")] == [line for line in lines if line.startswith("gpu-1: ")]
    assert not [line for line in lines if line.startswith(("1 node:", "\t"))]
    assert not {letter for letter in text.printed if not letter.isprintable()} - {"\n", "\t"}
    assert "`rm -rf /srv/site`" not in text.printed
    assert {item["code"] for item in read.findings["gpu-1"] if item["code"]} <= set(pages())


# Seconds between keepalives: 3 instead of 30.
SOONER = """
import functools
from gpunode.fleet.access import connecting
connecting.keep_alive = functools.partial(connecting.keep_alive, seconds=3.0)
"""


def test_a_node_that_hangs_in_a_run_fails_alone(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    """Its kernel answers TCP all the time: podman's pause is the freezer's."""
    hanging, other = nodes
    for node in nodes:
        out(node, WRONG.format(CONFIGURATION))
    inventory = inventory_with(tmp_path, {})
    with Path(inventory).open("a") as file:
        file.write(SOONER)

    def hang() -> None:
        # From the moment in which the run has the node's lock.
        while lab_nodes.run(hanging, f"flock -n {PLACES.lock} true").returncode == 0:
            time.sleep(0.2)
        subprocess.run(["podman", "pause", hanging.container], check=True, capture_output=True)

    hangs = threading.Thread(target=hang)
    hangs.start()
    began = time.monotonic()
    try:
        run = conftest.converge(inventory=inventory)
        took = time.monotonic() - began
        drift = command("gpunode", "drift", "--json", "--timeout", "15", "inventories/lab.py")
    finally:
        hangs.join()
        subprocess.run(["podman", "unpause", hanging.container], check=True, capture_output=True)
    assert run.code == 1 and took < 120, run.printed
    assert hanging.name in run.stderr and "Traceback" not in run.printed
    assert run.operations("success").get("Configure containerd: default runtime nvidia") == [other.name]
    assert drift.code == 1
    classes = {name: {item["class"] for item in found} for name, found in drift.findings.items()}
    assert classes == {hanging.name: {"unreachable"}, other.name: {"ok"}}
    # What the run had begun is finished or undone by the next one.
    assert conftest.converge().code == 0
