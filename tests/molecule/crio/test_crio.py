"""One node with a SIMULATED CRI-O: real are systemd, the transaction, and the order in which its files count.
No container runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpunode.lab.nodes import Node
from tests.molecule.conftest import CHECKOUT, Run, bad, inventory_with, out, run_to, write

pytestmark = [pytest.mark.simulated, pytest.mark.life]
FOLDER = "/etc/crio/crio.conf.d"
DROP_IN, LATER = f"{FOLDER}/99-nvidia.toml", f"{FOLDER}/99-other.toml"
NAME = "Configure CRI-O: default runtime nvidia"
# As CRI-O's packages have it; SIMULATED is the program alone.
PACKAGED = """[crio.runtime]
default_runtime = "runc"
[crio.runtime.runtimes.runc]
runtime_path = "/usr/sbin/runc"
monitor_path = "/usr/libexec/crio/conmon"
"""
# No daemon comes up with another default runtime than nvidia.
STUBBORN = """[Service]
ExecStartPre=/bin/grep -q 'default_runtime = "nvidia"' /etc/crio/crio.conf.d/99-nvidia.toml
"""


def _inventory(folder: Path, node: Node, **crio: object) -> str:
    return inventory_with(folder, {node.name: {"crio": {"enabled": True, **crio}}})


def _run(folder: Path, node: Node, code: int = 0, **crio: object) -> Run:
    return run_to(code, _inventory(folder, node, **crio))


def _bad(folder: Path, node: Node, **crio: object) -> dict[str, dict[str, Any]]:
    return bad(_inventory(folder, node, **crio), node.name)


def _default(node: Node) -> str:
    return out(node, "crio status config | sed -n 's/^default_runtime = //p'").strip('"')


def _starts(node: Node) -> int:
    return int(out(node, "grep -c 'SIMULATED crio: started' /var/log/gpunode-lab.log"))


def test_a_node_without_crio_is_refused_with_what_to_do(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    refused = _run(tmp_path, node, code=1)
    assert "install CRI-O" in refused.printed
    assert _bad(tmp_path, node)["preflight"]["code"] == "preflight.crio-absent"


def test_the_simulated_crio_knows_the_runtime_and_a_second_run_changes_nothing(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    (node,) = nodes
    packages = CHECKOUT / "lab" / "packages"
    write(node, "/usr/bin/crio", (packages / "crio.py").read_text())
    write(node, "/etc/systemd/system/crio.service", (packages / "crio.service").read_text())
    write(node, f"{FOLDER}/10-crio.conf", PACKAGED)
    out(node, "chmod 755 /usr/bin/crio; systemctl daemon-reload; systemctl start crio")
    assert "SIMULATED" in out(node, "crio --version")
    assert {"default runtime", "runtime nvidia", "starts at boot"} <= set(_bad(tmp_path, node))
    assert NAME in _run(tmp_path, node).operations("success")
    assert _default(node) == "nvidia" and _starts(node) == 2
    assert 'monitor_path = "/usr/libexec/crio/conmon"' in out(node, f"cat {DROP_IN}")
    again = _run(tmp_path, node)
    assert again.operations("success") == {}, again.printed
    assert _bad(tmp_path, node) == {} and _starts(node) == 2


def test_what_a_hand_breaks_a_run_heals_and_what_counts_more_is_named(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    out(node, f"rm {DROP_IN}")
    assert set(_bad(tmp_path, node)) == {"configuration files"}
    _run(tmp_path, node)
    # The daemon had not read it yet: nothing is restarted.
    assert _bad(tmp_path, node) == {} and _starts(node) == 2
    out(node, f"""sed -i 's/^default_runtime.*/default_runtime = "runc"  # mine/' {DROP_IN}; systemctl restart crio""")
    assert "default runtime" in _bad(tmp_path, node)
    _run(tmp_path, node)
    assert _default(node) == "nvidia" and "# mine" in out(node, f"cat {DROP_IN}")
    write(node, LATER, '[crio.runtime]\ndefault_runtime = "runc"\n')
    said = _bad(tmp_path, node)["configuration files"]
    assert said["cause"].startswith(f"{LATER} is read after {DROP_IN} and sets default_runtime = 'runc'")
    out(node, f"rm {LATER}")
    assert _bad(tmp_path, node) == {}


def test_a_daemon_that_does_not_come_up_gets_its_old_file_back(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    write(node, "/etc/systemd/system/crio.service.d/stubborn.conf", STUBBORN)
    out(node, "systemctl daemon-reload")
    failed = _run(tmp_path, node, code=1, default_runtime="runc")
    assert "runs again" in failed.printed
    assert _default(node) == "nvidia" and out(node, f"ls {FOLDER}").split() == ["10-crio.conf", "99-nvidia.toml"]
    out(node, "rm -r /etc/systemd/system/crio.service.d; systemctl daemon-reload")
    assert _bad(tmp_path, node) == {}


def test_a_crio_that_is_switched_off_in_the_settings_is_left_alone(nodes: tuple[Node, ...], tmp_path: Path) -> None:
    (node,) = nodes
    off = _run(tmp_path, node, enabled=False)
    assert not any("CRI-O" in name for name in off.operations("success"))
    assert _default(node) == "nvidia" and _bad(tmp_path, node, enabled=False) == {}
    # Nothing is left beside its files, where CRI-O would read it.
    assert out(node, "find /etc/crio -name '*gpunode*'") == ""
