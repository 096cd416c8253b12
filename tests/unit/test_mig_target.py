"""What each GPU of a node shall be, where its board or its own list counts; the rest is in tests/cases."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpunode.base.findings import FindingClass
from gpunode.components.mig.boot import MigBoot
from gpunode.components.mig.decide import Actual, Desired, decide
from gpunode.components.mig.state import ENABLED, Mig, OwnProfile
from gpunode.components.mig.target import TargetError, targets
from gpunode.settings import settings_from
from tests.support.messages import unnamed
from tests.support.mig_target import DECLARATION, H100, OWN, gpu, targeted

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(("board", "acted_on"), [("16C110DE", 1), ("16C010DE", 0), (None, 0)])
def test_an_entry_for_one_board_is_acted_on_there_alone(tmp_path: Path, board: str | None, acted_on: int) -> None:
    entry = "device-filter: '0x233010DE:0x16C110DE', devices: all, mig"
    (tmp_path / "mig.yaml").write_text(DECLARATION.replace("devices: [0], mig", entry, 1))
    asked = settings_from({"mig": {"config": "mixed", "file": str(tmp_path / "mig.yaml")}}).mig
    gpus, actual = (replace(H100, subsystem_id=board),), Mig("ok", None, (gpu(),))
    assert len(targets(asked, gpus, actual)) == acted_on
    decision = decide(Desired(asked, gpus), Actual(actual, MigBoot()))
    unknown = [item for item in decision.findings if item.finding_class is FindingClass.NOT_KNOWN]
    # Of a GPU whose board nothing tells.
    assert [item.what for item in unknown] == (["MIG instances of GPU 0"] if board is None else [])
    assert not {item for step in decision.steps for item in step.settles} & set(unknown)


def test_the_gpus_own_list_counts_for_more_than_the_table() -> None:
    def listed(*profiles: OwnProfile) -> str:
        (found,) = targeted("pair", ["on"], changes={"profiles": profiles})
        return found.record

    elsewhere = (replace(each, starts=(0,)) if each.name == "3g.40gb" else each for each in OWN)
    assert "3g.40gb:0=3" in listed(*elsewhere)
    with pytest.raises(TargetError) as refused:
        listed(*(each for each in OWN if each.name != "3g.40gb"))
    assert unnamed(str(refused.value), "GPU 0", "3g.40gb") == []
    assert gpu(0, ENABLED).own_geometry is not None
