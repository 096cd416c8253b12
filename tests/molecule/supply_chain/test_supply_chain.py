"""What a node trusts beside gpunode's own sources is found, disabled and kept. SIMULATED: GPUs, and the retired key.

The lab's other key (keys/wrong.asc) stands in for NVIDIA's retired one: the inventory adds its id to the table.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, command, converge, inventory_with

MIRROR = "http://127.0.0.1:8900"
LIST = "/etc/apt/sources.list.d/cuda-debian12-x86_64.list"
MIXED = "/etc/apt/sources.list.d/site.list"
TRUSTED = "/etc/apt/trusted.gpg.d"
SUFFIX = ".gpunode-disabled"
FINGERPRINTS = "gpg --batch --show-keys --with-colons {} | awk -F: '$1==\"fpr\"{{print $10}}'"

HARM = f"""
set -eu
mkdir -p /srv/site; : > /srv/site/Packages
curl -sf {MIRROR}/keys/wrong.asc -o /tmp/wrong.asc
curl -sf {MIRROR}/keys/gpunode-lab.asc -o /tmp/good.asc
cp /tmp/wrong.asc {TRUSTED}/7fa2af80.asc
cat /tmp/wrong.asc /tmp/good.asc | gpg --batch --dearmor > /etc/apt/trusted.gpg
echo 'deb {MIRROR}/cuda/debian12/x86_64/ /' > {LIST}
printf '%s\\n' '# the site' 'deb [trusted=yes] file:/srv/site ./' 'deb {MIRROR}/cuda/debian12/x86_64 /' > {MIXED}
"""


def _said(node: Node, text: str) -> str:
    done = lab_nodes.run(node, text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture
def inventory(tmp_path: Path, nodes: tuple[Node, ...]) -> str:
    """Return an inventory in whose table of retired keys the lab's other key stands."""
    (node,) = nodes
    retired = _said(node, f"curl -sf {MIRROR}/keys/wrong.asc > /tmp/k; {FINGERPRINTS.format('/tmp/k')} | tail -c 17")
    # pyinfra names a group after the inventory's file: the same name, the same settings.
    path = Path(inventory_with(tmp_path, {})).rename(tmp_path / "lab.py")
    (tmp_path / "group_data").symlink_to(CHECKOUT / "inventories" / "group_data")
    patch = (
        "import dataclasses\nfrom gpunode.base import tables\n_drivers = tables.drivers()\n"
        f"tables.drivers = lambda: dataclasses.replace(_drivers, retired_key_ids=({retired!r},))\n"
    )
    path.write_text(patch + path.read_text())
    return str(path)


def test_retired_keys_and_second_entries_are_disabled_and_nothing_is_lost(
    nodes: tuple[Node, ...], inventory: str
) -> None:
    (node,) = nodes
    _said(node, HARM)
    good = _said(node, FINGERPRINTS.format("/tmp/good.asc"))
    wrong = _said(node, FINGERPRINTS.format("/tmp/wrong.asc"))
    before = _said(node, f"cat {LIST} {MIXED}; sha256sum < /etc/apt/trusted.gpg")
    # The very harm: apt refuses two entries with different Signed-By, for every package.
    assert lab_nodes.run(node, "apt-get -q update").returncode != 0

    run = converge(inventory=inventory)
    assert run.code == 0, run.printed
    assert set(run.operations("success")) == {"Trust the cuda repository"}
    assert f"{LIST}: names 127.0.0.1:8900/cuda/debian12/x86_64 a second time" in run.printed
    assert f"{TRUSTED}/7fa2af80.asc: trusts {wrong} for every repository" in run.printed

    assert lab_nodes.run(node, f"test -e {LIST} || test -e {TRUSTED}/7fa2af80.asc").returncode != 0
    assert _said(node, FINGERPRINTS.format("/etc/apt/trusted.gpg")) == good
    assert _said(node, f"grep -v ^# {MIXED}") == "deb [trusted=yes] file:/srv/site ./"
    kept = _said(node, f"cat {LIST}{SUFFIX} {MIXED}{SUFFIX}; sha256sum < /etc/apt/trusted.gpg{SUFFIX}")
    assert kept == before
    _said(node, f"test -s {TRUSTED}/7fa2af80.asc{SUFFIX}")

    _said(node, f"rm {MIXED}; apt-get -q -o APT::Update::Error-Mode=any update")
    again = converge(inventory=inventory)
    assert again.operations("success") == {}, again.printed
    # gpunode's own key is world-trusted still, by somebody else's doing: said, not changed.
    assert "caution: /etc/apt/trusted.gpg" in again.printed


def test_a_password_in_a_proxy_reaches_no_output(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    inventory = inventory_with(tmp_path, {node.name: {"proxy": {"http": "http://me:hunter2@127.0.0.1:3128"}}})
    for arguments in (
        ("pyinfra", "-y", "--json", inventory, "deploys/gpu_node.py"),
        ("pyinfra", "-y", "-vvv", inventory, "deploys/gpu_node.py"),
        ("pyinfra", "--json", inventory, "debug-inventory"),
        ("pyinfra", "-y", "--debug-operations", inventory, "deploys/gpu_node.py"),
        ("gpunode", "drift", "--json", inventory),
        ("gpunode", "check", "--json", inventory),
    ):
        run = command(*arguments)
        assert run.code != 0
        assert "docs/security.md" in run.printed, run.printed
        assert "hunter2" not in run.printed
    log = CHECKOUT / "pyinfra-debug.log"
    assert not log.exists() or "hunter2" not in log.read_text(encoding="utf-8")
