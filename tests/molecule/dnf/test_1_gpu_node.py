"""A verified node by dnf, and the ways in which it strays. SIMULATED: the distribution, GPUs; dnf and rpm are real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpunode.lab.nodes import Node
from tests.molecule import verified_node as verified
from tests.molecule.conftest import converge, out
from tests.molecule.deviations.straying import KEYS, Deviation, assert_healed, rounds, six
from tests.molecule.driver_packages import DNF
from tests.molecule.verified_node import drift


def test_the_node_has_dnf_and_no_apt(nodes: tuple[Node, ...]) -> None:
    verified.the_node_has(nodes[0], "apt-get dpkg dpkg-query", "rpm -q --qf '%{VERSION}' nvidia-open", "580.95.05")


def test_the_verdict_is_good_and_says_that_the_driver_is_held(nodes: tuple[Node, ...]) -> None:
    names = ("nvidia-open", "kmod-nvidia-open-dkms", "libnvidia-ml")
    verified.the_verdict_is_good_and_names_are_held(nodes[0], DNF.held, names)


def test_every_repository_of_ours_checks_signatures_by_our_key_alone(nodes: tuple[Node, ...]) -> None:
    verified.signatures_are_checked(verified.DNF, nodes[0], "gpgcheck")


DEVIATIONS = {
    **six("dnf"),
    "a key file opened to everybody": Deviation(f"chmod 666 {KEYS['dnf']}", "Trust the toolkit repository"),
    "a lock deleted": Deviation("dnf -q versionlock delete nvidia-open", "Hold the NVIDIA driver"),
    "a second entry for a repository of ours": verified.a_second_entry(verified.DNF),
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
    verified.the_second_entry_is_switched_off(verified.DNF, nodes[0])


def test_a_key_with_another_fingerprint_is_refused_and_nothing_comes(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    verified.a_key_with_another_fingerprint_is_refused(verified.DNF, nodes[0], tmp_path)


def test_a_proxy_reaches_dnf_by_our_repositories_alone(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    verified.a_proxy_reaches_our_repositories_alone(verified.DNF, nodes[0], tmp_path)
