"""What each GPU of a node shall be by settings and reading, and what verdict and plan say of it."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.disruption import Disruption
from gpunode.base.findings import FindingClass, NodeReport
from gpunode.base.reading import ParseError
from gpunode.components.mig.boot import NAME, MigBoot, parse_mig_boot
from gpunode.components.mig.record import lines_of
from gpunode.components.mig.state import DISABLED, ENABLED, Mig, MigGpu
from gpunode.components.mig.target import Target, TargetError, targets
from gpunode.fleet.rollout.choice import left_out
from gpunode.node import Node
from gpunode.node.plan import Step, plan
from gpunode.settings import settings_from
from tests.support.messages import unnamed
from tests.support.mig_target import DECLARATION, H100, MIXED, OWN, RECORD, SECOND, boot_of, gpu, judged, node_with
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

BOARD = "device-filter: '0x233010DE:0x16C110DE', devices: all, mig"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "mig.yaml"
    path.write_text(DECLARATION)
    return str(path)


@pytest.mark.parametrize(("board", "acted_on"), [("16C110DE", 1), ("16C010DE", 0), (None, 0)])
def test_an_entry_for_one_board_is_acted_on_there_alone(tmp_path: Path, board: str | None, acted_on: int) -> None:
    (tmp_path / "mig.yaml").write_text(DECLARATION.replace("devices: [0], mig", BOARD, 1))
    asked = settings_from({"mig": {"config": "mixed", "file": str(tmp_path / "mig.yaml")}}).mig
    assert len(targets(asked, (replace(H100, subsystem_id=board),), Mig("ok", None, (gpu(),)))) == acted_on


def wanted(file: str, config: str, *gpus: MigGpu) -> tuple[Target, ...]:
    asked = settings_from({"mig": {"config": config, "file": file}}).mig
    return targets(asked, (H100, SECOND)[: len(gpus)], Mig("ok", None, gpus))


def test_a_gpu_without_mig_is_turned_on_and_divided_by_the_table(file: str) -> None:
    first, second = wanted(file, "mixed", gpu(0, DISABLED), gpu(1, ENABLED, "1g.10gb:0"))
    assert first.record == "GPU-0 on 3g.40gb:4=3 2g.20gb:2=2 1g.10gb:0=1 1g.10gb:1=1"
    assert first.steps.startswith("turn MIG on, create 3g.40gb:4 2g.20gb:2")
    assert second.record == "GPU-1 off" and second.steps == "turn MIG off, destroy 1g.10gb:0"
    assert first.disruption is second.disruption is Disruption.reset


def test_from_3g_2g_1g_1g_to_3g_2g_2g_the_record_keeps_the_places_of_the_3g_and_the_2g(file: str) -> None:
    (found,) = wanted(file, "wider", gpu(0, ENABLED, *MIXED))
    assert found.record == "GPU-0 on 3g.40gb:4=3 2g.20gb:0=2 2g.20gb:2=2"
    assert found.steps == "destroy 1g.10gb:0 1g.10gb:1, create 2g.20gb:0, keep 2g.20gb:2 3g.40gb:4"


def test_what_is_asked_for_is_the_same_target_wherever_the_instances_stand(file: str) -> None:
    (one,) = wanted(file, "pair", gpu(0, ENABLED, "3g.40gb:0"))
    (other,) = wanted(file, "pair", gpu(0, ENABLED, "3g.40gb:4"))
    assert one.record != other.record and one.goal == other.goal


def test_what_only_comes_takes_nothing_from_anybody(file: str) -> None:
    (found,) = wanted(file, "mixed", gpu(0, ENABLED, "3g.40gb:4"))
    assert found.disruption is Disruption.nothing and not found.is_reached


def test_a_pending_mode_is_taken_back(file: str) -> None:
    (found,) = wanted(file, "mixed", gpu(0, ENABLED, *MIXED, pending=DISABLED))
    assert not found.is_reached and unnamed(found.steps.partition(", keep")[0], "pending MIG mode Disabled") == []
    assert found.disruption is Disruption.nothing


def test_the_gpus_own_list_counts_for_more_than_the_table(file: str) -> None:
    elsewhere = tuple(replace(each, starts=(0,)) if each.name == "3g.40gb" else each for each in OWN)
    (found,) = wanted(file, "pair", gpu(0, ENABLED, profiles=elsewhere))
    assert "3g.40gb:0=3" in found.record
    lacking = tuple(each for each in OWN if each.name != "3g.40gb")
    with pytest.raises(TargetError, match=r"has no place on GPU 0.*no profile 3g\.40gb"):
        wanted(file, "pair", gpu(0, ENABLED, profiles=lacking))


def test_a_gpu_whose_places_nobody_verified_gets_its_mode_first(file: str) -> None:
    asked = settings_from({"mig": {"config": "unverified", "file": file}}).mig
    rtx = replace(H100, device_id="2BB5")
    (found,) = targets(asked, (rtx,), Mig("ok", None, (gpu(0, DISABLED, device_id="2BB5"),)))
    assert (found.learns, found.record) == (True, "GPU-0 on")


@pytest.mark.parametrize(
    ("state", "says"),
    [
        (Mig("hangs", None), "nvidia-smi does not tell what is there: hangs"),
        (Mig("ok", None, ()), r"GPU 0 \(0000:1a:00.0\) is not among those that nvidia-smi lists"),
        (Mig("ok", None, (gpu(0, ENABLED, instances=None),)), "instances of GPU 0 .* cannot be read"),
        (Mig("ok", None, (gpu(0, "[N/A]"),)), r"has no MIG: its mode is \[N/A\]"),
        (Mig("ok", None, (gpu(0, ENABLED, profiles=()),)), "has MIG on, and lists no profiles"),
    ],
)
def test_what_is_not_known_of_a_gpu_is_no_ground_to_act_on(file: str, state: Mig, says: str) -> None:
    asked = settings_from({"mig": {"config": "wider", "file": file}}).mig
    with pytest.raises(TargetError, match=says):
        targets(asked, (H100,), state)


def test_a_record_that_is_no_layout_is_told_from_one() -> None:
    assert lines_of("GPU-0 on 3g.40gb:4=3 1g.10gb+me:0=1\nGPU-1 off\n") is not None
    assert lines_of("GPU-0 on 3g.40gb:0=2,1\nGPU-2 on\n") is not None
    for wrong in ("GPU-0", "GPU-0 on $(reboot):4=3", "GPU-0 off 3g.40gb:4=3", "0 on"):
        assert lines_of(wrong) is None, wrong


def verdicts(file: str, node: Node, **more: Any) -> dict[str, FindingClass]:
    settings = settings_from({"mig": {"config": "mixed", "file": file}} | more)
    return {
        item.what: item.finding_class for item in judged(settings, node) if item.finding_class is not FindingClass.OK
    }


def test_a_node_that_is_divided_as_asked_and_stays_so_is_good(file: str) -> None:
    assert verdicts(file, node_with(gpu(0, ENABLED, *MIXED), boot=boot_of(RECORD))) == {}


@pytest.mark.parametrize(
    ("reading", "boot", "what", "finding"),
    [
        (gpu(0, ENABLED, *MIXED[:3]), boot_of(RECORD), "MIG instances of GPU 0", FindingClass.DRIFT),
        (gpu(0, ENABLED, *MIXED, pending=DISABLED), boot_of(RECORD), "MIG mode of GPU 0", FindingClass.DRIFT),
        (gpu(0, ENABLED, *MIXED), boot_of("GPU-0 off"), "layout for the next boot", FindingClass.DRIFT),
        (gpu(0, ENABLED, *MIXED), boot_of(RECORD, record=None), "layout for the next boot", FindingClass.DRIFT),
        (gpu(0, ENABLED, *MIXED), boot_of(RECORD, enabled=False), f"starts at boot: {NAME}", FindingClass.DRIFT),
        (gpu(0, ENABLED, *MIXED), boot_of(RECORD, failed=True), f"service {NAME}", FindingClass.DRIFT),
    ],
)
def test_each_difference_is_found_by_name(
    file: str, reading: MigGpu, boot: MigBoot, what: str, finding: FindingClass
) -> None:
    assert verdicts(file, node_with(reading, boot=boot)) == {what: finding}


def test_a_mode_that_waits_for_a_reset_is_pending(file: str) -> None:
    found = verdicts(file, node_with(gpu(0, DISABLED, pending=ENABLED), boot=boot_of(RECORD)))
    assert found["MIG mode of GPU 0"] is FindingClass.REBOOT_PENDING


def test_what_takes_from_containers_waits_until_the_settings_allow_it(file: str) -> None:
    node = node_with(gpu(0, ENABLED, "2g.20gb:4"), boot=boot_of(RECORD), shims=3)
    assert verdicts(file, node) == {"MIG instances of GPU 0": FindingClass.RESTART_PENDING}
    allowed = {"disruption": {"allow": "reset"}}
    assert verdicts(file, node, **allowed) == {"MIG instances of GPU 0": FindingClass.DRIFT}
    before = node_with(gpu(0, ENABLED, "2g.20gb:4"), boot=boot_of("GPU-0 on 2g.20gb:4=2"), shims=3)
    assert set(verdicts(file, before).values()) == {FindingClass.RESTART_PENDING}, "the run has done nothing wrong"
    idle = node_with(gpu(0, ENABLED, "2g.20gb:4"), boot=boot_of(RECORD))
    assert verdicts(file, idle) == {"MIG instances of GPU 0": FindingClass.DRIFT}


def test_what_takes_from_containers_on_one_gpu_holds_back_the_others_for_they_come_in_one_transaction(
    file: str,
) -> None:
    node = node_with(gpu(0, ENABLED, "1g.10gb:0"), gpu(1, ENABLED), boot=boot_of("GPU-0 on", "GPU-1 on"), shims=3)
    pair = {"mig": {"config": "both", "file": file}}
    assert verdicts(file, node, **pair) == {
        "MIG instances of GPU 0": FindingClass.RESTART_PENDING,
        "MIG instances of GPU 1": FindingClass.RESTART_PENDING,
        "layout for the next boot": FindingClass.RESTART_PENDING,
    }
    first, second = steps(file, node, **pair)
    assert second.action == "GPU 1: create 3g.40gb:4 2g.20gb:2" and first.pending and second.pending
    found = NodeReport("gpu-1", tuple(judged(settings_from(pair), node)))
    assert left_out(found, everyone=False, allowed=Disruption.restart) is not None, "no rollout takes the node for it"
    allowed = steps(file, node, **pair, disruption={"allow": "reset"})
    assert [(step.disruption, step.pending) for step in allowed] == [
        (Disruption.reset, False), (Disruption.nothing, False),
    ]  # fmt: skip
    idle = verdicts(file, replace(node, containerd=GOOD.containerd), **pair)
    assert set(idle.values()) == {FindingClass.DRIFT}


def test_what_brings_a_layout_back_goes_with_the_configuration() -> None:
    none = settings_from({})
    assert [item.actual for item in judged(none, node_with(gpu(), boot=boot_of(RECORD)))] == ["there"]
    assert not list(judged(none, node_with(gpu(0, ENABLED, *MIXED), boot=MigBoot())))


def steps(file: str, node: Node, **more: Any) -> list[Step]:
    settings = settings_from({"mig": {"config": "mixed", "file": file}} | more)
    return [step for step in plan(settings, node).steps if step.component == "mig"]


def test_the_plan_says_what_goes_what_comes_and_what_stays(file: str) -> None:
    node = node_with(gpu(0, ENABLED, "3g.40gb:4", "2g.20gb:0"), boot=MigBoot(), shims=1)
    (first,) = steps(file, node)
    assert first.action == "GPU 0: create 1g.10gb:2 1g.10gb:3, keep 2g.20gb:0 3g.40gb:4"
    assert first.disruption is Disruption.nothing and not first.pending
    (last,) = steps(file, node_with(gpu(0, ENABLED, *MIXED), boot=MigBoot(), shims=1))
    assert (last.code, last.pending) == ("mig.layout-for-the-next-boot", False)
    node = node_with(gpu(0, ENABLED, "3g.40gb:4", "2g.20gb:0", "2g.20gb:2"), boot=boot_of(RECORD), shims=1)
    first, *_ = steps(file, node)
    assert "destroy 2g.20gb:" in first.action and first.disruption is Disruption.reset and first.pending
    first, *_ = steps(file, node, disruption={"allow": "reset"})
    assert not first.pending


def test_the_plan_of_a_node_without_a_driver_has_the_division_after_it(file: str) -> None:
    node = replace(node_with(gpu(), boot=MigBoot(), status="absent"), mig=Mig("absent"))
    (step,) = steps(file, node)
    assert (step.code, step.pending) == ("mig.mig-configuration", False) and unnamed(step.action, "mixed") == []


def test_what_comes_back_at_a_boot_is_read() -> None:
    found = parse_mig_boot(
        ["file=/etc/x abc", "record=R1BVLTAgb2ZmCg==", "enabled=enabled", "active=inactive"]
    )  # fmt: skip
    digest = hashlib.sha256(b"GPU-0 off\n").hexdigest()
    assert found == MigBoot((("/etc/x", "abc"),), ("GPU-0 off",), True, True, record_digest=digest) and found.is_there
    assert not parse_mig_boot(["enabled=", "active=inactive"]).is_there
    assert parse_mig_boot(["record=", "empty=yes", "active=inactive"]).record == ()
    broken = parse_mig_boot(["record=eA==", "active=failed"])
    assert not broken.readable and broken.failed and broken.record is None and broken.is_there
    assert parse_mig_boot([]) == MigBoot(), "where no systemd runs"
    with pytest.raises(ParseError):
        parse_mig_boot(["file=/etc/x"])
