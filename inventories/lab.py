"""The nodes of the lab that is up: $GPUNODE_LAB, or `default`. Bring it up with `gpunode lab up`."""

import json
import os
from pathlib import Path

_lab = os.environ.get("GPUNODE_LAB") or "default"
_folder = Path(__file__).resolve().parents[1] / ".lab" / _lab

try:
    _state = json.loads((_folder / "nodes.json").read_text(encoding="utf-8"))
except FileNotFoundError:
    _option = "" if _lab == "default" else f" --lab {_lab}"
    raise SystemExit(f"lab {_lab} is not up: run `gpunode lab up{_option}` first") from None

# Served inside each node by lab-mirror.service, so that no node needs another machine.
_served = "http://127.0.0.1:8900"
_key = {"key_url": f"{_served}/keys/gpunode-lab.asc", "key_fingerprint": _state["key_fingerprint"]}
# A virtual machine has a kernel of its own, for which DKMS really builds.
_cuda = "built" if any("kernels" in _node for _node in _state["nodes"]) else "cuda"
_places = {
    "apt": (f"{_cuda}/{{distribution}}/{{architecture}}", "toolkit/stable/deb/amd64", "docker/debian"),
    "dnf": (
        "dnf/cuda/{distribution}/{architecture}",
        "dnf/toolkit/stable/rpm/x86_64",
        "dnf/docker/rhel",
    ),
    "dnf5": (
        "dnf5/cuda/{distribution}/{architecture}",
        "dnf5/toolkit/stable/rpm/x86_64",
        "dnf5/docker/fedora",
    ),
    "zypper": ("zypper/cuda/{distribution}/{architecture}", "zypper/toolkit/stable/rpm/x86_64", "none"),
    "pacman": ("none", "none", "none"),
}
_repositories = {
    family: {
        name: {"url": f"{_served}/{place}", **_key}
        for name, place in zip(("cuda", "toolkit", "docker"), places, strict=True)
    }
    for family, places in _places.items()
}
# The same with NVIDIA's own programs in place of the SIMULATED ones: `gpunode lab up --nvidia-toolkit`.
_repositories["nvidia-toolkit"] = {
    **_repositories["apt"],
    "toolkit": {"url": f"{_served}/nvidia-toolkit/stable/deb/amd64", **_key},
}
# RHEL and its kin have no containerd of their own; Fedora has, and the lab's has none.
_docker_s = {"containerd": {"source": "docker-repository", "default_runtime": "nvidia"}}
# NVIDIA has no older CUDA for it.
_more = {"dnf": _docker_s, "dnf5": {**_docker_s, "cuda": {"version": "13.0"}}}

nodes = [
    (
        _node["name"],
        {
            "ssh_hostname": _node["address"],
            "ssh_port": _node.get("port", 22),
            "ssh_user": "root",
            "ssh_key": str(_folder / "id_ed25519"),
            "ssh_known_hosts_file": str(_folder / "known_hosts"),
            "ssh_strict_host_key_checking": "yes",
            "repositories": _repositories[
                "nvidia-toolkit" if _node.get("nvidia_toolkit") else _node.get("family", "apt")
            ],
            **_more.get(_node.get("family", "apt"), {}),
        },
    )
    for _node in _state["nodes"]
]
