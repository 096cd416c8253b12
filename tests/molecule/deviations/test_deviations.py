"""A node strays in one way: the next run repairs exactly that, and nothing else. SIMULATED: GPUs, their faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from lab import nodes as lab_nodes
from lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, command, converge, inventory_with
from tests.molecule.deviations.straying import CONFIG, KEYS, TOOLKIT, Deviation, assert_healed, six

LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so"
DEVIATIONS = {
    **six("apt"),
    "one of the toolkit's libraries upgraded alone": Deviation(
        "apt-get install -q -y libnvidia-container1=1.18.0-1", "Install NVIDIA container toolkit 1.17.8"
    ),
    # The daemon was not restarted by that hand: what it runs by is what is asked, and it is left running.
    "the configuration edited by hand, and not taken up": Deviation(
        f'sed -i \'s/default_runtime_name = "nvidia"/default_runtime_name = "runc"  # by hand/\' {CONFIG}',
        "Configure containerd: default runtime nvidia",
    ),
    "a key file opened to everybody": Deviation(f"chmod 666 {KEYS['apt']}", "Trust the toolkit repository"),
    "a key file given away": Deviation(f"chown operator {KEYS['apt']}", "Trust the toolkit repository"),
    "nvidia_uvm alone unloaded": Deviation("rmmod nvidia_uvm", "Load the NVIDIA kernel module"),
}


def drift(inventory: str = "inventories/lab.py") -> int:
    return command("gpunode", "drift", "--json", inventory).code


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_the_next_run_repairs_exactly_that(
    deviation: str, nodes: tuple[Node, ...], start_times: Callable[[Node], str]
) -> None:
    assert_healed([DEVIATIONS[deviation]], nodes[0], converge, drift, start_times)


def test_a_hand_s_comment_survives_the_repair_of_its_line(nodes: tuple[Node, ...]) -> None:
    text = lab_nodes.run(nodes[0], f"cat {CONFIG}").stdout
    assert 'default_runtime_name = "nvidia"  # by hand' in text


@pytest.fixture
def any_toolkit(tmp_path: Path, nodes: tuple[Node, ...]) -> Iterator[str]:
    """Return an inventory that asks for no version of the toolkit; at the end the lab's own is there again."""
    # pyinfra names a group after the inventory's file: the same name, the same settings.
    path = Path(inventory_with(tmp_path, {nodes[0].name: {"toolkit": {}}})).rename(tmp_path / "lab.py")
    (tmp_path / "group_data").symlink_to(CHECKOUT / "inventories" / "group_data")
    yield str(path)
    assert converge().code == 0


def test_the_toolkit_s_packages_come_together_at_the_newest_that_is_there(
    any_toolkit: str, nodes: tuple[Node, ...]
) -> None:
    (node,) = nodes
    # 1.18.0 is in the repository: nothing but what strayed decides on the version.
    harm = "apt-get install -q -y --allow-downgrades libnvidia-container1=1.16.2-1 libnvidia-container-tools=1.16.2-1"
    done = lab_nodes.run(node, f"dpkg --purge --force-depends nvidia-container-toolkit; {harm}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert drift(any_toolkit) == 2
    run = converge(inventory=any_toolkit)
    assert run.code == 0, run.printed
    assert set(run.operations("success")) == {"Install NVIDIA container toolkit", "Record what was applied"}
    shown = lab_nodes.run(node, f"dpkg-query -W -f '${{Version}} ' {TOOLKIT}").stdout
    assert shown.split() == ["1.17.8-1"] * 4
    assert drift(any_toolkit) == 0
    assert converge(inventory=any_toolkit).operations("success") == {}


@dataclass(frozen=True)
class Fault:
    """Hold a fault of hardware or driver: a simulated one or shell text, what mends it, and the findings it makes."""

    findings: dict[str, str]
    exit_code: int
    cause: str
    simulated: dict[str, object] | None = None
    harm: str = ":"
    mend: str = ":"


FAULTS = {
    "a wedged GPU": Fault(
        {"GPUs by nvidia-smi": "error"}, 1, "nvidia-smi gives no answer: a GPU is wedged", {"hang": True}
    ),
    "a lost GPU": Fault({"GPUs by nvidia-smi": "error"}, 1, "a GPU fell off the bus", {"lost_gpu": 1}),
    "a library of another version than the module": Fault(
        {"library": "drift", "GPUs by nvidia-smi": "drift"}, 2, "the library is not of the loaded module's version",
        harm=f"touch {LIBRARY}.570.172.08 && ln -sf libnvidia-ml.so.570.172.08 {LIBRARY}.1",
        mend=f"ln -sf libnvidia-ml.so.580.95.05 {LIBRARY}.1 && rm -f {LIBRARY}.570.172.08",
    ),
}  # fmt: skip


@pytest.fixture
def faulty(request: pytest.FixtureRequest, nodes: tuple[Node, ...]) -> Iterator[Fault]:
    """Put a fault on the node, and take it away."""
    (node,) = nodes
    fault = FAULTS[request.param]
    lab_nodes.set_fault(node, **(fault.simulated or {}))
    done = lab_nodes.run(node, fault.harm)
    assert done.returncode == 0, done.stderr
    yield fault
    lab_nodes.clear_faults(node)
    assert lab_nodes.run(node, fault.mend).returncode == 0
    assert drift() == 0


@pytest.mark.parametrize("faulty", FAULTS, indirect=True)
def test_a_fault_that_no_run_can_mend_is_named_with_its_class_and_fails_the_run(
    faulty: Fault, nodes: tuple[Node, ...]
) -> None:
    (node,) = nodes
    found = command("gpunode", "drift", "--json", "inventories/lab.py")
    assert found.code == faulty.exit_code, found.printed
    bad = [item for item in found.findings[node.name] if item["class"] != "ok"]
    assert {item["what"]: item["class"] for item in bad} == faulty.findings
    assert faulty.cause in {item["cause"] for item in bad}
    run = converge()
    assert run.code == 1
    assert "Traceback" not in run.printed
    # pyinfra prints no JSON once no host is left.
    assert any(f"[{node.name}]" in line and faulty.cause in line for line in run.stderr.splitlines()), run.printed
    started = [line for line in run.stderr.splitlines() if "Starting operation" in line]
    assert "Verify the node" in started[-1], run.printed
    assert f"[{node.name}] No changes" in run.stderr and f"[{node.name}] Success" not in run.stderr, run.printed


def test_a_reboot_is_no_deviation(nodes: tuple[Node, ...]) -> None:
    lab_nodes.reboot(nodes[0])
    assert drift() == 0
    assert converge().operations("success") == {}
