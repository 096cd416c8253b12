"""MIG in settings and preflight: the declaration is read once, and judged on each GPU of the node."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpunode.base import tables
from gpunode.node.preflight import Refusal, cautions, refusals
from gpunode.settings import SettingsError, settings_from
from tests.support.messages import unnamed
from tests.support.preflight import TODAY, _gpu, machine

pytestmark = pytest.mark.pure

DECLARATION = """version: v1
mig-configs:
  mixed:
    - {devices: [0], mig-enabled: false}
    - {device-filter: '0x233010DE', devices: [1, 5], mig-enabled: true, mig-devices: {3g.40gb: %d, 1g.10gb: 1}}
    - {device-filter: '0x20B710DE', devices: all, mig-enabled: true, mig-devices: {1g.6gb: 4}}
  board:
    - {device-filter: '0x233010DE:0x16C010DE', devices: all, mig-enabled: true, mig-devices: {7g.80gb: 2}}
  rtx:
    - {devices: all, mig-enabled: true, mig-devices: {1g.24gb+gfx: 2, 2g.48gb: 1}}
"""
PAIR = (_gpu("2330"), _gpu("2330", "0000:1b:00.0"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a declaration that fits."""
    path = tmp_path / "mig.yaml"
    path.write_text(DECLARATION % 1)
    return path


def _refused(mig: dict[str, Any], gpus: tuple[Any, ...] = PAIR) -> tuple[Refusal, ...]:
    return refusals(settings_from({"mig": mig}), machine(gpus=gpus))


def _cautioned(mig: dict[str, Any], gpus: tuple[Any, ...] = PAIR) -> list[str]:
    told = cautions(settings_from({"mig": mig}), machine(gpus=gpus), today=TODAY)
    assert all(each.component == "mig" and each.source and each.remedy for each in told)
    return [each.reason for each in told]


def _coded(mig: dict[str, Any], gpus: tuple[Any, ...] = PAIR) -> dict[str, str]:
    """Return the reasons of the cautions by their codes, a line each."""
    reasons: dict[str, str] = {}
    for each in cautions(settings_from({"mig": mig}), machine(gpus=gpus), today=TODAY):
        reasons[each.code] = f"{reasons.get(each.code, '')}{each.reason}\n"
    return reasons


def _wrong(mig: dict[str, Any]) -> str:
    with pytest.raises(SettingsError) as refused:
        settings_from({"mig": mig})
    (problem,) = refused.value.problems
    return str(problem)


def test_a_published_layout_fits_the_product_that_it_is_published_for() -> None:
    assert _refused({"config": "all-balanced"}) == ()
    assert _refused({"config": "all-1g.10gb"}) == ()
    assert _refused({"config": "all-disabled"}, (_gpu("20B7"),)) == ()


def test_a_layout_published_for_other_products_alone_is_refused_with_those_for_this_one() -> None:
    (refusal,) = _refused({"config": "all-1g.5gb"})
    assert (refusal.component, refusal.code) == ("mig", "preflight.mig-not-published")
    assert unnamed(refusal.reason, "mig.config 'all-1g.5gb'", "H100-80GB") == []
    assert unnamed(refusal.remedy, "mig.config", "all-disabled, all-enabled, all-1g.10gb") == []
    assert "all-1g.5gb" not in refusal.remedy
    assert "published configurations" in refusal.source


def test_a_declaration_is_judged_by_index_and_device_id(file: Path) -> None:
    assert _refused({"config": "mixed", "file": str(file)}) == ()
    file.write_text(DECLARATION % 2)
    (refusal,) = _refused({"config": "mixed", "file": str(file)})
    assert refusal.code == "preflight.mig-no-place" and "0000:1b:00.0 (H100-80GB, GPU 1)" in refusal.reason
    assert "2 x 3g.40gb + 1g.10gb: they take 9 memory slices, and the GPU has 8" in refusal.reason
    assert ": 2 x 3g.40gb; 3g.40gb + 1g.10gb;" in refusal.remedy
    assert "gpunode/data/mig.yaml" in refusal.source
    # The GPU at index 0 alone has MIG off, and an A30 is asked for something else.
    assert _refused({"config": "mixed", "file": str(file)}, PAIR[:1]) == ()
    assert _refused({"config": "mixed", "file": str(file)}, (_gpu("20B7"),)) == ()


def test_eight_gpus_of_one_kind_are_refused_once(tmp_path: Path) -> None:
    path = tmp_path / "mig.yaml"
    path.write_text("version: v1\nmig-configs: {a: [{devices: all, mig-enabled: true, mig-devices: {7g.80gb: 2}}]}\n")
    eight = tuple(_gpu("2330", f"0000:{number:02x}:00.0") for number in range(8))
    assert len(_refused({"config": "a", "file": str(path)}, eight)) == 1


def test_what_cannot_be_judged_is_told_and_not_refused(file: Path) -> None:
    board = {"config": "board", "file": str(file)}
    assert _refused(board) == ()
    assert unnamed(_coded(board)["preflight.mig-not-judged"], "mig.config 'board'", "subsystem id") == []
    rtx = {"config": "rtx", "file": str(file)}
    assert _refused(rtx, (_gpu("2BB5"),)) == ()
    assert any("not verified" in reason for reason in _cautioned(rtx, (_gpu("2BB5"),)))
    unheard_of = (replace(_gpu("2330"), device_id="FFFE"),)
    assert _refused({"config": "all-balanced"}, unheard_of) == ()
    told = _coded({"config": "all-balanced"}, unheard_of)
    assert unnamed(told["preflight.mig-not-judged"], "mig.config 'all-balanced'", "GPU 0") == []


