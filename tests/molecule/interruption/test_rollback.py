"""A change of containerd that is proven not to work is undone on the node, told of, and not tried over and over.

SIMULATED: GPUs, and the cause: a drop-in of the node's own that lets no containerd start with the nvidia runtime.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.molecule.interruption.cases import bench

_DROP_IN = "/etc/systemd/system/containerd.service.d/50-no-nvidia.conf"
_PREPARED = f"""
set -e
apt-get -q update; DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends containerd
mkdir -p /etc/containerd "$(dirname {_DROP_IN})"
printf '# kept by hand\\nversion = 2\\n[plugins."io.containerd.grpc.v1.cri"]\\n  sandbox_image = "pause:here"\\n' \\
  > /etc/containerd/config.toml
printf '[Service]\\nExecStartPre=/bin/sh -c "! grep -q nvidia-container-runtime /etc/containerd/config.toml"\\n' \\
  > {_DROP_IN}
systemctl daemon-reload; systemctl enable --quiet containerd; systemctl restart containerd
"""
_STARTED = "systemctl show -p ActiveState,ExecMainStartTimestampMonotonic containerd"


@pytest.mark.node
@pytest.mark.simulated
def test_a_change_that_does_not_work_is_undone_told_of_and_not_tried_again(
    nodes: tuple[Node, ...], tmp_path: Path
) -> None:
    node = nodes[0]
    lab_nodes.recreate(node)
    mine = bench(node, tmp_path)
    prepared = lab_nodes.run(node, _PREPARED, timeout=300)
    assert prepared.returncode == 0, prepared.stdout + prepared.stderr
    before = lab_nodes.run(node, "cat /etc/containerd/config.toml").stdout

    tried = mine.run()
    assert tried.code == 1 and "Traceback" not in tried.printed, tried.printed
    assert "Configure containerd: default runtime nvidia" in tried.printed
    assert "containerd is" in tried.printed, tried.printed
    assert "runs again" in tried.printed, tried.printed
    assert lab_nodes.run(node, "cat /etc/containerd/config.toml").stdout == before
    restored = lab_nodes.run(node, _STARTED).stdout
    assert "ActiveState=active" in restored

    again = mine.run()
    assert again.code == 1 and "Traceback" not in again.printed, again.printed
    assert "containerd is" in again.printed, again.printed
    assert lab_nodes.run(node, _STARTED).stdout == restored, "the old service was disturbed for a target known to fail"
    assert lab_nodes.run(node, "cat /etc/containerd/config.toml").stdout == before

    # As the message says: the cause is corrected, and a run that tries it again goes through.
    lab_nodes.run(node, f"rm {_DROP_IN}; systemctl daemon-reload")
    assert mine.run().code == 1
    healed = mine.run("--data", "gpunode_retry=1")
    assert healed.code == 0, healed.printed
    assert lab_nodes.run(node, "test -e /var/lib/gpunode/transactions/containerd.given-up.json").returncode == 0
    merged = lab_nodes.run(node, "cat /etc/containerd/config.toml; containerd config dump").stdout
    assert "# kept by hand" in merged and "nvidia-container-runtime" in merged and "pause:here" in merged
    assert mine.run().operations("success") == {}
