"""A verified node by zypper, and the ways in which it strays.

SIMULATED: the distribution, GPUs; zypper, libzypp and rpm are real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpunode.lab.nodes import Node
from tests.molecule import verified_node as verified
from tests.molecule.conftest import converge, out
from tests.molecule.deviations.straying import KEYS, Deviation, assert_healed, rounds, six
from tests.molecule.driver_packages import ZYPPER
from tests.molecule.verified_node import TOOLKIT, TRUSTED, drift

# zypper reads this file, and waits for the process whose number is in it.
PID = "/run/zypp.pid"


def test_the_node_has_zypper_and_no_apt(nodes: tuple[Node, ...]) -> None:
    installed = "rpm -q --qf '%{VERSION}' nvidia-open-driver-G06"
    verified.the_node_has(nodes[0], "apt-get dpkg dpkg-query dnf", installed, "580.95.05")


def test_the_verdict_is_good_and_says_that_the_driver_is_held(nodes: tuple[Node, ...]) -> None:
    names = ("nvidia-compute-utils-G06", "nvidia-open-driver-G06", "nvidia-compute-G06", "nvidia-persistenced")
    verified.the_verdict_is_good_and_names_are_held(nodes[0], ZYPPER.held, names)
    # zypper itself says the same.
    locks = out(nodes[0], "zypper -n --no-refresh locks")
    assert all(f"| {name} " in locks for name in names)


def test_every_repository_of_ours_checks_signatures(nodes: tuple[Node, ...]) -> None:
    verified.signatures_are_checked(verified.ZYPPER, nodes[0], "pkg_gpgcheck")


DEVIATIONS = {
    **six("zypper"),
    "a key file opened to everybody": Deviation(f"chmod 666 {KEYS['zypper']}", "Trust the toolkit repository"),
    "a lock deleted": Deviation("zypper -n removelock nvidia-persistenced", "Hold the NVIDIA driver"),
}
ROUNDS = rounds(DEVIATIONS)


@pytest.mark.parametrize("deviations", ROUNDS)
def test_the_next_run_repairs_exactly_that(
    deviations: str, nodes: tuple[Node, ...], start_times: Callable[[Node], str]
) -> None:
    assert_healed(ROUNDS[deviations], nodes[0], converge, drift, start_times)


def test_a_second_entry_and_a_key_that_rpm_has_forgotten_are_mended(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    out(node, f"{verified.a_second_entry(verified.ZYPPER).harm}; rpm -e $(rpm -qa 'gpg-pubkey*')")
    # Of the distribution's own repositories this is none of ours, and they are read no more.
    run = converge()
    assert run.code == 0, run.printed
    assert TRUSTED in run.operations("success")
    assert set(run.operations("success")) <= {TRUSTED, "Trust the toolkit repository"}
    assert "gpg-pubkey" in out(node, "rpm -qa 'gpg-pubkey*'")
    assert converge().operations("success") == {}
    verified.the_second_entry_is_switched_off(verified.ZYPPER, node)


def test_a_key_with_another_fingerprint_is_refused_and_nothing_comes(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    verified.a_key_with_another_fingerprint_is_refused(verified.ZYPPER, nodes[0], tmp_path)


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
    asked = {"url": resigned, "key_fingerprint": fingerprint}
    run = converge(inventory=verified.newer_toolkit(verified.ZYPPER, tmp_path, node, asked))
    assert run.code == 1
    assert "repository toolkit" in run.printed
    assert "signature" in run.printed
    assert out(node, TOOLKIT) == "1.17.8"
    assert "1.18.0" in out(node, "zypper -n --no-refresh search -s nvidia-container-toolkit")


def test_a_proxy_reaches_zypper_by_our_repositories_alone(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    cause = "127.0.0.1 port 1"
    verified.a_proxy_reaches_our_repositories_alone(verified.ZYPPER, nodes[0], tmp_path, cause)


def test_who_holds_zypper_s_lock_is_waited_for_and_then_named(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    out(node, f"systemd-run --quiet --unit=holder sleep 300; systemctl show -p MainPID --value holder > {PID}")
    out(node, "echo ZYPP_LOCK_TIMEOUT=3 >> /etc/environment")
    try:
        run = converge(inventory=verified.newer_toolkit(verified.ZYPPER, tmp_path, node))
        assert run.code == 1
        assert "sleep (process " in run.printed
        assert "zypper's lock" in run.printed
        assert out(node, TOOLKIT) == "1.17.8"
    finally:
        out(node, f"systemctl stop holder; : > {PID}; sed -i /ZYPP_LOCK_TIMEOUT/d /etc/environment")
    healed = converge()
    assert healed.code == 0, healed.printed
