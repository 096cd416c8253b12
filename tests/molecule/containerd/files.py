"""The files that people have: none, an empty one, Debian's, kubeadm's, and one that a hand keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_DATA = Path(__file__).parents[2] / "unit" / "data"
_HAND_1 = """# by hand: nobody remembers why
version = 2
root = "/var/lib/containerd"   # the big disk
oom_score = -999

[debug]
  level = "info"

# our registry
[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "/etc/containerd/certs.d"  # see wiki

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun]
  runtime_type = "io.containerd.runc.v2"  # for the batch queue
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.crun.options]
    BinaryName = "/usr/bin/crun"
# the end
"""
_HAND_2 = """# by hand: nobody remembers why
version = 3
root = '/var/lib/containerd'   # the big disk
oom_score = -999

[debug]
  level = 'info'

[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = '/etc/containerd/certs.d'  # see wiki

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun]
  runtime_type = 'io.containerd.runc.v2'  # for the batch queue
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.crun.options]
    BinaryName = '/usr/bin/crun'
# the end
"""
FILES = ("absent", "empty", "packaged", "kubeadm", "by hand")


def text(name: str, version: str) -> str | None:
    """Return a file as it is found under a version of containerd; None: there is none."""
    if name == "absent":
        return None
    if name == "empty":
        return ""
    if name == "packaged":
        return (_DATA / "in-containerd-debian12-packaged.toml").read_text()
    if name == "kubeadm":
        return (_DATA / f"in-containerd{'2' if version == '2' else '16'}-kubeadm.toml").read_text()
    return _HAND_2 if version == "2" else _HAND_1


def comments(file: str) -> list[str]:
    """Return the comments of a file, with the line that each stands on."""
    return [line for line in file.splitlines() if "#" in line]


def foreign(document: dict[str, Any], path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return the values of a parsed file that are not gpunode's, by their keys."""
    found: dict[tuple[str, ...], Any] = {}
    for key, value in document.items():
        here = (*path, key)
        if isinstance(value, dict):
            found |= foreign(value, here)
        elif not (here in (("version",), ("imports",)) or _ours(here)):
            found[here] = value
    return found


def _ours(path: tuple[str, ...]) -> bool:
    if path[2:] == ("containerd", "default_runtime_name"):
        return True
    return path[2:4] == ("containerd", "runtimes") and path[4] in ("runc", "nvidia")
