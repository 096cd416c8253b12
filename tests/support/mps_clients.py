"""Helpers and data for the tests of mps clients."""

from __future__ import annotations

from typing import Any


def gpu_pod(name: str, node: str | None = "gpu-1", **limits: str) -> dict[str, Any]:
    """Return a pod with one container of these limits; a GPU if none are given."""
    container = {"name": "main", "resources": {"limits": limits or {"nvidia.com/gpu": "1"}}}
    spec = {"containers": [container], **({} if node is None else {"nodeName": node})}
    return {"metadata": {"namespace": "team", "name": name}, "spec": spec, "status": {"phase": "Running"}}