@pytest.mark.parametrize("device", ["2236", "27B8", "26B9", "26B5", "1EB8", "1DB1", "2235"])
def test_a_gpu_without_mig_is_refused_a_division_before_anything_is_installed(device: str, tmp_path: Path) -> None:
    gpu, path = _gpu(device), tmp_path / "own.yaml"
    (refusal,) = _refused({"config": "all-balanced"}, (gpu,))
    assert f"{gpu.name} at {gpu.address} has no MIG" in refusal.reason and "mig.config" in refusal.remedy
    path.write_text("version: v1\nmig-configs:\n  a: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 1}}]\n")
    assert len(_refused({"config": "a", "file": str(path)}, (gpu,))) == 1
    path.write_text("version: v1\nmig-configs:\n  a: [{devices: all, mig-enabled: false}]\n")
    assert _refused({"config": "a", "file": str(path)}, (gpu,)) == ()
    assert _refused({"config": "all-disabled"}, (gpu,)) == () and _cautioned({"config": "all-disabled"}, (gpu,)) == []


def test_beside_a_gpu_with_mig_one_without_it_stays_as_it_is() -> None:
    assert _refused({"config": "all-balanced"}, (_gpu("2330"), _gpu("27B8", "0000:1b:00.0"))) == ()


def test_every_gpu_of_the_pci_table_has_mig_or_has_it_not_as_the_tables_say() -> None:
    having = {device for row in tables.mig().products.values() for device in row.device_ids}
    for device in (*having, *tables.mig().without_profiles):
        known = tables.pci_device(device)
        assert known is not None and not known.chip.startswith(tables.mig().chips_without), device


def test_an_entry_for_one_board_is_for_that_board_and_no_other(file: Path) -> None:
    asked = {"config": "board", "file": str(file)}
    here, other = (replace(_gpu("2330"), subsystem_id=board) for board in ("16C010DE", "16C110DE"))
    (refusal,) = _refused(asked, (here,))
    assert "has no place" in refusal.reason
    assert _refused(asked, (other,)) == ()
    assert unnamed(_coded(asked, (other,))["preflight.mig-no-entry"], "mig.config 'board'") == []


def test_a_gpu_that_no_entry_is_for_is_told(file: Path) -> None:
    asked = {"config": "mixed", "file": str(file)}
    three = (*PAIR, _gpu("2330", "0000:1c:00.0"))
    assert unnamed(_coded(asked, three)["preflight.mig-no-entry"], "mig.config 'mixed'", "(GPU 2)") == []
    assert not [reason for reason in _cautioned(asked, three) if "(GPU 0)" in reason]


def test_a_gpu_that_the_node_lacks_and_what_is_odd_in_the_declaration_are_told(file: Path) -> None:
    file.write_text(DECLARATION.replace("[0]", "[0, -1]") % 1)
    told = _coded({"config": "mixed", "file": str(file)})
    assert unnamed(told["preflight.mig-oddity"], "mig-configs.mixed[0].devices = -1") == []
    assert unnamed(told["preflight.mig-beyond"], "mig-configs.mixed[1].devices", "GPU 5", "has 2") == []


def test_a_declaration_that_is_refused_is_a_mistake_in_the_settings(file: Path) -> None:
    file.write_text(DECLARATION.replace("version: v1", "version: v2") % 1)
    wrong = _wrong({"config": "mixed", "file": str(file)})
    assert "mig.file = " in wrong and "is refused: version = 'v2': must be 'v1'" in wrong


def test_a_configuration_that_there_is_not_is_a_mistake_in_the_settings(file: Path) -> None:
    assert unnamed(_wrong({"config": "mixt", "file": str(file)}), "mig.config = 'mixt'", "mixed, board, rtx") == []
    assert unnamed(_wrong({"config": "site"}), "mig.config = 'site'", "NVIDIA") == []


def test_a_file_without_a_configuration_is_a_mistake_in_the_settings(file: Path) -> None:
    assert unnamed(_wrong({"file": str(file)}), "mig.file", "config", "mixed, board, rtx") == []


@pytest.mark.parametrize("path", ["none.yaml", ".", "pipe"])
def test_what_is_no_readable_file_is_a_mistake_in_the_settings(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is refused: (document): " in _wrong({"config": "mixed", "file": str(tmp_path / path)})


def test_a_declaration_that_changed_after_validation_is_refused_and_no_traceback(file: Path) -> None:
    settings = settings_from({"mig": {"config": "mixed", "file": str(file)}})
    file.write_text("version: [")
    (refusal,) = refusals(settings, machine(gpus=PAIR))
    assert "is no YAML" in refusal.reason
    file.write_text("version: v1\n")
    (refusal,) = refusals(settings, machine(gpus=PAIR))
    assert (refusal.component, refusal.code) == ("mig", "preflight.mig-file-wrong")
    assert unnamed(refusal.reason, "mig-configs.mixed") == []
    assert not cautions(settings, machine(gpus=PAIR), today=TODAY)
