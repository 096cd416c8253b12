"""One node with DCGM. Real: apt, systemd, drop-ins, sockets. SIMULATED: host engine, dcgmi, exporter and GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.conftest import Run, bad, inventory_with, out, run_to

pytestmark = [pytest.mark.simulated, pytest.mark.life]
ENGINE, EXPORTER = "nvidia-dcgm.service", "nvidia-dcgm-exporter.service"
FILES = tuple(f"/etc/systemd/system/{unit}.d/50-gpunode.conf" for unit in (ENGINE, EXPORTER))
INCIDENTS = "/run/gpunode-lab/dcgm-incidents"
ASKS = """python3 - <<'E'
import urllib.request
print(urllib.request.urlopen('http://{address}:9400/metrics', timeout=5).read().decode())
E"""


def _inventory(folder: Path, node: Node, **own: object) -> str:
    exporter = {"enabled": True, "address": node.address}
    return inventory_with(folder, {node.name: {"dcgm": {"enabled": True, "exporter": exporter, **own}}})


def _run(folder: Path, node: Node, code: int = 0, **own: object) -> Run:
    return run_to(code, _inventory(folder, node, **own))


def _bad(folder: Path, node: Node, **own: object) -> dict[str, dict[str, Any]]:
    return bad(_inventory(folder, node, **own), node.name)


def test_dcgm_comes_and_its_exporter_listens_at_the_named_address_alone(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    assert {"version", "exporter"} <= set(_bad(tmp_path, node))
    _run(tmp_path, node)
    assert "SIMULATED" in out(node, ASKS.format(address=node.address))
    assert lab_nodes.run(node, ASKS.format(address="127.0.0.1")).returncode != 0
    out(node, f"systemctl is-active {ENGINE} {EXPORTER} && systemctl is-enabled {ENGINE} {EXPORTER}")
    versions = out(node, "dpkg-query -W -f '${Package}=${Version}\\n' 'datacenter-gpu-manager*'").splitlines()
    assert "datacenter-gpu-manager-4-core=1:4.5.3-1" in versions
    assert "datacenter-gpu-manager-4-cuda13=1:4.5.3-1" in versions


def test_a_second_run_changes_nothing(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    assert _run(tmp_path, node).operations("success") == {}
    assert _bad(tmp_path, node) == {}


def test_an_exporter_at_all_addresses_and_lost_watches_are_found_and_healed(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    out(node, f"rm {FILES[1]} && systemctl daemon-reload && systemctl restart {EXPORTER}")
    assert "address of the exporter" in _bad(tmp_path, node)
    _run(tmp_path, node)
    assert lab_nodes.run(node, ASKS.format(address="127.0.0.1")).returncode != 0
    out(node, "rm /run/gpunode-lab/dcgm-watches")
    assert set(_bad(tmp_path, node)) == {"health watches"}
    _run(tmp_path, node)
    assert _bad(tmp_path, node) == {}
    # The drop-in brings them at each start.
    out(node, f"systemctl restart {ENGINE}")
    assert _bad(tmp_path, node) == {}


def test_what_dcgm_says_of_a_gpu_is_a_person_s(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    out(node, f"printf 'GPU\\t0\\tPCIe system\\tWarning\\tDetected 9 PCIe replays\\n' > {INCIDENTS}")
    (item,) = _bad(tmp_path, node).values()
    assert item["what"] == "health by DCGM of GPU 0: PCIe system" and item["cause"] == "Detected 9 PCIe replays"
    assert "PCIe system" in _run(tmp_path, node, code=1).printed
    assert _bad(tmp_path, node, health=False).keys() <= {f"file {FILES[0]}"}
    out(node, f"rm {INCIDENTS}")


def test_another_port_restarts_the_exporter(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    exporter = {"enabled": True, "address": node.address, "port": 9401}
    _run(tmp_path, node, exporter=exporter)
    assert lab_nodes.run(node, ASKS.format(address=node.address)).returncode != 0
    assert "SIMULATED" in out(node, ASKS.format(address=node.address).replace("9400", "9401"))
    _run(tmp_path, node)


def test_a_pod_of_the_cluster_s_exporter_is_refused(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    pod = "/var/log/pods/gpu-operator_nvidia-dcgm-exporter-x7k2p_1"
    out(node, f"mkdir -p {pod}")
    assert "preflight" in _bad(tmp_path, node)
    run = _run(tmp_path, node, code=1)
    assert "gpu-operator/nvidia-dcgm-exporter-x7k2p" in run.printed and "dcgm.enabled" in run.printed
    out(node, f"rmdir {pod}")


def test_switched_off_nothing_of_gpunode_s_stays(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    _run(tmp_path, node, exporter={})
    assert lab_nodes.run(node, f"systemctl is-active {EXPORTER}").stdout.strip() == "inactive"
    off: dict[str, Any] = {"enabled": False, "exporter": {}}
    _run(tmp_path, node, **off)
    for unit in (ENGINE, EXPORTER):
        assert lab_nodes.run(node, f"systemctl is-active {unit}").stdout.strip() == "inactive"
        assert lab_nodes.run(node, f"systemctl is-enabled {unit}").stdout.strip() == "disabled"
    out(node, " && ".join(f"test ! -e {path.rpartition('/')[0]}" for path in FILES))
    assert _run(tmp_path, node, **off).operations("success") == {}
    assert _bad(tmp_path, node, **off) == {}
