"""The kubelets' stand-in as a process beside the cluster, and the proxy by which it speaks to the API server."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpunode.lab import processes
from gpunode.lab.cluster.kubectl import program
from gpunode.lab.cluster.ports import port
from gpunode.lab.errors import LabError

Report = Callable[[str], None]

# Paths are relative to the cluster's folder, in which both run: a socket's path must be short.
SOCKET = "api.sock"
_PROXY, _STAND_IN = "kubectl-proxy", "stand-in"
_READY_SECONDS = 20.0


def start(folder: Path, kubeconfig: Path, lab: str, report: Report) -> int:
    """Start what of the two does not run, and return the port of the containers' logs; raise LabError."""
    listening = port(folder, "kubelet")
    if processes.runs(folder, _PROXY) and processes.runs(folder, _STAND_IN):
        return listening
    if not processes.runs(folder, _PROXY):
        (folder / SOCKET).unlink(missing_ok=True)
        words = [str(program()), "--kubeconfig", str(kubeconfig), "proxy", "--unix-socket", SOCKET]
        processes.start(folder, _PROXY, words)
    deadline = time.monotonic() + _READY_SECONDS
    while not (folder / SOCKET).exists():
        if time.monotonic() > deadline or not processes.runs(folder, _PROXY):
            raise LabError(f"the stand-in cannot reach the cluster: {processes.last_words(folder, _PROXY)}")
        time.sleep(0.05)
    processes.start(folder, _STAND_IN, [sys.executable, "-m", "gpunode.lab.cluster.stand_in", lab, str(listening)])
    report(
        f"cluster: pods and GPUs are SIMULATED by a stand-in for kubelet and plugin; it logs to {folder}/stand-in.log"
    )
    return listening


def stop(folder: Path) -> None:
    """End both; fine where they do not run."""
    for name in (_STAND_IN, _PROXY):
        processes.stop(folder, name)
