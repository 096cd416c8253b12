"""MIG in settings and preflight, as far as it is about files; what is said of declarations is in tests/cases."""

import os
from pathlib import Path

import pytest

from gpunode.base import tables
from gpunode.node.preflight import cautions, refusals
from gpunode.settings import SettingsError, settings_from
from tests.support.messages import unnamed
from tests.support.mig_check import DECLARATION
from tests.support.preflight import TODAY, _gpu, machine

pytestmark = pytest.mark.pure


def test_every_gpu_of_the_pci_table_has_mig_or_has_it_not_as_the_tables_say() -> None:
    having = {device for row in tables.mig().products.values() for device in row.device_ids}
    for device in (*having, *tables.mig().without_profiles):
        known = tables.pci_device(device)
        assert known is not None and not known.chip.startswith(tables.mig().chips_without), device


@pytest.mark.parametrize("path", ["none.yaml", ".", "pipe"])
def test_what_is_no_readable_file_is_a_mistake_in_the_settings(tmp_path: Path, path: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SettingsError) as refused:
        settings_from({"mig": {"config": "mixed", "file": str(tmp_path / path)}})
    assert [problem.key for problem in refused.value.problems] == ["mig.file"]


def test_a_declaration_that_changed_after_validation_is_refused_and_no_traceback(tmp_path: Path) -> None:
    file, there = tmp_path / "mig.yaml", machine(gpus=(_gpu("2330"),))
    file.write_text(DECLARATION)
    settings = settings_from({"mig": {"config": "mixed", "file": str(file)}})
    for text, named in (("version: [", "YAML"), ("version: v1\n", "mig-configs.mixed")):
        file.write_text(text)
        (refusal,) = refusals(settings, there)
        assert (refusal.component, refusal.code) == ("mig", "preflight.mig-file-wrong")
        assert unnamed(refusal.reason, named) == [] and not cautions(settings, there, today=TODAY)
