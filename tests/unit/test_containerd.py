"""containerd: any file that is edited, the round trip through files and a drop-in, and what no output has."""

from __future__ import annotations

import base64
import json
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given

from gpunode.base.disruption import Disruption
from gpunode.components.runtimes.containerd.change import needed_change
from gpunode.components.runtimes.containerd.decide import Desired
from gpunode.components.runtimes.containerd.drop_in import PATH, drop_in, is_imported
from gpunode.components.runtimes.containerd.editor import render
from gpunode.components.runtimes.containerd.state import Containerd, DropIn, parse_containerd
from gpunode.components.runtimes.runtime import Runtimes
from gpunode.facts.runtimes import Containerd as ContainerdFact
from gpunode.operations import containerd
from gpunode.operations.containerd import PROGRAM
from tests.support.containerd import DATA, FOREIGN, spare, state
from tests.support.simulated_host import Host

pytestmark = pytest.mark.pure
ROOT_FILES = [
    ("in-containerd-debian12-packaged.toml", "1.6.20"),
    ("in-containerd16-kubeadm.toml", "1.6.20"),
    ("in-containerd16-kubeadm.toml", "1.7.24"),
    ("in-containerd16-kubeadm.toml", "2.1.9"),
    ("in-containerd2-kubeadm.toml", "2.1.9"),
    (None, "1.6.20"),
    (None, "2.1.9"),
]


@pytest.mark.parametrize(("name", "version"), ROOT_FILES)
def test_files_go_to_a_drop_in_and_back_and_settle_each_time(name: str | None, version: str) -> None:
    node = state(version, (DATA / name).read_text() if name else None)
    for placement in ("drop-in", "root", "drop-in"):
        node = _written(node, placement)
        assert needed_change(node, Runtimes(), placement) is None
        assert (node.drop_in(PATH) is not None) is (placement == "drop-in")
        assert is_imported(node.config_text) is (placement == "drop-in")


def _written(node: Containerd, placement: Any) -> Containerd:
    """Return the node with the files of its change."""
    change = needed_change(node, Runtimes(), placement)
    assert change is not None
    texts = {node.config_path: node.config_text, **{each.path: each.text for each in node.drop_ins}}
    texts |= {file.path: file.text for file in change.files}
    drop_ins = [DropIn(PATH, section=True, text=texts[PATH])] if texts.get(PATH) is not None else []
    return replace(node, config_text=texts[node.config_path], drop_ins=tuple(drop_ins))


@given(plugin=FOREIGN)
def test_any_section_is_repeated_whole_where_a_drop_in_takes_its_place(plugin: dict[str, Any]) -> None:
    plugin.pop("containerd", None)
    root = tomlkit.dumps({"version": 2, "plugins": {"io.containerd.grpc.v1.cri": plugin}})
    made = drop_in(root, "1.7.24", Runtimes())
    section = tomllib.loads(made)["plugins"]["io.containerd.grpc.v1.cri"]
    assert section.pop("containerd")["default_runtime_name"] == "nvidia"
    assert section == tomllib.loads(root)["plugins"].get("io.containerd.grpc.v1.cri", {})
    assert drop_in(root, "1.7.24", Runtimes()) == made


def test_texts_of_files_are_in_no_output_and_a_drop_in_that_is_no_toml_has_an_error() -> None:
    secret, broken = (base64.b64encode(text).decode() for text in (b'password = "hunter2"\n', b"= ="))
    node = parse_containerd([f"drop_in={secret} /a.toml", f"drop_in={broken} /c.toml"])
    node = replace(node, config_text="hunter2", merged_text="hunter2")
    assert "hunter2" not in json.dumps(node.to_json()) + repr(node)
    assert [each.error is None for each in node.drop_ins] == [True, False]


@pytest.mark.parametrize(("containers", "act"), [(2, "nothing"), (0, "restart")])
def test_a_node_restarts_nothing_where_the_decision_needs_no_restart(host: Host, containers: int, act: str) -> None:
    host.readings[ContainerdFact] = replace(spare(), shims=containers)
    (command,) = containerd.configuration._inner(desired=Desired(allowed=Disruption.nothing))
    assert f"\nact={act}\n" in base64.b64decode(command.connector_arguments["_stdin"][0]).decode()
    assert (host.refusals, host.noops) == ([], [])


CRI = 'plugins."io.containerd.grpc.v1.cri".containerd'


@pytest.mark.real
def test_the_node_s_own_check_does_not_take_a_default_s_name_for_the_default_beside_that_table(tmp_path: Path) -> None:
    program = tmp_path / "containerd"
    program.write_text('#!/bin/sh\ncat "$2"\n')
    program.chmod(0o755)
    script = PROGRAM.functions + '\neffective "$file"'

    def effective(text: str) -> list[str]:
        (tmp_path / "config.toml").write_text(text)
        environment = {"PATH": "/usr/bin:/bin", "binary": str(program), "checkpoint": str(tmp_path),
                       "file": str(tmp_path / "config.toml")}  # fmt: skip
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env=environment)
        return done.stdout.splitlines()

    text = render(None, "1.7.24", Runtimes())
    assert "containerd.default_runtime_name=nvidia" in effective(text)
    table = f"\n[{CRI}.default_runtime]\nruntime_type = "
    assert "containerd.default_runtime_name=nvidia" in effective(f'{text}{table}""\n')
    assert "containerd.default_runtime_name=nvidia" not in effective(f'{text}{table}"io.containerd.runc.v2"\n')
