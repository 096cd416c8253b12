"""What a run reports of a node that preflight refuses. The host is SIMULATED."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from pyinfra.context import ctx_host

import gpunode.deploys.component
from gpunode.base.reading import Unknown
from gpunode.facts.node import Machine as MachineFact
from gpunode.facts.node import Node as NodeFact
from gpunode.fleet import run_end
from gpunode.fleet.reports.run_end import report_of
from tests.support.simulated_host import Host
from tests.support.verify import DATA, GOOD

pytestmark = [pytest.mark.pure, pytest.mark.simulated]
BROKEN = replace(GOOD, containerd=replace(GOOD.containerd, active=False))
TOO_OLD = "preflight.cuda-driver-too-old"


class _Run:
    """Stand for pyinfra's state while a run is prepared."""

    is_executing = False


@pytest.mark.parametrize(
    ("readings", "others"),
    [
        ({NodeFact: BROKEN}, {"containerd.service"}),
        ({NodeFact: Unknown("no answer")}, set()),
        # The whole node cannot be read; the refusal stays.
        ({}, set()),
    ],
    ids=["broken", "no answer", "an error"],
)
def test_a_run_reports_what_is_broken_on_a_node_that_it_refuses(
    readings: dict[type, Any], others: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {**DATA, "driver": {"version": "570.172.08"}, "cuda": {"version": "13.0"}}
    host: Any = Host({MachineFact: BROKEN, **readings}, name="gpu-1", state=_Run())
    host.data = SimpleNamespace(dict=lambda: data, override_datas={})
    host.groups = []
    host.inventory = SimpleNamespace(get_data=dict, get_host_data=lambda _: data, get_override_data=dict, groups={})
    refused: list[list[str]] = []
    monkeypatch.setattr(gpunode.deploys.component, "host", host)
    monkeypatch.setattr(gpunode.deploys.component, "refuse", lambda name, reasons: refused.append(reasons))
    with ctx_host.use(host):
        assert not gpunode.deploys.component.accepted()
        report = report_of(run_end._end(host))
    assert report is not None and len(refused) == 1
    codes = {item.code for item in report.findings}
    assert TOO_OLD in codes and codes & {"containerd.service"} == others
