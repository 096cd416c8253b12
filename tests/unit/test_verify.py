"""The verdict: settings and a node's reading in, findings out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpunode.base.comparison import RUN
from gpunode.base.findings import ExitCode, FindingClass, verdict
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from gpunode.system.gpu import Gpus
from tests.support.verify import GOOD, RUNC_BY_DEFAULT, SETTINGS, bad

pytestmark = pytest.mark.pure


def test_a_node_that_is_as_asked_has_good_findings_only() -> None:
    assert bad(GOOD) == []
    assert len(judge(SETTINGS, GOOD)) > 12
    assert verdict(judge(SETTINGS, GOOD)) is ExitCode.GOOD
    assert verdict(judge(SETTINGS, replace(GOOD, containerd=RUNC_BY_DEFAULT))) is ExitCode.NEGATIVE


def nvcc_lost(source: str, **changes: Any) -> str:
    """Return the remedy for a missing nvcc."""
    runfile = {"release": "12.9.1", "runfile_sha256": "0" * 64}
    asked = {"source": source, "version": "12.9", **(runfile if source == "runfile" else {})}
    node = replace(GOOD, cuda=replace(GOOD.cuda, nvcc_version=None, **changes))
    found = judge(settings_from({"driver": {"version": "580.95.05"}, "cuda": asked}), node)
    return str(next(item.remedy for item in found if item.what == "nvcc"))


def test_a_run_brings_back_a_deleted_nvcc() -> None:
    assert {
        nvcc_lost("cuda-repository"), nvcc_lost("cuda-repository", versions=()),
        nvcc_lost("cuda-repository", default_path=None),
        nvcc_lost("runfile", by_runfile=("12.9",)),
    } == {RUN}  # fmt: skip


@pytest.mark.parametrize("status", ["hangs", "lost", "error"])
def test_a_sick_gpu_is_an_error_with_a_remedy(status: str) -> None:
    node = replace(GOOD, gpus=Gpus(status, 15, "GPU is lost", ()))
    assert bad(node) == [("GPUs by nvidia-smi", FindingClass.ERROR)]
    finding = next(item for item in judge(SETTINGS, node) if item.finding_class is FindingClass.ERROR)
    assert finding.cause and finding.remedy
    assert verdict(judge(SETTINGS, node)) is ExitCode.ERROR


def test_a_component_that_is_switched_off_is_not_judged() -> None:
    settings = settings_from({"cuda": {"enabled": False}, "containerd": {"enabled": False}})
    assert {item.component for item in judge(settings, GOOD)} == {"driver", "health", "toolkit", "repositories", "node"}
