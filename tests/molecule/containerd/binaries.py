"""The real containerd of other releases of Debian on a node."""

from __future__ import annotations

import subprocess

from gpunode.lab import nodes as lab_nodes
from gpunode.lab.nodes import Node
from tests.support.containerd_programs import debian

_UNIT = """
set -e
DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends containerd runc
folder=/etc/systemd/system/containerd.service.d; mkdir -p $folder
if [ -d /opt/other ]; then
  printf '[Service]\\nEnvironment=PATH=/opt/other:/usr/sbin:/usr/bin:/sbin:/bin\\nExecStart=\\n' > $folder/10-other.conf
  echo 'ExecStart=/opt/other/containerd' >> $folder/10-other.conf
fi
systemctl daemon-reload; systemctl enable --quiet containerd; systemctl restart containerd
"""


def install(node: Node, version: str) -> None:
    """Give a node Debian's containerd; where another version is asked for, its unit runs that one, from /opt.

    Debian's own binary then stays on the PATH: a node with two of them.
    """
    # Of the node's own release comes 1.6.
    if version != "1.6":
        source = debian(version)
        lab_nodes.run(node, "mkdir -p /opt/other")
        for name in ("containerd", "ctr", "containerd-shim-runc-v2"):
            subprocess.run(
                ["podman", "cp", source / name, f"{node.container}:/opt/other/{name}"],
                check=True, capture_output=True, timeout=120,
            )  # fmt: skip
    done = lab_nodes.run(node, _UNIT, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{node.name}: {done.stdout}{done.stderr}")
