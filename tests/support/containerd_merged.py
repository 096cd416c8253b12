"""Helpers and data for the tests of containerd merged."""

from __future__ import annotations

from typing import Any

from gpunode.components.containerd.editor import Runtimes, render
from gpunode.components.containerd.state import Containerd
from tests.support.containerd_change import KUBEADM, state

TAKEN_FOR_GRANTED = "privileged_without_host_devices = false\n"


def said(version: str, root: str | None, merged: str, **fields: Any) -> Containerd:
    """Return a node that makes `merged` of its files, and runs by it."""
    return state(version, root, merged_text=merged, merged="same", loaded="same", **fields)


def right(version: str = "1.7.24") -> str:
    return render(KUBEADM, version, Runtimes())
