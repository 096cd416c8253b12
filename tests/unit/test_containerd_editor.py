"""The editor of containerd's root file."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from gpunode.components.containerd.drop_in import drop_in
from gpunode.components.containerd.editor import NVIDIA_RUNTIME, Runtimes, render
from gpunode.components.containerd.state import effective_runtimes
from gpunode.operations.containerd import PROGRAM
from tests.support.containerd_editor import FOREIGN

pytestmark = pytest.mark.pure
DATA = Path(__file__).parent / "data"
INPUTS = [
    ("in-containerd-debian12-packaged.toml", "1.6.20"),
    ("in-containerd16-kubeadm.toml", "1.6.20"),
    ("in-containerd16-kubeadm.toml", "1.7.24"),
    ("in-containerd16-kubeadm.toml", "2.1.9"),
    ("in-containerd2-kubeadm.toml", "2.1.9"),
]


@pytest.mark.parametrize("name, version", [*INPUTS, (None, "1.6.20"), (None, "2.1.9")])
def test_a_file_gets_nvidia_as_default_and_systemd_cgroups_keeps_all_else_and_settles(
    name: str | None, version: str
) -> None:
    before = (DATA / name).read_text() if name else None
    after, made = render(before, version, Runtimes()), drop_in(before, version, Runtimes())
    for text in (after, made):
        default, runtimes = effective_runtimes(text)
        assert default == "nvidia" and {each.name: each.systemd_cgroup for each in runtimes} == {
            "runc": True,
            "nvidia": True,
        }
    assert {each.name: each.binary for each in effective_runtimes(after)[1]} == {"runc": None, "nvidia": NVIDIA_RUNTIME}
    assert tomllib.loads(made)["version"] == tomllib.loads(after)["version"]
    assert render(after, version, Runtimes()) == after
    if before is not None:
        assert {line for line in before.splitlines() if "#" in line} <= set(after.splitlines())
        assert _without_ours(tomllib.loads(after)) == _without_ours(tomllib.loads(before))


def test_a_right_value_keeps_its_own_spelling() -> None:
    text = render(None, "1.7.24", Runtimes()).replace('"nvidia"', "'nvidia'").replace("= true", "=   true")
    assert "'nvidia'" in text
    assert render(text, "1.7.24", Runtimes()) == text


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


def _without_ours(document: dict[str, Any]) -> dict[str, Any]:
    """Return a parsed file without the keys that are gpunode's to set."""
    document.pop("version", None)
    for plugin in document.get("plugins", {}).values():
        containerd = plugin.get("containerd", {}) if isinstance(plugin, dict) else {}
        containerd.pop("default_runtime_name", None)
        for name in ("runc", "nvidia"):
            runtime = containerd.get("runtimes", {}).get(name, {})
            runtime.get("options", {}).pop("SystemdCgroup", None)
            runtime.get("options", {}).pop("BinaryName", None)
            for key in ("runtime_type", "privileged_without_host_devices"):
                runtime.pop(key, None)
            if runtime.get("options") == {}:
                runtime.pop("options")
            if runtime == {} and "runtimes" in containerd:
                containerd["runtimes"].pop(name, None)
        if containerd.get("runtimes") == {}:
            containerd.pop("runtimes")
        if containerd == {} and isinstance(plugin, dict):
            plugin.pop("containerd", None)
    plugins = {name: plugin for name, plugin in document.get("plugins", {}).items() if plugin != {}}
    return {key: value for key, value in {**document, "plugins": plugins}.items() if value != {}}


@given(foreign=FOREIGN, plugin=FOREIGN, runtimes=st.sampled_from(["nvidia", "runc"]), cgroup=st.booleans())
def test_any_file_keeps_its_foreign_keys_and_settles_after_one_edit(
    foreign: dict[str, Any], plugin: dict[str, Any], runtimes: str, cgroup: bool
) -> None:
    plugin.pop("containerd", None)
    for key in ("plugins", "version", "disabled_plugins"):
        foreign.pop(key, None)
    before = tomlkit.dumps({"version": 2, **foreign, "plugins": {"io.containerd.grpc.v1.cri": plugin}})
    asked = Runtimes(default=runtimes, systemd_cgroup=cgroup)
    after = render(before, "1.7.24", asked)
    assert _without_ours(tomllib.loads(after)) == _without_ours(tomllib.loads(before))
    assert effective_runtimes(after)[0] == runtimes
    assert render(after, "1.7.24", asked) == after
