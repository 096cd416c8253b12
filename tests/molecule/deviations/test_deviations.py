"""A node strays in one way: the next run repairs exactly that, and nothing else. SIMULATED: the GPUs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lab import nodes as lab_nodes
from lab.nodes import Node
from tests.molecule.conftest import command, converge

CONFIG = "/etc/containerd/config.toml"
KEYRING = "/usr/share/keyrings/gpunode-toolkit.gpg"
TOOLKIT = "nvidia-container-toolkit nvidia-container-toolkit-base libnvidia-container-tools libnvidia-container1"

# What strays, how, and the operations that bring it back.
DEVIATIONS = {
    "a package downgraded": (
        "apt-get install -q -y --allow-downgrades " + " ".join(f"{name}=1.16.2-1" for name in TOOLKIT.split()),
        {"Install NVIDIA container toolkit 1.17.8"},
    ),
    "the configuration edited by hand": (
        f'sed -i \'s/default_runtime_name = "nvidia"/default_runtime_name = "runc"  # by hand/\' {CONFIG}',
        {"Configure containerd: default runtime nvidia"},
    ),
    "the profile script removed": ("rm /etc/profile.d/cuda.sh", {"Put CUDA on the PATH"}),
    "a key file replaced": (
        f"curl -sf http://127.0.0.1:8900/keys/wrong.asc | gpg --batch --yes --dearmor -o {KEYRING}",
        {"Trust the toolkit repository"},
    ),
    "the module unloaded": ("rmmod nvidia_uvm; rmmod nvidia", {"Load the NVIDIA kernel module"}),
    "the service stopped": ("systemctl stop containerd", {"Run containerd, now and at boot"}),
}


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_the_next_run_repairs_exactly_that(
    deviation: str, nodes: tuple[Node, ...], start_times: Callable[[Node], str]
) -> None:
    (node,) = nodes
    harm, repairs = DEVIATIONS[deviation]
    done = lab_nodes.run(node, harm)
    assert done.returncode == 0, done.stdout + done.stderr
    strayed = command("gpunode", "drift", "--json", "inventories/lab.py")
    assert strayed.code == 2, strayed.printed
    run = converge()
    assert run.code == 0, run.printed
    assert set(run.operations("success")) == repairs
    assert run.operations("error") == {}
    assert command("gpunode", "drift", "--json", "inventories/lab.py").code == 0
    settled = start_times(node)
    again = converge()
    assert again.operations("success") == {}, again.printed
    assert start_times(node) == settled


def test_a_hand_s_comment_survives_the_repair_of_its_line(nodes: tuple[Node, ...]) -> None:
    text = lab_nodes.run(nodes[0], f"cat {CONFIG}").stdout
    assert 'default_runtime_name = "nvidia"  # by hand' in text
