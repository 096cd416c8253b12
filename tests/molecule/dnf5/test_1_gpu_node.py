"""A verified node by dnf 5, and the ways in which it strays.

SIMULATED: the distribution, GPUs; dnf 5 and rpm are real.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpunode.lab.nodes import Node
from tests.molecule import verified_node as verified
from tests.molecule.conftest import converge, out
from tests.molecule.deviations.straying import Deviation, assert_healed, rounds, six
from tests.molecule.driver_packages import DNF5, VERSIONLOCK
from tests.molecule.verified_node import drift


def test_the_node_has_dnf_5_and_neither_dnf_4_nor_apt(nodes: tuple[Node, ...]) -> None:
    verified.the_node_has(
        nodes[0], "apt-get dpkg dpkg-query dnf-3", "rpm -q --qf '%{VERSION}' nvidia-open", "580.95.05"
    )
    assert out(nodes[0], "dnf --version").startswith("dnf5 version 5.")


def test_the_verdict_is_good_and_says_that_the_driver_is_held(nodes: tuple[Node, ...]) -> None:
    names = ("nvidia-open", "kmod-nvidia-open-dkms", "libnvidia-ml")
    verified.the_verdict_is_good_and_names_are_held(nodes[0], DNF5.held, names)


def test_every_repository_of_ours_checks_signatures_by_our_key_alone(nodes: tuple[Node, ...]) -> None:
    verified.signatures_are_checked(verified.DNF5, nodes[0], "gpgcheck")


DEVIATIONS = {
    **six("dnf5"),
    "a lock deleted": Deviation("dnf5 -q versionlock delete nvidia-open", "Hold the NVIDIA driver"),
    "a second entry for a repository of ours": verified.a_second_entry(verified.DNF5),
}
ROUNDS = rounds(DEVIATIONS)


@pytest.mark.parametrize("deviations", ROUNDS)
def test_the_next_run_repairs_exactly_that(
    deviations: str, nodes: tuple[Node, ...], start_times: Callable[[Node], str]
) -> None:
    assert_healed(ROUNDS[deviations], nodes[0], converge, drift, start_times)


def test_a_second_entry_for_a_repository_of_ours_is_switched_off(nodes: tuple[Node, ...]) -> None:
    verified.the_second_entry_is_switched_off(verified.DNF5, nodes[0])


def test_a_list_that_dnf_itself_cannot_read_is_named_and_left_as_it_is(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    out(node, f"cp {VERSIONLOCK} /root/kept; echo 'broken [' >> {VERSIONLOCK}; cp {VERSIONLOCK} /root/broken")
    run = converge()
    assert run.code == 1
    assert f"{VERSIONLOCK} cannot be read" in run.printed
    assert "Traceback" not in run.printed
    out(node, f"cmp {VERSIONLOCK} /root/broken && mv /root/kept {VERSIONLOCK}")
    assert drift() == 0
