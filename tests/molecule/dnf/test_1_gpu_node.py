"""A verified node by dnf, and the ways in which it strays. SIMULATED: the distribution, GPUs; dnf and rpm are real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lab import nodes as lab_nodes
from lab.nodes import Node
from tests.molecule.conftest import command, converge, inventory_with
from tests.molecule.deviations.straying import KEYS, Deviation, assert_healed, rounds, six

ALL_OFF: dict[str, object] = {name: {"enabled": False} for name in ("driver", "cuda", "containerd")}


def out(node: Node, text: str) -> str:
    done = lab_nodes.run(node, text)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def drift() -> int:
    return command("gpunode", "drift", "--json", "inventories/lab.py").code


def test_the_node_has_dnf_and_no_apt(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    assert lab_nodes.run(node, "command -v apt-get dpkg dpkg-query").stdout == ""
    assert out(node, "rpm -q --qf '%{VERSION}' nvidia-open") == "580.95.05"


def test_the_verdict_is_good_and_says_that_the_driver_is_held(nodes: tuple[Node, ...]) -> None:
    assert drift() == 0
    (node,) = nodes
    locked = {line.rpartition("-3:")[0] for line in out(node, "dnf -q versionlock list").splitlines()}
    assert {"nvidia-open", "kmod-nvidia-open-dkms", "libnvidia-ml"} <= locked


def test_every_repository_of_ours_checks_signatures_by_our_key_alone(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    cuda = out(node, "cat /etc/yum.repos.d/gpunode-cuda.repo").splitlines()
    assert {"gpgcheck=1", "repo_gpgcheck=1", "gpgkey=file:///etc/pki/rpm-gpg/gpunode-cuda.asc"} <= set(cuda)
    # NVIDIA signs the list of these packages, not the packages.
    toolkit = out(node, "cat /etc/yum.repos.d/gpunode-toolkit.repo").splitlines()
    assert {"gpgcheck=0", "repo_gpgcheck=1"} <= set(toolkit)


DEVIATIONS = {
    **six("dnf"),
    "a key file opened to everybody": Deviation(f"chmod 666 {KEYS['dnf']}", "Trust the toolkit repository"),
    "a lock deleted": Deviation("dnf -q versionlock delete nvidia-open", "Hold the NVIDIA driver"),
}
ROUNDS = rounds(DEVIATIONS)


@pytest.mark.parametrize("deviations", ROUNDS)
def test_the_next_run_repairs_exactly_that(
    deviations: str, nodes: tuple[Node, ...], start_times: Callable[[Node], str]
) -> None:
    assert_healed(ROUNDS[deviations], nodes[0], converge, drift, start_times)


def test_without_versionlock_nothing_is_held_and_the_next_run_brings_it_back(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    out(node, "rpm -e python3-dnf-plugin-versionlock")
    assert drift() == 2
    run = converge()
    assert run.code == 0, run.printed
    assert set(run.operations("success")) == {"Install what checks repository keys", "Hold the NVIDIA driver"}
    assert drift() == 0


def test_a_second_entry_for_a_repository_of_ours_is_switched_off(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    path = "/etc/yum.repos.d/cuda-rhel9.repo"
    text = "[cuda-rhel9]\\nname=x\\nbaseurl=http://127.0.0.1:8900/dnf/cuda/rhel9/$basearch/\\nenabled=1\\ngpgcheck=0\\n"
    out(node, f"printf '{text}' > {path}")
    run = converge()
    assert run.code == 0, run.printed
    assert set(run.operations("success")) == {"Trust the cuda repository"}
    assert out(node, f"grep -c '^enabled=0' {path}; cat {path}.gpunode-disabled | grep enabled") == "1\nenabled=1"
    assert converge().operations("success") == {}
    out(node, f"rm {path} {path}.gpunode-disabled")


def test_a_key_with_another_fingerprint_is_refused_and_nothing_comes(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    wrong = {"toolkit": {"key_fingerprint": "A" * 40, "key_url": "http://127.0.0.1:8900/keys/gpunode-lab.asc",
                         "url": "http://127.0.0.1:8900/dnf/toolkit/stable/rpm/x86_64"}}  # fmt: skip
    path = inventory_with(tmp_path, {node.name: {**ALL_OFF, "toolkit": {"version": "1.18.0"}, "repositories": wrong}})
    run = converge(inventory=path)
    assert run.code == 1
    assert f"but {'A' * 40} is pinned" in run.printed
    assert out(node, "rpm -q --qf '%{VERSION}' nvidia-container-toolkit") == "1.17.8"


def test_a_proxy_reaches_dnf_by_our_repositories_alone(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    path = inventory_with(tmp_path, {node.name: {**ALL_OFF, "toolkit": {}, "proxy": {"http": "http://127.0.0.1:1"}}})
    run = converge(inventory=path)
    # Nobody answers there, so that asking at all shows that it was asked.
    assert run.code == 1
    assert "the repository toolkit could not be read or verified" in run.printed
    assert "proxy=http://127.0.0.1:1" in out(node, "cat /etc/yum.repos.d/gpunode-toolkit.repo")
    assert "proxy" not in out(node, "cat /etc/dnf/dnf.conf /etc/yum.repos.d/lab-baseos.repo")
    healed = converge()
    assert healed.code == 0, healed.printed
