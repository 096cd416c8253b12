"""Two nodes of an IMEX domain. SIMULATED: GPUs, driver, nvidia-imex and nvidia-imex-ctl. Real: systemd, files, TCP.

The GPUs are GB200s, so that nvidia-imex has come with the driver; no memory is mapped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpunode.lab.nodes import Node
from tests.molecule.conftest import Run, command, inventory_with, out, run_to

pytestmark = [pytest.mark.simulated, pytest.mark.life]
NODES = "/etc/nvidia-imex/nodes_config.cfg"
RECORD = "/var/lib/gpunode/imex"
WRITE, RUN = "Write the nodes of the IMEX domain", "Run nvidia-imex, now and at boot"
SERVICE, FILE, DOMAIN = "service nvidia-imex.service", f"file {NODES}", "IMEX domain"


def _inventory(folder: Path, hosts: tuple[Node, ...], /, allow: str = "restart", **imex: object) -> str:
    domain = {"enabled": True, "domain": "rack1", **imex}
    return inventory_with(folder, {node.name: {"imex": domain, "disruption": {"allow": allow}} for node in hosts})


def _run(inventory: str, *options: str, code: int = 0) -> Run:
    return run_to(code, inventory, *options)


def _bad(inventory: str) -> dict[str, dict[str, dict[str, Any]]]:
    found = command("gpunode", "drift", "--json", inventory).findings
    bad = {host: [item for item in every if item["class"] != "ok"] for host, every in found.items()}
    told = {host: {item["what"]: item for item in every} for host, every in bad.items()}
    # Nothing is told twice, by the component and by its files' digests.
    assert {host: len(every) for host, every in bad.items()} == {host: len(every) for host, every in told.items()}
    return told


def test_what_is_no_domain_is_refused_before_any_connection(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    first, second = nodes
    alone = _run(_inventory(tmp_path, (first,)), code=1)
    assert f"{first.name}: imex.domain = 'rack1': has one node, {first.name}" in alone.printed
    driver = {"imex": {"enabled": True, "domain": "rack1"}, "driver": {"branch": "590"}}
    imex: dict[str, dict[str, object]] = {first.name: {"imex": driver["imex"]}, second.name: dict(driver)}
    other = _run(inventory_with(tmp_path, imex), code=1)
    assert "IMEX domain rack1" in other.printed
    assert out(first, f"ls {NODES} 2>/dev/null || echo none") == "none"


def test_two_nodes_form_a_domain_in_one_wave_and_a_second_run_changes_nothing(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    inventory = _inventory(tmp_path, nodes)
    assert all({FILE, SERVICE} <= set(found) for found in _bad(inventory).values())
    # One after the other neither would be well.
    cut = command("gpunode", "rollout", inventory)
    assert cut.code == 64 and "give --max-unavailable 2" in cut.printed, cut.printed
    assert all(out(node, f"ls {NODES} 2>/dev/null || echo none") == "none" for node in nodes)
    done = command("gpunode", "rollout", "--json", "--max-unavailable", "2", inventory)
    assert done.code == 0, done.printed
    assert [list(wave["nodes"]) for wave in done.payload["waves"]] == [[node.name for node in nodes]]
    for node in nodes:
        assert out(node, f"cat {NODES}").split() == [each.address for each in sorted(nodes, key=lambda each: each.name)]
        assert out(node, "nvidia-imex-ctl -q; nvidia-imex-ctl -N -j").endswith('"status": "UP"}')
        assert out(node, "systemctl is-enabled nvidia-imex") == "enabled"
        version = out(node, "dpkg-query -W -f '${Version}' nvidia-imex").partition("-")[0]
        assert version == out(node, "cat /sys/module/nvidia/version")
    assert _bad(inventory) == {node.name: {} for node in nodes}
    assert _run(inventory).operations("success") == {}


def test_a_node_that_stops_is_named_by_the_other_and_comes_back(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    first, second = nodes
    inventory = _inventory(tmp_path, nodes)
    out(second, "systemctl stop nvidia-imex")
    found = _bad(inventory)
    assert found[first.name][DOMAIN]["actual"] == "DEGRADED"
    assert found[first.name][DOMAIN]["cause"].startswith(f"{second.name} ({second.address}) is UNAVAILABLE")
    assert set(found[second.name]) == {SERVICE}
    # A run on the one alone cannot mend it, restarts nothing there, and says who is missing.
    started = out(first, "systemctl show nvidia-imex -p ActiveEnterTimestamp")
    failed = _run(inventory, "--limit", first.name, code=1)
    assert f"{second.name} ({second.address}) is UNAVAILABLE" in failed.printed
    assert RUN in _run(inventory).operations("success")
    assert out(first, "systemctl show nvidia-imex -p ActiveEnterTimestamp") == started
    assert _bad(inventory) == {node.name: {} for node in nodes}


def test_a_list_that_a_hand_changes_is_healed_with_the_daemon_stopped_first(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    first, second = nodes
    inventory = _inventory(tmp_path, nodes)
    out(first, f"echo 10.99.99.99 >> {NODES}")
    assert set(_bad(inventory)[first.name]) == {FILE}
    assert _bad(_inventory(tmp_path, nodes, allow="nothing"))[first.name][FILE]["class"] == "restart pending"
    done = _run(_inventory(tmp_path, nodes)).operations("success")
    assert done[WRITE] == [first.name] and done[RUN] == [first.name]
    assert _bad(inventory) == {node.name: {} for node in nodes}
    assert out(second, "nvidia-imex-ctl -N -j").endswith('"status": "UP"}')


def test_another_list_comes_to_all_nodes_before_any_of_them_starts(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    # A daemon, SIMULATED as the real one is described, blocks for good whom it meets with another list.
    first, second = nodes
    renamed = {first.name: second.address, second.name: first.address}
    done = _run(_inventory(tmp_path, nodes, nodes=renamed)).operations("success")
    assert set(done[WRITE]) == set(done[RUN]) == {node.name for node in nodes}
    assert _bad(_inventory(tmp_path, nodes, nodes=renamed)) == {node.name: {} for node in nodes}
    _run(_inventory(tmp_path, nodes))


def test_a_driver_of_another_version_brings_its_imex(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    first, _ = nodes
    out(first, "apt-get -q -y --allow-downgrades --allow-change-held-packages install nvidia-imex=580.82.07-1")
    found = _bad(_inventory(tmp_path, nodes))[first.name]
    assert found["nvidia-imex"]["actual"] == "580.82.07-1"
    _run(_inventory(tmp_path, nodes))
    assert out(first, "dpkg-query -W -f '${Version}' nvidia-imex") != "580.82.07-1"
    assert _bad(_inventory(tmp_path, nodes)) == {node.name: {} for node in nodes}


def test_what_was_set_up_goes_and_nothing_stays_behind(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    off = _inventory(tmp_path, nodes, enabled=False)
    assert all(set(found) == {FILE, SERVICE} for found in _bad(off).values())
    _run(off)
    for node in nodes:
        left = out(
            node, f"ls -A /etc/nvidia-imex; ls -d {RECORD} 2>/dev/null; systemctl is-enabled nvidia-imex || true"
        )
        assert left.split() == ["config.cfg", "disabled"]
        assert out(node, "systemctl is-active nvidia-imex || true") == "inactive"
    assert _run(off).operations("success") == {}
    assert _bad(off) == {node.name: {} for node in nodes}
