"""A verified node by pacman, and the ways in which it strays. SIMULATED: the distribution, GPUs; pacman is real."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule import verified_node as verified
from tests.molecule.conftest import command, converge, inventory_with, out
from tests.molecule.deviations.straying import Deviation, assert_healed, rounds
from tests.molecule.driver_packages import IGNORED, PACMAN
from tests.molecule.verified_node import drift

CONFIGURATION = "/etc/pacman.conf"
LOCK = "/var/lib/pacman/db.lck"
SEPTEMBER = "http://127.0.0.1:8900/pacman/2025-09/extra/os/x86_64"


def test_the_node_has_pacman_and_no_apt_and_its_own_lists_stay_as_they_were(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    driver = "nvidia-open 580.95.05-14\nnvidia-utils 580.95.05-1"
    verified.the_node_has(node, "apt-get dpkg rpm", "pacman -Q nvidia-open nvidia-utils", driver)
    assert lab_nodes.run(node, "ls /var/lib/pacman/sync").stdout == ""


def test_the_verdict_is_good_and_says_that_driver_and_kernel_are_held(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    held = ["linux", "linux-lts", "nvidia-open", "nvidia-utils"]
    verified.the_verdict_is_good_and_names_are_held(node, PACMAN.held, held)
    assert PACMAN.names_held(node) == held
    assert out(node, f"grep -c gpunode {CONFIGURATION}") == "1"


def test_cuda_is_arch_s_own_and_the_usual_link_and_path_lead_to_it(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    assert out(node, "readlink -f /usr/local/cuda") == "/opt/cuda"
    assert out(node, "pacman -Qoq /etc/profile.d/cuda.sh") == "cuda"
    assert out(node, ". /etc/profile.d/cuda.sh; . /etc/profile.d/gpunode-cuda.sh; command -v nvcc").endswith(
        "/bin/nvcc"
    )


DEVIATIONS = {
    "a package downgraded": Deviation(
        f"pacman -U --noconfirm {SEPTEMBER}/nvidia-container-toolkit-1.16.2-1-x86_64.pkg.tar.zst "
        f"{SEPTEMBER}/libnvidia-container-1.16.2-1-x86_64.pkg.tar.zst",
        "Install NVIDIA container toolkit 1.17.8",
    ),
    "the configuration edited by hand": Deviation(
        'sed -i \'s/default_runtime_name = "nvidia"/default_runtime_name = "runc"/\' /etc/containerd/config.toml; '
        "systemctl restart containerd",
        "Configure containerd: default runtime nvidia",
        "containerd.service",
    ),
    "the profile script removed": Deviation("rm /etc/profile.d/gpunode-cuda.sh", "Put CUDA on the PATH"),
    "the modules unloaded": Deviation("rmmod nvidia_uvm; rmmod nvidia", "Load the NVIDIA kernel module"),
    "the service stopped": Deviation(
        "systemctl stop containerd", "Run containerd, now and at boot", "containerd.service"
    ),
    "a hold taken away": Deviation(f"sed -i /nvidia-open/d {IGNORED}", "Hold the NVIDIA driver"),
    "the line that reads the holds taken away": Deviation(
        f"sed -i '\\|{IGNORED}|d' {CONFIGURATION}", "Hold the NVIDIA driver"
    ),
}


ROUNDS = rounds(DEVIATIONS)


@pytest.mark.parametrize("deviations", ROUNDS)
def test_the_next_run_repairs_exactly_that(
    deviations: str, nodes: tuple[Node, ...], start_times: Callable[[Node], str]
) -> None:
    assert_healed(ROUNDS[deviations], nodes[0], converge, drift, start_times)


@pytest.mark.parametrize("level", ["Never", "Optional TrustAll"])
def test_a_repository_that_takes_unsigned_packages_is_refused(level: str, nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    more = f"[loose]\\nSigLevel = {level}\\nServer = file:///srv\\n"
    out(node, f"cp {CONFIGURATION} /root/kept; printf '{more}' >> {CONFIGURATION}")
    try:
        run = converge()
        assert run.code == 1
        assert "[loose]" in run.printed
        assert "Refuse this node" in run.printed
    finally:
        out(node, f"mv /root/kept {CONFIGURATION}")


def test_an_altered_package_is_not_installed(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    # What pacman has in its cache it checks like what it fetches, and fetches it anew.
    out(node, "pacman -R --noconfirm nvidia-container-toolkit; "
              "echo x >> /var/cache/pacman/pkg/nvidia-container-toolkit-1.17.8-1-x86_64.pkg.tar.zst")  # fmt: skip
    refused = converge()
    assert refused.code == 1
    assert "corrupted package" in refused.printed
    out(node, "rm -f /var/cache/pacman/pkg/nvidia-container-toolkit-1.17.8-1-x86_64.pkg.tar.zst")
    assert converge().code == 0


def test_a_lock_that_was_left_behind_is_named_and_taken_away(nodes: tuple[Node, ...]) -> None:
    (node,) = nodes
    out(node, f"touch {LOCK}; rm /etc/profile.d/gpunode-cuda.sh")
    run = converge()
    assert run.code == 0, run.printed
    assert "pacman that is gone" in run.printed
    assert lab_nodes.run(node, f"test -e {LOCK}").returncode == 1


def test_a_plan_needs_no_node(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    path = inventory_with(tmp_path, {node.name: {"driver": {"branch": "590", "allow_branch_change": True}}})
    told = json.loads(command("gpunode", "plan", "--json", path).stdout)
    (step,) = [item for item in json.dumps(told).split('"action": "')[1:] if item.startswith("change to driver 590")]
    assert "nvidia-open 590" in step
    assert "nvidia-utils 590" in step
