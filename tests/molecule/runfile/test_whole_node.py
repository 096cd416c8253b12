"""A whole node whose driver and CUDA came by .run files: converged, healed of the six deviations, CUDA side by side.

SIMULATED: GPUs, the .run files and what is in them, the container toolkit; containerd, apt and systemd are real.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import Run, command, inventory_with, out
from tests.molecule.deviations.straying import assert_healed, rounds, six
from tests.molecule.runfile.runfile_nodes import MIRROR, URL, seen, with_tools

CUDA_URL = f"{MIRROR}/cuda/{{release}}/local_installers/cuda_{{release}}_{{driver}}_{{platform}}.run"


@pytest.fixture(scope="module")
def node() -> Node:
    """Return a fresh node."""
    return with_tools("gpu-1")


def digest(node: Node, path: str) -> str:
    return out(node, f"sha256sum /srv/gpunode-lab/mirror/runfiles/{path}").split()[0]


def cuda(node: Node, release: str, driver: str) -> dict[str, object]:
    path = f"cuda/{release}/local_installers/cuda_{release}_{driver}_linux.run"
    version = release.rpartition(".")[0]
    return {
        "source": "runfile", "version": version, "release": release, "runfile_url": CUDA_URL,
        "runfile_sha256": digest(node, path),
    }  # fmt: skip


class Whole:
    """Ask for a whole node, its CUDA as given."""

    def __init__(self, node: Node, folder: Path) -> None:
        self.node, self.folder = node, folder

    def inventory(self, asked: dict[str, object]) -> str:
        version = "580.95.05"
        driver = {
            "source": "runfile", "version": version, "runfile_url": URL,
            "runfile_sha256": digest(self.node, f"tesla/{version}/NVIDIA-Linux-x86_64-{version}.run"),
        }  # fmt: skip
        data: dict[str, object] = {"driver": driver, "cuda": asked, "toolkit": {"version": "1.17.8"}}
        path = Path(inventory_with(self.folder, {self.node.name: data}))
        path.write_text(path.read_text() + f"nodes = [entry for entry in nodes if entry[0] == {self.node.name!r}]\n")
        return str(path)

    def run(self, asked: dict[str, object]) -> Run:
        return command("pyinfra", "-y", "--json", self.inventory(asked), "deploys/gpu_node.py")

    def drift(self, asked: dict[str, object]) -> int:
        return command("gpunode", "drift", self.inventory(asked)).code


@pytest.fixture
def whole(node: Node, tmp_path: Path) -> Whole:
    return Whole(node, tmp_path)


@pytest.fixture(scope="module")
def asked(node: Node) -> dict[str, object]:
    """Return CUDA 12.9.1 by its .run file."""
    return cuda(node, "12.9.1", "575.57.08")


def test_driver_and_cuda_come_by_runfile_and_the_second_run_changes_nothing(
    node: Node, whole: Whole, asked: dict[str, object], start_times: Callable[[Node], str]
) -> None:
    first = whole.run(asked)
    assert first.code == 0, first.printed
    assert "release 12.9" in out(node, "runuser -u operator -- bash -lc 'nvcc --version'")
    assert out(node, "readlink /usr/local/cuda") == "/usr/local/cuda-12.9"
    # Its file is gigabytes, and nothing needs it any more; the driver's is its way back.
    assert [name for name in out(node, "ls /var/lib/gpunode/runfiles").split() if name.endswith(".run")] == [
        "NVIDIA-Linux-x86_64-580.95.05.run"
    ]
    settled = start_times(node)
    second = whole.run(asked)
    assert (second.code, second.operations("success")) == (0, {}), second.printed
    assert start_times(node) == settled
    assert whole.drift(asked) == 0


def test_toolkits_live_side_by_side_and_the_link_follows_the_settings(
    node: Node, whole: Whole, asked: dict[str, object]
) -> None:
    run = whole.run(cuda(node, "12.8.1", "570.124.06"))
    assert run.code == 0, run.printed
    assert "release 12.8" in out(node, "/usr/local/cuda/bin/nvcc --version")
    assert whole.drift(asked) == 2
    back = whole.run(asked)
    assert set(back.operations("success")) == {"Point /usr/local/cuda at 12.9", "Record what was applied"}
    assert out(node, "ls -d /usr/local/cuda-*").split() == ["/usr/local/cuda-12.8", "/usr/local/cuda-12.9"]
    assert whole.drift(asked) == 0
    out(node, "/usr/local/cuda-12.8/bin/cuda-uninstaller")
    assert seen(node, "ls -d /usr/local/cuda-12.8 /etc/ld.so.conf.d/cuda-12-8.conf 2>/dev/null") == ""
    assert whole.run(asked).operations("success") == {}


def test_a_toolkit_whose_installer_fails_leaves_nothing_behind_and_its_log_is_told(
    node: Node, whole: Whole, asked: dict[str, object]
) -> None:
    lab_nodes.set_fault(node, cuda_installer=True)
    failed = whole.run(cuda(node, "12.8.1", "570.124.06"))
    lab_nodes.clear_faults(node)
    assert failed.code == 1
    assert "the end of /var/log/cuda-installer.log" in failed.printed
    assert "is full" in failed.printed
    assert out(node, "ls -d /usr/local/cuda*").split() == ["/usr/local/cuda", "/usr/local/cuda-12.9"]
    assert out(node, "readlink /usr/local/cuda") == "/usr/local/cuda-12.9"
    assert whole.run(asked).code == 0


def test_a_cuda_file_with_another_checksum_is_not_run(node: Node, whole: Whole) -> None:
    failed = whole.run({**cuda(node, "12.8.1", "570.124.06"), "runfile_sha256": "0" * 64})
    assert failed.code == 1
    assert "nothing was run" in failed.printed and "cuda.runfile_sha256" in failed.printed
    assert seen(node, "ls -d /usr/local/cuda-12.8 2>/dev/null") == ""


def test_packages_of_a_toolkit_that_a_runfile_installed_are_refused(whole: Whole) -> None:
    refused = whole.run({"version": "12.9"})
    assert refused.code == 1
    assert "/usr/local/cuda-12.9/bin/cuda-uninstaller" in refused.printed


ROUNDS = rounds(six("apt"))


@pytest.mark.parametrize("deviations", ROUNDS)
def test_the_next_run_repairs_exactly_that(
    deviations: str, node: Node, whole: Whole, asked: dict[str, object], start_times: Callable[[Node], str]
) -> None:
    assert_healed(ROUNDS[deviations], node, lambda: whole.run(asked), lambda: whole.drift(asked), start_times)
