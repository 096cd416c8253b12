"""A verified node by zypper, and the ways in which it strays.

SIMULATED: the distribution, GPUs; zypper, libzypp and rpm are real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import nodes as lab_nodes
from lab.nodes import Node
from tests.molecule.conftest import command, converge, inventory_with
from tests.molecule.deviations.straying import KEYS, Deviation, assert_healed, rounds, six

ALL_OFF: dict[str, object] = {name: {"enabled": False} for name in ("driver", "cuda", "containerd")}
SERVED = "http://127.0.0.1:8900"
TOOLKIT = "rpm -q --qf '%{VERSION}' nvidia-container-toolkit"
# zypper reads this file, and waits for the process whose number is in it.
PID = "/run/zypp.pid"


def out(node: Node, text: str) -> str:
    done = lab_nodes.run(node, text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def drift() -> int:
    return command("gpunode", "drift", "--json", "inventories/lab.py").code


def test_the_node_has_zypper_and_no_apt(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    assert lab_nodes.run(node, "command -v apt-get dpkg dpkg-query dnf").stdout == ""
    assert out(node, "rpm -q --qf '%{VERSION}' nvidia-open") == "580.95.05"


def test_the_verdict_is_good_and_says_that_the_driver_is_held(nodes: tuple[Node, ...]) -> None:
    assert drift() == 0
    (node,) = nodes
    locks = out(node, "zypper -n --no-refresh locks")
    for name in ("nvidia-open", "nvidia-open-driver-G06", "nvidia-compute-G06", "nvidia-persistenced"):
        assert f"| {name} " in locks


def test_every_repository_of_ours_checks_signatures(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    cuda = out(node, "cat /etc/zypp/repos.d/gpunode-cuda.repo").splitlines()
    assert {"repo_gpgcheck=1", "pkg_gpgcheck=1", "gpgkey=file:///etc/pki/rpm-gpg/gpunode-cuda.asc"} <= set(cuda)
    # NVIDIA signs the list of these packages, not the packages.
    toolkit = out(node, "cat /etc/zypp/repos.d/gpunode-toolkit.repo").splitlines()
    assert {"repo_gpgcheck=1", "pkg_gpgcheck=0"} <= set(toolkit)


DEVIATIONS = {
    **six("zypper"),
    "a key file opened to everybody": Deviation(f"chmod 666 {KEYS['zypper']}", "Trust the toolkit repository"),
    "a lock deleted": Deviation("zypper -n removelock nvidia-open", "Hold the NVIDIA driver"),
}
ROUNDS = rounds(DEVIATIONS)


@pytest.mark.parametrize("deviations", ROUNDS)
def test_the_next_run_repairs_exactly_that(
    deviations: str, nodes: tuple[Node, ...], start_times: Callable[[Node], str]
) -> None:
    assert_healed(ROUNDS[deviations], nodes[0], converge, drift, start_times)


def test_a_second_entry_and_a_key_that_rpm_has_forgotten_are_mended(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    path = "/etc/zypp/repos.d/cuda-opensuse15.repo"
    text = (
        f"[cuda-opensuse15]\\nname=x\\nbaseurl={SERVED}/zypper/cuda/opensuse15/$basearch/\\nenabled=1\\ngpgcheck=0\\n"
    )
    out(node, f"printf '{text}' > {path}; rpm -e $(rpm -qa 'gpg-pubkey*')")
    # Of the distribution's own repositories this is none of ours, and they are read no more.
    run = converge()
    assert run.code == 0, run.printed
    assert "Trust the cuda repository" in run.operations("success")
    assert set(run.operations("success")) <= {"Trust the cuda repository", "Trust the toolkit repository"}
    assert out(node, f"grep -c '^enabled=0' {path}; cat {path}.gpunode-disabled | grep enabled") == "1\nenabled=1"
    assert "gpg-pubkey" in out(node, "rpm -qa 'gpg-pubkey*'")
    assert converge().operations("success") == {}
    out(node, f"rm {path} {path}.gpunode-disabled")


def asking(tmp_path: Path, node: Node, repository: dict[str, str], **more: object) -> str:
    """Return an inventory that asks for a newer toolkit alone, from another repository."""
    there = {"key_url": f"{SERVED}/keys/gpunode-lab.asc", "url": f"{SERVED}/zypper/toolkit/stable/rpm/x86_64"}
    asked = {"toolkit": {"version": "1.18.0"}, "repositories": {"toolkit": {**there, **repository}}, **more}
    return inventory_with(tmp_path, {node.name: {**ALL_OFF, **asked}})


def test_a_key_with_another_fingerprint_is_refused_and_nothing_comes(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    run = converge(inventory=asking(tmp_path, node, {"key_fingerprint": "A" * 40}))
    assert run.code == 1
    assert f"but {'A' * 40} is pinned" in run.printed
    assert out(node, TOOLKIT) == "1.17.8"


@pytest.fixture
def resigned(nodes: tuple[Node, ...]) -> Iterator[str]:
    """Serve the toolkit's repository on the node, signed by a key of which rpm's database has been told."""
    (node,) = nodes
    out(
        node,
        """
        cp -r /srv/gpunode-lab/mirror/zypper/toolkit /root/other && cd /root/other/stable/rpm/x86_64/repodata
        export GNUPGHOME=/root/other-keys; mkdir -m 700 "$GNUPGHOME"
        gpg --batch --quiet --passphrase '' --quick-generate-key 'somebody else <else@gpunode.invalid>' rsa2048 2>&1
        gpg --armor --export > repomd.xml.key; rpm --import repomd.xml.key; rm repomd.xml.asc
        gpg --batch --armor --detach-sign --output repomd.xml.asc repomd.xml; gpgconf --kill all
        systemd-run --quiet --unit=other python3 -m http.server 8902 --bind 127.0.0.1 --directory /root/other""",
    )
    yield "http://127.0.0.1:8902/stable/rpm/x86_64"
    out(node, "systemctl stop other; rm -rf /root/other /root/other-keys; rpm -e $(rpm -qa 'gpg-pubkey*')")
    assert converge().code == 0


def test_a_repository_that_another_trusted_key_signed_is_refused_though_zypper_takes_it(
    resigned: str, nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    shown = out(node, f"gpg --batch --show-keys --with-colons {KEYS['zypper']}")
    fingerprint = next(line.split(":")[9] for line in shown.splitlines() if line.startswith("fpr:"))
    run = converge(inventory=asking(tmp_path, node, {"url": resigned, "key_fingerprint": fingerprint}))
    assert run.code == 1
    assert "signed by another key than the pinned one: the repository toolkit" in run.printed
    assert "cause: the signature of a repository is refused" in run.printed
    assert out(node, TOOLKIT) == "1.17.8"
    assert "1.18.0" in out(node, "zypper -n --no-refresh search -s nvidia-container-toolkit")


def test_a_proxy_reaches_zypper_by_our_repositories_alone(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    path = inventory_with(tmp_path, {node.name: {**ALL_OFF, "toolkit": {}, "proxy": {"http": "http://127.0.0.1:1"}}})
    run = converge(inventory=path)
    # Nobody answers there, so that asking at all shows that it was asked.
    assert run.code == 1
    assert "the repository toolkit could not be read or verified" in run.printed
    assert "gpunode: cause: a repository cannot be reached from the node" in run.printed
    assert "?proxy=127.0.0.1&proxyport=1" in out(node, "cat /etc/zypp/repos.d/gpunode-toolkit.repo")
    assert "proxy" not in out(node, "cat /etc/zypp/repos.d/lab-oss.repo")
    healed = converge()
    assert healed.code == 0, healed.printed


def test_who_holds_zypper_s_lock_is_waited_for_and_then_named(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    out(node, f"systemd-run --quiet --unit=holder sleep 300; systemctl show -p MainPID --value holder > {PID}")
    out(node, "echo ZYPP_LOCK_TIMEOUT=3 >> /etc/environment")
    try:
        path = inventory_with(tmp_path, {node.name: {**ALL_OFF, "toolkit": {"version": "1.18.0"}}})
        run = converge(inventory=path)
        assert run.code == 1
        assert "sleep (process " in run.printed
        assert "holds zypper's lock, and did not let go of it in time" in run.printed
        assert out(node, TOOLKIT) == "1.17.8"
    finally:
        out(node, f"systemctl stop holder; : > {PID}; sed -i /ZYPP_LOCK_TIMEOUT/d /etc/environment")
    healed = converge()
    assert healed.code == 0, healed.printed
