"""docker on a node as it is desired."""

from __future__ import annotations

import json
from typing import Any

from gpunode.components.runtimes.docker.editor import render
from gpunode.components.runtimes.docker.state import Docker
from gpunode.components.runtimes.runtime import NVIDIA_RUNTIME, Runtimes

RIGHT = Docker(
    "26.1.5", "26.1.5", "/usr/sbin/dockerd", config_text=render(None, "26.1.5", Runtimes()), active=True, enabled=True,
    default_runtime="nvidia", runtimes=(("nvidia", NVIDIA_RUNTIME), ("runc", "runc")), cgroup_driver="systemd",
    cdi=False,
)  # fmt: skip


def said(text: str | None, version: str, desired: Runtimes) -> Any:
    """Return the values of an edited daemon.json, for its cases."""
    return json.loads(render(text, version, desired))
