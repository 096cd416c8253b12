"""CUDA is decided once: drift, plan and operations say the same of any node, and what the steps bring is enough."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.decision import Decision, bad
from gpunode.components.cuda.decide import Desired, Install, decide
from gpunode.components.cuda.state import ARCH_HOME, CudaToolkits
from gpunode.components.runfile import Runfile
from gpunode.facts.toolkit import CudaToolkits as CudaFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.node.plan import plan
from gpunode.operations import cuda
from gpunode.settings import settings_from
from gpunode.system.transaction import Journal
from tests.support.agreement import assert_planned, assert_whole
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

FILE = Runfile("cuda_12.9.1_575.57.08_linux.run", "https://x/y.run", "0" * 64)
RUNFILE = {"source": "runfile", "version": "12.9", "release": "12.9.1", "runfile_sha256": "0" * 64}
SOURCES = st.sampled_from(["cuda-repository", "runfile", "distribution"])


@st.composite
def _toolkits(draw: st.DrawFn) -> CudaToolkits:
    versions = draw(st.sets(st.sampled_from(["12.8", "12.9"])))
    by_runfile = draw(st.sets(st.sampled_from(sorted(versions)))) if versions else set()
    arch = draw(st.sampled_from([None, None, "12.8", "12.9"]))
    folders = [
        None,
        "/usr/local/cuda",
        *(f"/usr/local/cuda-{each}" for each in versions),
        *([ARCH_HOME] if arch else []),
    ]
    return CudaToolkits(
        (*sorted(versions), *([arch] if arch else [])),
        draw(st.sampled_from(folders)),
        draw(st.sampled_from([None, "12.8.93", "12.9.86"])),
        draw(st.booleans()),
        tuple(sorted(by_runfile)),
        draw(st.sampled_from([(), (("12.9", "12.9.0"),), (("12.9", "12.9.1"),)])),
        draw(st.sampled_from([None, None, "12.9"])),
        arch,
    )


TOOLKITS = _toolkits()


def _applied(decision: Decision[Install | str], desired: Desired, there: CudaToolkits) -> CudaToolkits:
    """Return what the steps leave behind, each done as its change says."""
    if there.interrupted is not None and desired.source != "runfile":
        # It is undone first; with a .run file it may have been whole.
        others = tuple(each for each in there.by_runfile if each != there.interrupted)
        there = replace(there, interrupted=None, by_runfile=others)
    for step in decision.steps:
        if step.action.startswith("install"):
            there = replace(there, versions=(*there.versions, desired.version))
            if isinstance(step.change, Install):
                there = replace(there, by_runfile=("12.9",), releases=(("12.9", step.change.release),))
            if desired.source == "distribution":
                there = replace(there, arch_version=desired.version)
            if there.default_path is None:
                there = replace(there, default_path=desired.home)
            there = replace(there, nvcc_version=f"{there.default_version}.99")
        elif isinstance(step.change, str):
            there = replace(there, default_path=step.change, nvcc_version=f"{desired.version}.99")
        else:
            there = replace(there, profile=True)
    return there


@given(there=TOOLKITS, source=SOURCES, profile=st.booleans())
def test_every_difference_of_cuda_is_a_step_s_or_a_person_s_and_the_steps_are_enough(
    there: CudaToolkits, source: str, profile: bool
) -> None:
    desired = Desired("12.9", source, "12.9.1" if source == "runfile" else None, profile)
    decision = decide(desired, there)
    assert_whole(decision)
    after = decide(desired, _applied(decision, desired, there))
    assert after.steps == ()
    by_person = [item for item in bad(*decision.findings) if not any(item in step.settles for step in decision.steps)]
    assert {item.what for item in bad(*after.findings)} <= {item.what for item in by_person}


@given(there=TOOLKITS, source=st.sampled_from(["cuda-repository", "runfile"]), profile=st.booleans())
def test_of_cuda_drift_and_plan_say_the_same(there: CudaToolkits, source: str, profile: bool) -> None:
    asked = {"profile": profile, **(RUNFILE if source == "runfile" else {"source": source, "version": "12.9"})}
    settings = settings_from({"driver": {"version": "580.95.05"}, "cuda": asked})
    assert_planned("cuda", settings, replace(GOOD, cuda=there))


@given(there=TOOLKITS, source=SOURCES)
def test_the_operations_of_cuda_do_what_the_decision_promises(there: CudaToolkits, source: str) -> None:
    desired = Desired("12.9", source, "12.9.1" if source == "runfile" else None)
    decision = decide(desired, there)
    host = Host({CudaFact: there, TransactionJournal: Journal(None, None, None, False)})
    with ctx_host.use(host):
        before: dict[str, Any] = {"file": FILE, "proxies": {}} if source == "runfile" else {}
        first = cuda.installed if source == "runfile" else cuda.none_half_installed
        installs = commands(first, host, desired=desired, **before)
        assert host.refusals == ([decision.refusal] if decision.refusal else [])
        assert (installs != []) == any(isinstance(step.change, Install) for step in decision.steps)
        links = commands(cuda.linked, host, desired=desired)
    # Where the toolkit brings the link, its operation is asked again behind it.
    brings = any(len(step.settles) > 1 and "install" in step.action for step in decision.steps)
    promised = any(isinstance(step.change, str) for step in decision.steps)
    assert (links != []) == promised or (brings and there.default_path is None)


def test_a_folder_in_the_place_of_the_link_is_told_by_drift_as_by_the_run(host: Host) -> None:
    there = replace(GOOD.cuda, default_path="/usr/local/cuda", nvcc_version=None)
    settings = settings_from({"driver": {"version": "580.95.05"}})
    steps = plan(settings, replace(GOOD, cuda=there)).steps
    assert steps and all(step.pending and "/usr/local/cuda" in str(step.cause) for step in steps)
    host.readings |= {CudaFact: there, TransactionJournal: Journal(None, None, None, False)}
    # Before gigabytes come.
    assert commands(cuda.none_half_installed, host, desired=Desired("12.9")) == []
    assert unnamed(host.refusals[0], "/usr/local/cuda", "no link") == []


@pytest.mark.parametrize("asked", [{"version": "12.9"}, RUNFILE])
def test_another_compiler_in_the_right_folder_is_installed_anew_where_a_run_can_do_that(asked: dict[str, Any]) -> None:
    there = replace(
        GOOD.cuda, nvcc_version="12.8.93", releases=(("12.9", "12.9.1"),),
        by_runfile=("12.9",) if "source" in asked else (),
    )  # fmt: skip
    settings = settings_from({"driver": {"version": "580.95.05"}, "cuda": asked})
    (step,) = plan(settings, replace(GOOD, cuda=there)).steps
    # Packages count as installed: a run installs those again whose files are lost or altered.
    assert not step.pending and step.action.startswith("install" if "source" in asked else "reinstall")


def test_arch_s_own_toolkit_is_not_there_where_another_of_that_version_is() -> None:
    there = CudaToolkits(("12.9",), "/usr/local/cuda-12.9", "12.9.86", True, ("12.9",))
    (step,) = decide(Desired("12.9", "distribution"), there).steps
    assert step.action == "install CUDA toolkit 12.9" and step.change is None
