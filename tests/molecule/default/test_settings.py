"""A converged node, and every setting of the model changed on it."""

from __future__ import annotations

from pathlib import Path

from tests.molecule.changed_settings import differences, inventory_of
from tests.molecule.conftest import converge, third_tier
from tests.support.changed_settings import changes

COMPONENTS = ("driver", "cuda", "toolkit", "containerd", "repositories", "proxy")


def test_a_changed_setting_is_the_same_difference_for_drift_plan_and_the_next_run(tmp_path: Path) -> None:
    asked = changes({"driver": {"version": "580.95.05"}}, *COMPONENTS)
    assert len(asked) > 30
    assert differences(tmp_path, {}, asked) == []


@third_tier
def test_so_is_one_of_docker_and_of_mig(tmp_path: Path) -> None:
    base: dict[str, dict[str, object]] = {"docker": {"enabled": True}, "mig": {"config": "all-2g.20gb"}}
    run = converge(inventory=inventory_of(tmp_path, base, ()))
    assert run.code == 0, run.printed
    asked = changes(base, "docker", "mig")
    assert len(asked) > 3
    assert differences(tmp_path, base, asked) == []
