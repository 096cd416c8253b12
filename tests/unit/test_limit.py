"""`--limit`: pyinfra's own patterns, for check, plan, drift and facts."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from gpunode import cli
from gpunode.fleet.inventory import LimitError, limited, load_inventory
from tests.support import warm
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure
INVENTORY = 'left = ["gpu-1", "gpu-2"]\nright = ["gpu-10", "cpu-1"]\n'


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.py"
    path.write_text(INVENTORY)
    return path


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ((), ["gpu-1", "gpu-2", "gpu-10", "cpu-1"]),
        (("gpu-2",), ["gpu-2"]),
        (("gpu-*",), ["gpu-1", "gpu-2", "gpu-10"]),
        (("right",), ["gpu-10", "cpu-1"]),
        (("cpu-1", "gpu-1"), ["gpu-1", "cpu-1"]),
        (("left", "gpu-?"), ["gpu-1", "gpu-2"]),
    ],
)
def test_a_pattern_is_a_name_a_glob_or_a_group(inventory: Path, patterns: tuple[str, ...], names: list[str]) -> None:
    assert sorted(limited(load_inventory(inventory), patterns)) == sorted(names)


def test_a_pattern_that_names_no_host_is_refused_with_the_groups(inventory: Path) -> None:
    with pytest.raises(LimitError) as refused:
        limited(load_inventory(inventory), ("gpu-1", "gpu-3"))
    assert unnamed(str(refused.value), "gpu-3", "fleet", "left", "right") == []


def test_check_tells_of_these_hosts_alone_and_judges_all(inventory: Path, tmp_path: Path) -> None:
    done = warm.run("gpunode", "check", "--limit", "left", str(inventory), cwd=tmp_path)
    assert (done.returncode, unnamed(done.stdout, "2 hosts", "gpu-1, gpu-2")) == (0, [])
    inventory.write_text('left = ["gpu-1"]\nright = [("gpu-2", {"driver": {"branch": 580}})]\n')
    done = warm.run("gpunode", "check", "--limit", "left", str(inventory), cwd=tmp_path)
    assert done.returncode == 3 and "gpu-2" in done.stderr


@pytest.mark.parametrize("command", ["check", "plan", "drift", "facts", "apply --yes", "rollout --dry", "ci"])
def test_a_pattern_without_hosts_is_wrong_usage_before_any_connection(
    command: str, inventory: Path, tmp_path: Path
) -> None:
    (tmp_path / "deploys").mkdir()
    (tmp_path / "deploys/gpu_node.py").touch()
    done = warm.run("gpunode", *command.split(), str(inventory), "--limit", "gpu-3", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (64, "")
    assert unnamed(done.stderr, "--limit", "gpu-3", "fleet", "left", "right", "limit.no-host") == []


def test_no_command_takes_limit_that_is_not_tried_here() -> None:
    taking = {
        name for name, (module, attribute, _) in cli._COMMANDS.items()
        if any(each.name == "limit" for each in getattr(importlib.import_module(module), attribute).params)
    }  # fmt: skip
    # Of init it chooses among the hosts of a document: tests/unit/test_known_inventory.py.
    assert taking - {"init"} == {"check", "plan", "drift", "facts", "apply", "rollout", "ci"}


def test_hosts_of_recorded_facts_cannot_be_limited(tmp_path: Path) -> None:
    done = warm.run("gpunode", "plan", "--facts", "a", "--settings", "b", "--limit", "gpu-1", cwd=tmp_path)
    assert (done.returncode, unnamed(done.stderr, "--limit")) == (64, [])
