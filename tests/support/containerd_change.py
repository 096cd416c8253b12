"""Helpers and data for the tests of containerd change."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from gpunode.components.containerd.editor import NVIDIA_RUNTIME
from gpunode.components.containerd.state import Containerd, Runtime

CONFIG = "/etc/containerd/config.toml"


KUBEADM = (Path(__file__).parents[1] / "unit" / "data" / "in-containerd16-kubeadm.toml").read_text()


RIGHT = (Runtime("nvidia", None, NVIDIA_RUNTIME, True), Runtime("runc", None, None, True))


GLOB = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'


def state(version: str, text: str | None, **fields: Any) -> Containerd:
    found = Containerd(
        version=version, binary="/usr/bin/containerd", config_path=CONFIG, config_text=text, active=True, enabled=True,
        started_at=10.0, configured_at=5.0, default_runtime="nvidia", runtimes=RIGHT, cri_plugin="ok", shims=0,
    )  # fmt: skip
    return replace(found, **fields)
