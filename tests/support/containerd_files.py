"""containerd's files: any that a version reads, with what gpunode is to make of it, and those that people have."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from gpunode.components.runtimes.containerd.companions import RUNC_TYPE
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME, Runtimes

CRI2, CRI3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
# From version 2 on a plugin that is not named in full keeps containerd from starting.
ZFS = "io.containerd.snapshotter.v1.zfs"

RUNTIME = st.fixed_dictionaries(
    {},
    optional={
        "runtime_type": st.just(RUNC_TYPE),
        "base_runtime_spec": st.just("/etc/containerd/base.json"),
        "privileged_without_host_devices": st.booleans(),
        "pod_annotations": st.lists(st.sampled_from(["a.b/*", "größe"]), max_size=2),
        "options": st.fixed_dictionaries(
            {}, optional={"SystemdCgroup": st.booleans(), "BinaryName": st.sampled_from(["/usr/bin/crun", "runc"])}
        ),
    },
)
CONTAINERD = st.fixed_dictionaries(
    {},
    optional={
        "snapshotter": st.just("overlayfs"),
        "default_runtime_name": st.sampled_from(["runc", "nvidia", "kata"]),
        "default_runtime": st.fixed_dictionaries({"runtime_type": st.sampled_from(["", RUNC_TYPE])}),
        "runtimes": st.dictionaries(st.sampled_from(["runc", "nvidia", "kata.v2"]), RUNTIME, max_size=3),
    },
)
PLUGIN = st.fixed_dictionaries(
    {},
    optional={
        "enable_cdi": st.booleans(),
        "sandbox_image": st.sampled_from(["registry.k8s.io/pause:3.9", 'say "x" # no comment', "C:\\x"]),
        "containerd": CONTAINERD,
        "registry": st.just({"configs": {"docker.io": {"auth": {"username": "ä", "password": "="}}}}),
    },
)
VERSIONS = st.sampled_from(["1.6.20", "1.7.24", "2.1.9"])


@st.composite
def configurations(draw: st.DrawFn, version: str | None = None) -> tuple[str, dict[str, Any]]:
    """Draw a containerd version, where none is given, and what a file of it says."""
    version = version or draw(VERSIONS)
    schema = draw(st.sampled_from([2, 3])) if version.startswith("2") else 2
    values: dict[str, Any] = {"version": schema}
    if draw(st.booleans()):
        values["disabled_plugins"] = draw(st.sampled_from([[CRI2], [CRI2, ZFS], []]))
    if draw(st.booleans()):
        values["imports"] = ["/etc/containerd/conf.d/*.toml"]
    plugins: dict[str, Any] = {}
    if draw(st.booleans()):
        plugins["io.containerd.internal.v1.opt"] = {"path": "/opt"}
    if draw(st.booleans()):
        plugins[CRI2 if schema == 2 else CRI3] = draw(PLUGIN)
    if draw(st.booleans()) or plugins:
        values["plugins"] = plugins
    if draw(st.booleans()):
        values["grpc"] = {"address": "/run/x.sock", "uid": 0}
    return version, values


def meant(values: dict[str, Any], version: str, asked: Runtimes) -> dict[str, Any]:
    """Return what a file is to say: told here once more, in the plainest way."""
    wanted = copy.deepcopy(values)
    if "disabled_plugins" in wanted:
        wanted["disabled_plugins"] = [name for name in wanted["disabled_plugins"] if name != CRI2]
    plugin = wanted.setdefault("plugins", {}).setdefault(CRI2 if values["version"] == 2 else CRI3, {})
    if asked.cdi is not None:
        plugin["enable_cdi"] = asked.cdi
    containerd = plugin.setdefault("containerd", {})
    runtimes = containerd.setdefault("runtimes", {})
    name = containerd.get("default_runtime_name", "runc")
    inherited = runtimes.get(name if name != "nvidia" else "runc") or runtimes.get("runc", {})
    if version.startswith("1") and containerd.get("default_runtime", {}).get("runtime_type"):
        deprecated = containerd.pop("default_runtime")
        inherited = deprecated if name != "nvidia" else inherited
    containerd["default_runtime_name"] = asked.default
    runtimes.setdefault("nvidia", copy.deepcopy(inherited))
    for name in ("runc", "nvidia"):
        runtime = runtimes.setdefault(name, {})
        runtime["runtime_type"] = RUNC_TYPE
        runtime.setdefault("options", {})["SystemdCgroup"] = asked.systemd_cgroup
    runtimes["nvidia"]["options"]["BinaryName"] = NVIDIA_RUNTIME
    key = "privileged_without_host_devices"
    others = [runtime.get(key) for name, runtime in runtimes.items() if name != "nvidia"]
    if not any(others) or key not in runtimes["nvidia"]:
        runtimes["nvidia"][key] = False
    return wanted


_DATA = Path(__file__).parents[1] / "unit" / "data"
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


def known_file(name: str, version: str) -> str | None:
    """Return a file that people have under a version of containerd; None: there is none."""
    if name == "absent":
        return None
    if name == "empty":
        return ""
    if name == "packaged":
        return (_DATA / "in-containerd-debian12-packaged.toml").read_text()
    if name == "kubeadm":
        return (_DATA / f"in-containerd{'2' if version == '2' else '16'}-kubeadm.toml").read_text()
    return _HAND_2 if version.startswith("2") else _HAND_1
