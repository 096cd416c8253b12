"""A Slurm node: what its probe says, which devices it offers, and what is to be done about it."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.context import ctx_host

from gpunode.base.decision import bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass
from gpunode.base.reading import ParseError
from gpunode.components.mig.state import ComputeInstance, GpuInstance, Mig, MigGpu
from gpunode.components.slurm.decide import Desired, decide
from gpunode.components.slurm.devices import Untold, devices, gres_of, texts, type_of
from gpunode.components.slurm.state import GRES, NODES, Capability, Slurm, SlurmGpu, SlurmUnit, parse_slurm
from gpunode.components.slurm.topology import cores_of, near_cores, numbers, ranges
from gpunode.facts.mig import Mig as MigFact
from gpunode.facts.slurm import Slurm as SlurmFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.node.preflight import cautions, refusals
from gpunode.operations import slurm
from gpunode.settings import SettingsError, settings_from
from gpunode.settings.slurm import SlurmSettings
from gpunode.system.transaction import Journal
from tests.support.messages import unnamed
from tests.support.simulated_host import Host, commands
from tests.support.verify import DATA, GOOD

pytestmark = pytest.mark.pure
# As slurmd 22.05.8 and slurmctld of Debian print it.
HARDWARE = "NodeName=gpu-1 CPUs=4 Boards=1 SocketsPerBoard=2 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=24105"
SHOWN = "NodeName=gpu-1 Arch=x86_64 Gres=gpu:h100:2(S:0-1) State=IDLE Partitions=all"
OUT = f"{SHOWN} Reason=gres/gpu count reported lower than configured (1 < 2) [slurm@2026-11-24T11:12:19]"
NO_MIG = Mig("ok")
UP = SlurmUnit(active=True, enabled=True, stale=False)
H100 = "NVIDIA H100 80GB HBM3"
BARE = Slurm(
    "22.05.8",
    configured=True,
    hardware=HARDWARE,
    types=("gpu",),
    includes=(("/etc/slurm/gres.conf", GRES), ("/etc/slurm/slurm.conf", "gpunode-nodes.conf")),
    slurmd=UP,
    gpus=(SlurmGpu("0000:18:00.0", 0, H100, (0, 1)), SlurmGpu("0000:2a:00.0", 1, H100, (2, 3))),
    cores=((0,), (1,), (2,), (3,)),
    node=SHOWN,
)
ASKED = SlurmSettings(enabled=True)
RIGHT = replace(BARE, texts=tuple(texts(ASKED, BARE, NO_MIG).items()))
MIXED = Mig(
    "ok",
    None,
    (
        MigGpu("0", "GPU-0", "0000:18:00.0", "2330", H100, "Disabled", "Disabled"),  # type: ignore[arg-type]
        MigGpu(
            1, "GPU-1", "0000:2a:00.0", "2330", H100, "Enabled", "Enabled",
            (
                GpuInstance(9, 19, "1g.10gb", 0, 1, (ComputeInstance(0, 0, "1g.10gb", 0, 1),)),
                GpuInstance(2, 9, "3g.40gb", 4, 4, (ComputeInstance(0, 2, "3g.40gb", 0, 3),)),
            ),
        ),
    ),
)  # fmt: skip
DIVIDED = replace(
    BARE,
    capabilities=(
        Capability(1, 9, None, 219), Capability(1, 9, 0, 220), Capability(1, 2, None, 156), Capability(1, 2, 0, 157),
    ),
)  # fmt: skip


def settings(**slurm: Any) -> Any:
    return settings_from({**DATA, "slurm": {"enabled": True, **slurm}})


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_the_probe_is_read_whole() -> None:
    found = parse_slurm(
        [
            f"file={GRES} {_encoded('Name=gpu')}",
            "version=slurm-wlm 22.05.8",
            f"hardware={HARDWARE}",
            "types=GresTypes=tmp",
            "types=  grestypes = GPU,mps # ours",
            f"include=/etc/slurm/gres.conf:Include {GRES}",
            "include=/etc/slurm/slurm.conf:include gpunode-nodes.conf # ours",
            "configured=yes",
            "unit=slurmd\tactive\tenabled\tTue 2026-11-24 11:12:19.500000 UTC",
            "unit=slurmctld\tinactive\tdisabled\t",
            "written=1795518739.400000",
            "written=1795518739.600000",
            f"gpu=0000:18:00.0\t0\t0-1\t{H100}",
            "capability=gpu0/mig/gi1 12",
            "capability=gpu0/mig/gi1/ci0 13",
            "cpu=0,0,0,0",
            "steps=2",
            f"node={OUT}",
        ]
    )
    assert (found.version, found.configured, found.types, found.steps) == ("22.05.8", True, ("gpu", "mps"), 2)
    assert found.included_in(GRES) == "/etc/slurm/gres.conf" and found.included_in(NODES) == "/etc/slurm/slurm.conf"
    assert found.slurmd == SlurmUnit(active=True, enabled=True, stale=True)
    assert found.slurmctld == SlurmUnit(active=False, enabled=False, stale=False)
    assert found.gpus == (SlurmGpu("0000:18:00.0", 0, H100, (0, 1)),) and found.texts == ((GRES, "Name=gpu"),)
    assert found.capabilities == (Capability(0, 1, None, 12), Capability(0, 1, 0, 13))
    assert found.host_name == "gpu-1" and found.gres == "gpu:h100:2(S:0-1)"
    assert found.reason == "gres/gpu count reported lower than configured (1 < 2)"
    assert parse_slurm([]) == Slurm()


@given(lines=st.lists(st.builds("{}={}".format, st.sampled_from(["gpu", "unit", "cpu", "file", "steps"]), st.text())))
def test_any_answer_is_read_or_refused_in_words(lines: list[str]) -> None:
    try:
        parse_slurm(lines)
    except ParseError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("product", "kind"),
    [
        (H100, "h100"), ("NVIDIA A100-SXM4-40GB", "a100"), ("Tesla T4", "t4"), ("NVIDIA L40S", "l40s"),
        ("NVIDIA GeForce RTX 4090", "rtx_4090"), ("NVIDIA GeForce GTX 1080 Ti", "gtx_1080_ti"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx_6000"), ("NVIDIA GH200 480GB", "gh200"), ("NVIDIA TITAN V", "titan_v"),
        ("", "gpu"),
    ],
)  # fmt: skip
def test_a_type_is_the_short_name_of_its_product(product: str, kind: str) -> None:
    assert type_of(product) == kind


@given(text=st.text())
def test_a_type_of_any_product_is_one_that_slurm_takes(text: str) -> None:
    kind = type_of(text)
    assert kind and not set(kind) - set("abcdefghijklmnopqrstuvwxyz0123456789_.")


def test_whole_gpus_stand_in_one_line_and_those_near_other_cores_in_another() -> None:
    near = texts(ASKED, BARE, NO_MIG)
    assert near[GRES].splitlines()[1:] == [
        "NodeName=gpu-1 AutoDetect=off Name=gpu Type=h100 File=/dev/nvidia0 Cores=0-1",
        "NodeName=gpu-1 AutoDetect=off Name=gpu Type=h100 File=/dev/nvidia1 Cores=2-3",
    ]
    assert near[NODES].splitlines()[1:] == ["NodeName=gpu-1 Gres=gpu:h100:2"]
    # Slurm counts devices by their PCI addresses, in whichever order they are told.
    assert texts(ASKED, replace(BARE, gpus=BARE.gpus[::-1]), NO_MIG) == near
    alike = texts(ASKED.model_copy(update={"cores": False, "type": "big", "node_name": "n1"}), BARE, NO_MIG)
    assert alike[GRES].splitlines()[1:] == ["NodeName=n1 AutoDetect=off Name=gpu Type=big File=/dev/nvidia[0-1]"]
    measured = texts(ASKED.model_copy(update={"node_hardware": True}), BARE, NO_MIG)[NODES]
    assert measured.splitlines()[1] == f"{HARDWARE} Gres=gpu:h100:2"
    assert set(texts(ASKED.model_copy(update={"node_line": False}), BARE, NO_MIG)) == {GRES}
    by_nvml = texts(ASKED.model_copy(update={"autodetect": "nvml"}), BARE, NO_MIG)
    assert by_nvml[GRES].splitlines()[1:] == ["NodeName=gpu-1 AutoDetect=nvml"]


def test_a_mig_device_is_one_resource_of_its_gpu_and_its_two_capabilities() -> None:
    every = devices(ASKED.model_copy(update={"cores": False}), DIVIDED, MIXED)
    assert [(each.type, each.files) for each in every] == [
        ("h100", ("/dev/nvidia0",)),
        ("3g.40gb", ("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap156", "/dev/nvidia-caps/nvidia-cap157")),
        ("1g.10gb", ("/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap219", "/dev/nvidia-caps/nvidia-cap220")),
    ]
    assert gres_of(every) == "gpu:h100:1,gpu:3g.40gb:1,gpu:1g.10gb:1"
    line = texts(ASKED, DIVIDED, MIXED)[GRES].splitlines()[2]
    assert "Type=3g.40gb MultipleFiles=/dev/nvidia1,/dev/nvidia-caps/nvidia-cap156," in line
    with pytest.raises(Untold, match="shows no device of instance 2"):
        devices(ASKED, BARE, MIXED)
    with pytest.raises(Untold, match="nvidia-smi does not tell which"):
        devices(ASKED, DIVIDED, Mig("hangs"))
    with pytest.raises(Untold, match="shows no GPU"):
        devices(ASKED, replace(BARE, gpus=()), NO_MIG)


def test_cores_are_counted_socket_by_socket_however_the_kernel_counts() -> None:
    # CPU,CORE,SOCKET,NODE of two sockets whose CPUs alternate, with two threads each.
    rows = ["0,0,0,0", "1,1,1,1", "2,2,0,0", "3,3,1,1", "4,0,0,0", "5,1,1,1", "6,2,0,0", "7,3,1,1"]
    cores = cores_of(rows)
    assert cores == ((0, 4), (2, 6), (1, 5), (3, 7))
    assert near_cores(cores, (1, 3, 5, 7)) == "2-3" and near_cores(cores, range(8)) is None
    assert near_cores(cores, ()) is None


@given(values=st.sets(st.integers(0, 8191)))
def test_what_is_written_as_ranges_reads_back(values: set[int]) -> None:
    assert set(numbers(ranges(values))) == values


ACTUAL = st.builds(
    lambda **changes: replace(RIGHT, **changes),
    texts=st.sampled_from([RIGHT.texts, (), RIGHT.texts[:1], ((GRES, "mine"), RIGHT.texts[1])]),
    includes=st.sampled_from([BARE.includes, BARE.includes, (), BARE.includes[:1]]),
    slurmd=st.sampled_from([UP, UP, replace(UP, stale=True), replace(UP, active=False)]),
    slurmctld=st.sampled_from([None, UP]),
    node=st.sampled_from([SHOWN, SHOWN, OUT, SHOWN.replace("h100:2", "h100:1"), None]),
    steps=st.sampled_from([0, 0, 3]),
    types=st.sampled_from([("gpu",), ("gpu",), ()]),
    gpus=st.sampled_from([BARE.gpus, BARE.gpus, ()]),
)
ASKS = st.builds(
    SlurmSettings, enabled=st.sampled_from([True, True, False]), node_line=st.booleans(), cores=st.booleans()
)


@given(asked=ASKS, actual=ACTUAL, allowed=st.sampled_from(list(Disruption)))
def test_every_difference_is_a_steps_or_a_persons_and_the_steps_leave_none(
    asked: SlurmSettings, actual: Slurm, allowed: Disruption
) -> None:
    decision = decide(Desired(asked, allowed), actual, NO_MIG)
    settled = {item for step in decision.steps for item in step.settles}
    assert {item for item in bad(*decision.findings) if item not in settled} <= {
        item for item in decision.findings if item.by_person
    }
    assert all(step.waits is None or actual.steps for step in decision.steps)
    changes = [step.change for step in decision.steps if step.change is not None and step.waits is None]
    if not changes:
        return
    (change, *others) = changes
    assert all(other == change for other in others)
    kept = {path: text for path, text in actual.texts if path not in change.removed} | dict(change.written)
    after = replace(actual, texts=tuple(kept.items()))
    if change.restart:
        after = replace(after, slurmd=UP)
    if change.controller:
        after = replace(after, node=SHOWN)
    if change.resume and after.node is not None:
        after = replace(after, node=after.node.partition(" Reason=")[0])
    again = decide(Desired(asked, allowed), after, NO_MIG)
    assert not again.steps, again.steps


def test_a_node_as_desired_needs_nothing_and_its_text_may_not_be_another() -> None:
    assert not bad(*decide(Desired(ASKED), RIGHT, NO_MIG).findings)
    other = replace(RIGHT, texts=((GRES, RIGHT.texts[0][1].replace("h100", "a100")), RIGHT.texts[1]))
    (step,) = decide(Desired(ASKED), other, NO_MIG).steps
    assert step.action == f"write {GRES} anew" and step.change is not None and step.change.restart
    assert not step.change.controller
    foreign = replace(RIGHT, texts=((GRES, "mine"),))
    refused = decide(Desired(ASKED), foreign, NO_MIG)
    assert refused.refusal is not None and "not of gpunode's making" in refused.refusal and not refused.steps


def test_devices_do_not_change_under_steps_of_jobs_unless_reset_is_allowed() -> None:
    busy = replace(RIGHT, texts=(), steps=2)
    waits = decide(Desired(ASKED, Disruption.restart), busy, NO_MIG)
    assert {item.finding_class for item in bad(*waits.findings)} == {FindingClass.RESTART_PENDING}
    assert all(unnamed(step.waits, "(2)", "disruption.allow") == [] for step in waits.steps)
    assert all(step.waits is None for step in decide(Desired(ASKED, Disruption.reset), busy, NO_MIG).steps)
    # A slurmd that starts as it was keeps its jobs.
    down = replace(RIGHT, steps=2, slurmd=replace(UP, active=False))
    (step,) = decide(Desired(ASKED, Disruption.nothing), down, NO_MIG).steps
    assert (step.action, step.waits) == ("start slurmd", None)


def test_a_file_that_the_site_includes_stays_until_it_does_not() -> None:
    off = SlurmSettings(enabled=False)
    kept = decide(Desired(off), RIGHT, NO_MIG)
    assert not kept.steps and all(item.by_person for item in bad(*kept.findings)) and len(bad(*kept.findings)) == 2
    (first, second) = decide(Desired(off), replace(RIGHT, includes=()), NO_MIG).steps
    assert first.change == second.change and first.change is not None and first.change.removed == (GRES, NODES)
    assert decide(Desired(off), BARE, NO_MIG).findings == ()


def test_a_controller_elsewhere_is_a_persons_and_one_here_is_restarted() -> None:
    few = replace(RIGHT, node=SHOWN.replace("h100:2", "h100:1"))
    (told,) = bad(*decide(Desired(ASKED), few, NO_MIG).findings)
    assert told.by_person and told.cause == "slurmctld, on another machine, reads another line: restart it there"
    (step,) = decide(Desired(ASKED), replace(few, slurmctld=UP), NO_MIG).steps
    assert step.action.startswith("restart slurmctld") and step.change is not None and step.change.controller
    (out,) = decide(Desired(ASKED), replace(RIGHT, node=OUT), NO_MIG).steps
    assert out.change is not None and out.change.resume


@pytest.mark.parametrize(
    ("actual", "asked", "said"),
    [
        (Slurm(), {}, "there is no slurmd on this node"),
        (replace(BARE, configured=False), {}, "there is no /etc/slurm/slurm.conf"),
        (replace(BARE, types=("mps",)), {}, "GresTypes of /etc/slurm/slurm.conf names mps, and no gpu"),
        (replace(BARE, version="19.05.5"), {}, "knows no AutoDetect=off"),
        (BARE, {"autodetect": "nvml"}, "built without NVML"),
    ],
)
def test_a_slurm_that_cannot_offer_gpus_is_refused_with_what_to_do(
    actual: Slurm, asked: dict[str, str], said: str
) -> None:
    (refusal,) = refusals(settings(**asked), replace(GOOD.machine, slurm=actual))
    assert refusal.component == "slurm" and said in refusal.reason and refusal.remedy
    decision = decide(Desired(settings(**asked).slurm), actual, NO_MIG)
    assert decision.refusal is not None and said in decision.refusal and not decision.steps


def test_an_old_slurm_is_refused_for_mig_devices_and_numbers_of_them_are_told() -> None:
    old = decide(Desired(ASKED), replace(DIVIDED, version="20.11.9"), MIXED)
    assert old.refusal is not None and "knows no MultipleFiles" in old.refusal
    divided = settings_from({**DATA, "slurm": {"enabled": True}, "mig": {"config": "all-1g.10gb"}})
    told = [
        item.reason for item in cautions(divided, replace(GOOD.machine, slurm=DIVIDED)) if item.component == "slurm"
    ]
    assert len(told) == 1 and "without NVML" in told[0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"node_line": False, "node_hardware": True}, {"node_name": "gpu-[1-8]"}, {"type": "h 100"}, {"type": "a,b"},
        {"node_name": "a Gres=gpu:9"}, {"autodetect": "rsmi"},
    ],
)  # fmt: skip
def test_settings_that_no_line_of_slurms_can_hold_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"slurm\."):
        settings(**wrong)


@pytest.mark.parametrize(
    ("actual", "allowed", "given", "noop", "refused"),
    [
        (RIGHT, "restart", 0, "Slurm knows the GPUs as desired", ""),
        (BARE, "restart", 1, "", ""),
        (replace(BARE, steps=1), "restart", 0, "restart pending: steps of jobs run (1)", ""),
        (replace(BARE, steps=1), "reset", 1, "", ""),
        (replace(BARE, gpus=()), "restart", 0, "", "slurm: the driver shows no GPU"),
        (Slurm(), "restart", 0, "", "slurm: there is no slurmd on this node"),
    ],
)
def test_the_operation_carries_out_what_was_decided(
    actual: Slurm, allowed: str, given: int, noop: str, refused: str
) -> None:
    host = Host({SlurmFact: actual, MigFact: NO_MIG, TransactionJournal: Journal(None, None, None, False)})
    with ctx_host.use(host):
        found = commands(slurm.devices, host, settings=ASKED, allowed=allowed)
    assert len(found) == given
    assert [text[: len(noop)] for text in host.noops] == ([noop] if noop else [])
    assert [text[: len(refused)] for text in host.refusals] == ([refused] if refused else [])
