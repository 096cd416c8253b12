"""The real kubectl, for what the lab itself does in a cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpunode.lab.errors import LabError
from gpunode.lab.kubernetes_programs import programs

_LONGEST_S = 60


def program() -> Path:
    """Return the path of kubectl, fetched once; raise LabError."""
    return programs(3) / "kubectl"


def ready(kubeconfig: Path) -> bool:
    """Say whether the API server says of itself that it is ready."""
    return kubeconfig.exists() and _finished(kubeconfig, "get", "--raw", "/readyz").returncode == 0


def asked(kubeconfig: Path, *words: str) -> dict[str, Any]:
    """Return kubectl's answer in JSON; raise LabError."""
    found: dict[str, Any] = json.loads(told(kubeconfig, *words, "--output", "json"))
    return found


def told(kubeconfig: Path, *words: str, sends: Mapping[str, Any] | None = None) -> str:
    """Run kubectl, with an object at its standard input, and return what it printed; raise LabError."""
    done = _finished(kubeconfig, *words, stdin="" if sends is None else json.dumps(sends))
    if done.returncode:
        said = " ".join(done.stderr.split())[-300:]
        raise LabError(f"cluster: `kubectl {' '.join(words[:3])}` failed: {said}")
    return done.stdout


def _finished(kubeconfig: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(program()), "--kubeconfig", str(kubeconfig), "--request-timeout", "20s", *words]
    # A person's own context or namespace is of another cluster.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KUBE")}
    try:
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=_LONGEST_S, check=False, env=environment
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"cluster: `kubectl {' '.join(words[:3])}` did not end within {_LONGEST_S} seconds") from None
