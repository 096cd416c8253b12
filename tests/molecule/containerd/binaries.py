"""The real containerd of other releases of Debian: fetched and checked by apt, unpacked, kept in the lab's cache."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab import nodes as lab_nodes
from lab.cache import cache_dir, complete_or_nothing, locked
from lab.host_apt import host_apt
from lab.nodes import Node

# Of the node's own release comes 1.6.
SUITES = {"1.7": "trixie", "2": "sid"}
_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def binaries(version: str) -> Path:
    """Return the folder with containerd, its shim and ctr of a version that the cache has, or gets."""
    folder = cache_dir() / f"containerd-{version}"
    with locked(cache_dir() / f"containerd-{version}.lock"):
        if not folder.is_dir():
            with complete_or_nothing(folder) as made:
                _unpacked(SUITES[version], made)
    return folder / "usr" / "bin"


def _unpacked(suite: str, folder: Path) -> None:
    state = folder / "apt"
    for path in ("lists/partial", "cache/archives/partial"):
        (state / path).mkdir(parents=True)
    source = f"deb [signed-by={_KEYRING}] {host_apt().mirror} {suite} main\n"
    (state / "sources.list").write_text(source)
    options = {
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State::lists": state / "lists",
        "Dir::State::status": "/dev/null",
        "Dir::Cache": state / "cache",
        "APT::Update::Error-Mode": "any",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-q", *(part for key, value in options.items() for part in ("-o", f"{key}={value}"))]
    for command in (["update"], ["download", "containerd"]):
        subprocess.run([*apt, *command], cwd=state, check=True, capture_output=True, timeout=300)
    (package,) = state.glob("containerd_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, folder], check=True, capture_output=True, timeout=120)
    subprocess.run(["rm", "-rf", state], check=True)


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
    if version in SUITES:
        source = binaries(version)
        lab_nodes.run(node, "mkdir -p /opt/other")
        for name in ("containerd", "ctr", "containerd-shim-runc-v2"):
            subprocess.run(
                ["podman", "cp", source / name, f"{node.container}:/opt/other/{name}"],
                check=True, capture_output=True, timeout=120,
            )  # fmt: skip
    done = lab_nodes.run(node, _UNIT, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{node.name}: {done.stdout}{done.stderr}")
