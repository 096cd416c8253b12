"""What no run can mend is named; a reboot is no deviation. SIMULATED: GPUs, their faults. Of the nodes, the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpunode.components.runtimes.toolkit.configuration import PATH as CONFIGURATION
from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, LAB, command, converge, inventory_with
from tests.molecule.deviations.straying import TOOLKIT

LIBRARY, CUDA, OTHER_CUDA = (
    f"/usr/lib/x86_64-linux-gnu/{name}" for name in ("libnvidia-ml.so", "libcuda.so.1", "libcuda.so.570.172.08")
)


def only_first(folder: Path, more: dict[str, object]) -> str:
    """Return an inventory of the first node, with the lab's settings and `more`."""
    # pyinfra names a group after the inventory's file: the same name, the same settings.
    path = Path(inventory_with(folder, {"gpu-1": more})).rename(folder / "lab.py")
    path.write_text(f"{path.read_text()}nodes = nodes[:1]\n")
    (folder / "group_data").symlink_to(CHECKOUT / "inventories" / "group_data")
    return str(path)


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an inventory of the first node, which is converged."""
    path = only_first(tmp_path_factory.mktemp("first"), {})
    run = converge(inventory=path)
    assert run.code == 0, run.printed
    return path


@pytest.fixture
def node() -> Node:
    """Return the first node."""
    return lab_nodes.node(LAB, "gpu-1")


def drift(inventory: str) -> int:
    return command("gpunode", "drift", "--json", inventory).code


@pytest.fixture
def any_toolkit(tmp_path: Path, inventory: str) -> Iterator[str]:
    """Return an inventory that asks for no version of the toolkit; at the end the lab's own is there again."""
    yield only_first(tmp_path, {"toolkit": {}})
    assert converge(inventory=inventory).code == 0


def test_the_toolkit_s_packages_come_together_at_the_newest_that_is_there(any_toolkit: str, node: Node) -> None:
    # 1.20.0 is in the repository: nothing but what strayed decides on the version.
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
        harm=f"echo x > {LIBRARY}.570.172.08 && ln -sf libnvidia-ml.so.570.172.08 {LIBRARY}.1",
        mend=f"ln -sf libnvidia-ml.so.580.95.05 {LIBRARY}.1 && rm -f {LIBRARY}.570.172.08",
    ),
    "what every CUDA program, and every container, fails by": Fault(
        {"libcuda": "drift", "config.toml nvidia-container-runtime.debug": "drift"}, 2,
        "by this value no container starts, or none gets a GPU",
        harm=f"echo x > {OTHER_CUDA} && ln -sf {OTHER_CUDA} {CUDA} && "
        f"sed -i.kept 's/^mode = .*/debug = 1/' {CONFIGURATION}",
        mend=f"ln -sf libcuda.so.580.95.05 {CUDA} && rm {OTHER_CUDA} && mv {CONFIGURATION}.kept {CONFIGURATION}",
    ),
    "what no setting names": Fault(
        dict.fromkeys(("compute mode of GPU 1", "sources of packages", "files that root runs by"), "drift"), 2,
        "in the mode Prohibited the GPU refuses every program",
        harm="nvidia-smi -i 1 -c PROHIBITED; echo x > /etc/apt/sources.list.d/x.list; chmod 777 /etc/cron.daily",
        mend="nvidia-smi -i 1 -c DEFAULT; rm /etc/apt/sources.list.d/x.list; chmod 755 /etc/cron.daily",
    ),
}  # fmt: skip


@pytest.fixture
def faulty(request: pytest.FixtureRequest, node: Node, inventory: str) -> Iterator[Fault]:
    """Put a fault on the node, and take it away."""
    fault = FAULTS[request.param]
    lab_nodes.set_fault(node, **(fault.simulated or {}))
    done = lab_nodes.run(node, fault.harm)
    assert done.returncode == 0, done.stderr
    yield fault
    lab_nodes.clear_faults(node)
    assert lab_nodes.run(node, fault.mend).returncode == 0
    assert drift(inventory) == 0


@pytest.mark.parametrize("faulty", FAULTS, indirect=True)
def test_a_fault_that_no_run_can_mend_is_named_with_its_class_and_fails_the_run(
    faulty: Fault, node: Node, inventory: str
) -> None:
    found = command("gpunode", "drift", "--json", inventory)
    assert found.code == faulty.exit_code, found.printed
    bad = [item for item in found.findings[node.name] if item["class"] != "ok"]
    assert {item["what"]: item["class"] for item in bad} == faulty.findings
    assert faulty.cause in {item["cause"] for item in bad}
    run = converge(inventory=inventory)
    assert run.code == 1
    assert "Traceback" not in run.printed
    # pyinfra prints no JSON once no host is left.
    assert any(f"[{node.name}]" in line and faulty.cause in line for line in run.stderr.splitlines()), run.printed
    started = [line for line in run.stderr.splitlines() if "Starting operation" in line]
    assert "Verify the node" in started[-1], run.printed
    assert f"[{node.name}] No changes" in run.stderr and f"[{node.name}] Success" not in run.stderr, run.printed


def test_libraries_that_are_lost_come_back_with_their_packages_as_the_plan_says(node: Node, inventory: str) -> None:
    """One was deleted; the other is empty, as a power cut leaves a file."""
    done = lab_nodes.run(node, f"rm {CUDA} && truncate -s 0 {LIBRARY}.580.95.05")
    assert done.returncode == 0, done.stderr
    plan = command("gpunode", "plan", "--json", inventory)
    assert plan.payload["hosts"][node.name]["verdict"] == "can be done", plan.printed
    run = converge(inventory=inventory)
    assert run.code == 0 and list(run.operations("success")) == ["Install NVIDIA driver 580.95.05 (open)"], run.printed
    assert drift(inventory) == 0


def test_a_reboot_is_no_deviation(node: Node, inventory: str) -> None:
    lab_nodes.reboot(node)
    assert drift(inventory) == 0
    assert converge(inventory=inventory).operations("success") == {}
