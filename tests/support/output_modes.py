"""Helpers and data for the tests of output modes."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.comparison import RUN
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.components.driver.decide import HELD
from gpunode.fleet import drift
from gpunode.fleet import nodes as fleet
from gpunode.fleet.reports.run_end import HostEnd
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
    """Stand in for a job whose machines come up, and for its run of pyinfra.

    ends: how the run ends on each machine, and pyinfra reports it
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, status: int, *ends: HostEnd) -> None:
        ends = ends or (HostEnd("up", findings=(GOOD,)),)
        super().__init__(folder, monkeypatch, *(answer(end.name, READY) for end in ends))
        event = json.dumps({"kind": "ended", "hosts": [end.to_json() for end in ends]})
        (folder / "events").write_text(f"{event}\n")
        (folder / "pyinfra").write_text(
            f'#!/bin/sh\necho "$@" "$GPUNODE_SET" > {folder}/words\n'
            f"echo SIMULATED pyinfra on $#\necho more >&2\n"
            f"cat {folder}/events >> $GPUNODE_EVENTS\nexit {status}\n"
        )
        (folder / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        for name in ("pyinfra", "python"):
            (folder / name).chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(folder / "python"))
        self.reports = tuple(NodeReport(end.name, (*end.refused, GOOD)) for end in ends)
        monkeypatch.setattr(drift, "inspect", self._inspect)
        monkeypatch.setattr(fleet, "read", self.read)

    def _inspect(self, *_: Any, limit: Collection[str] = ()) -> tuple[NodeReport, ...]:
        return tuple(each for each in self.reports if not limit or each.name in limit)
