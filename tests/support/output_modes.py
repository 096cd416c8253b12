"""Helpers and data for the tests of output modes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpunode.base.comparison import RUN
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.components.driver.decide import HELD
from gpunode.fleet import drift
from gpunode.fleet import nodes as fleet
from tests.support.ci_judgement import READY, Machines, answer

GOOD = Finding("driver", FindingClass.OK, "flavour", "open", "open", code="driver.flavour")
KNOW = HELD.finding(FindingClass.OK, "held", "held", cause="the kernel is not held", remedy="set hold_kernel")
BAD = Finding(
    "containerd", FindingClass.DRIFT, "default runtime", "runc", "nvidia",
    "somebody edited /etc/containerd/config.toml after gpunode did, and nobody has run gpunode since then", RUN,
    code="containerd.default-runtime",
)  # fmt: skip
WELL = (NodeReport("gpu-1", (GOOD, KNOW)),)
MIXED = (*WELL, NodeReport("gpu-2", (GOOD, BAD)), NodeReport("gpu-3", (GOOD,)))
NAMES = [f"node-{letter}{number}" for number in range(10) for letter in "abc"]
MANY = tuple(NodeReport(name, (BAD,)) for name in NAMES)


class Job(Machines):
    """Stand in for a job whose machines come up, and for its run of pyinfra."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
        super().__init__(folder, monkeypatch, answer("up", READY))
        (folder / "pyinfra").write_text(f"#!/bin/sh\necho SIMULATED pyinfra on $#\necho more >&2\nexit {status}\n")
        (folder / "pyinfra").chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(folder / "python"))
        monkeypatch.setattr(drift, "inspect", lambda *_, **__: (NodeReport("up", (GOOD,)),))
        monkeypatch.setattr(fleet, "read", self.read)
