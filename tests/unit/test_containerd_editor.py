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

from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.containerd.drop_in import drop_in
from gpunode.components.containerd.editor import Runtimes, render
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


def asked_for(text: str) -> tuple[Any, ...]:
    default, runtimes = effective_runtimes(text)
    return default, {runtime.name: (runtime.systemd_cgroup, runtime.binary) for runtime in runtimes}


@pytest.mark.parametrize("name, version", [*INPUTS, (None, "1.6.20"), (None, "2.1.9")])
def test_a_file_becomes_one_with_nvidia_as_default_and_systemd_cgroups(name: str | None, version: str) -> None:
    text = (DATA / name).read_text() if name else None
    assert asked_for(render(text, version, Runtimes())) == (
        "nvidia",
        {"runc": (True, None), "nvidia": (True, "/usr/bin/nvidia-container-runtime")},
    )


@pytest.mark.parametrize("name, version", INPUTS)
def test_comments_and_foreign_keys_are_kept(name: str, version: str) -> None:
    before = (DATA / name).read_text()
    after = render(before, version, Runtimes())
    for line in before.splitlines():
        if "#" in line:
            assert line in after.splitlines()
    assert _without_ours(tomllib.loads(after)) == _without_ours(tomllib.loads(before))


@pytest.mark.parametrize("name, version", INPUTS)
def test_a_file_that_is_right_comes_back_to_the_letter(name: str, version: str) -> None:
    once = render((DATA / name).read_text(), version, Runtimes())
    assert render(once, version, Runtimes()) == once


def test_a_right_value_keeps_its_own_spelling() -> None:
    text = render(None, "1.7.24", Runtimes()).replace('"nvidia"', "'nvidia'").replace("= true", "=   true")
    assert "'nvidia'" in text
    assert render(text, "1.7.24", Runtimes()) == text


@pytest.mark.parametrize(
    "before",
    [
        None,
        'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]\n'
        "privileged_without_host_devices = true\n",
    ],
)
def test_a_privileged_container_sees_the_host_s_devices(before: str | None) -> None:
    plugin = tomllib.loads(render(before, "1.7.24", Runtimes()))["plugins"]["io.containerd.grpc.v1.cri"]
    assert plugin["containerd"]["runtimes"]["nvidia"]["privileged_without_host_devices"] is False


def test_a_value_that_changes_keeps_its_inline_comment() -> None:
    text = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\ndefault_runtime_name = "runc" # ours\n'
    assert 'default_runtime_name = "nvidia" # ours' in render(text, "1.7.24", Runtimes())


CRI = 'plugins."io.containerd.grpc.v1.cri".containerd'


def test_the_deprecated_table_that_wins_over_the_default_s_name_is_judged_and_goes_where_containerd_obeys_it() -> None:
    table = f'[{CRI}.default_runtime]\nruntime_type = "io.containerd.runc.v2"\n'
    before = f'version = 2\n[{CRI}]\ndefault_runtime_name = "nvidia"\n{table}'
    assert effective_runtimes(before)[0] == "the table default_runtime"
    after = render(before, "1.7.24", Runtimes())
    assert effective_runtimes(after)[0] == "nvidia" and "default_runtime]" not in after
    # containerd 2 does not read it, and what `config default` of 1.x prints is an empty one.
    assert table in render(before, "2.1.9", Runtimes())
    empty = render(before, "1.7.24", Runtimes()) + f'\n[{CRI}.default_runtime]\nruntime_type = ""\n'
    assert effective_runtimes(empty)[0] == "nvidia"
    assert render(empty, "1.7.24", Runtimes()) == empty


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


@pytest.mark.parametrize("version", ["1.7.24", "2.1.9"])
def test_a_new_runtime_nvidia_takes_over_what_holds_for_runc_and_an_old_one_keeps_its_own(version: str) -> None:
    runc = f'[{CRI}.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\nbase_runtime_spec = "/etc/base.json"\n'
    options = f'[{CRI}.runtimes.runc.options]\nRoot = "/run/runc"\nBinaryName = "/usr/local/bin/runc"\n'
    before = f"version = 2\n{runc}{options}"

    def runtimes(text: str) -> Any:
        return tomllib.loads(text)["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]

    after = render(before, version, Runtimes())
    assert runtimes(after)["nvidia"] == {
        "runtime_type": "io.containerd.runc.v2",
        "base_runtime_spec": "/etc/base.json",
        "privileged_without_host_devices": False,
        "options": {"Root": "/run/runc", "BinaryName": "/usr/bin/nvidia-container-runtime", "SystemdCgroup": True},
    }
    assert runtimes(after)["runc"]["options"]["BinaryName"] == "/usr/local/bin/runc"
    # A drop-in beside it, too, whether it is merged or takes the section's place.
    assert runtimes(drop_in(before, version, Runtimes()))["nvidia"] == runtimes(after)["nvidia"]
    own = f'{before}[{CRI}.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
    assert "base_runtime_spec" not in runtimes(render(own, version, Runtimes()))["nvidia"]
    assert "base_runtime_spec" not in runtimes(drop_in(own, version, Runtimes()))["nvidia"]


def test_docker_s_own_file_of_version_1_becomes_version_2_with_cri_enabled() -> None:
    after = render(
        '#   Copyright\n\ndisabled_plugins = ["cri"]\n\n#root = "/var/lib/containerd"\n[grpc]\nuid = 0\n',
        "1.7.24",
        Runtimes(),
    )
    assert tomllib.loads(after)["version"] == 2
    assert tomllib.loads(after)["disabled_plugins"] == []
    assert tomllib.loads(after)["grpc"] == {"uid": 0}
    assert '#root = "/var/lib/containerd"' in after
    assert asked_for(after)[0] == "nvidia"


def test_a_file_of_version_1_that_names_plugins_stays_one_under_a_containerd_that_obeys_it() -> None:
    before = '# old\n[plugins.cri]\nsandbox_image = "x" # ours\n'
    after = render(before, "1.7.24", Runtimes())
    document = tomllib.loads(after)
    assert "version" not in document and 'sandbox_image = "x" # ours' in after
    assert asked_for(after)[0] == "nvidia"
    assert set(document["plugins"]["cri"]["containerd"]["runtimes"]) == {"runc", "nvidia"}
    assert render(after, "1.7.24", Runtimes()) == after


def test_schema_4_is_that_of_containerd_2_3() -> None:
    after = render(None, "2.3.0", Runtimes())
    assert tomllib.loads(after)["version"] == 4
    assert "io.containerd.cri.v1.runtime" in tomllib.loads(after)["plugins"]


def test_cdi_is_set_where_it_is_asked_for_and_left_alone_else() -> None:
    assert "enable_cdi = true" in render(None, "1.7.24", Runtimes(cdi=True))
    assert "enable_cdi" not in render(None, "1.7.24", Runtimes())
    with pytest.raises(ConfigurationRefused, match="no CDI"):
        render(None, "1.6.20", Runtimes(cdi=True))


def test_docker_s_disabled_cri_plugin_is_enabled() -> None:
    after = render('disabled_plugins = ["cri", "zfs"]\nversion = 2\n', "1.7.24", Runtimes())
    assert tomllib.loads(after)["disabled_plugins"] == ["zfs"]


@pytest.mark.parametrize(
    "text, version, reason",
    [
        ("version = 3\n", "1.6.20", "reads 1, 2"),
        ("version = 4\n", "2.1.9", "reads 1, 2, 3"),
        ("[plugins.cri]\nx = 1\n", "2.1.9", "schema version 1"),
        ('disabled_plugins = ["zfs"]\n', "2.1.9", "schema version 1"),
        ('[plugins."io.containerd.grpc.v1.cri"]\nx = 1\n', "1.6.20", "write `version = 2` at its top"),
        ("version = = 2", "1.6.20", "not TOML"),
        ('version = 2\nplugins = "x"\n', "1.6.20", "no table"),
        ("version = 2\n", "0.9.1", "not supported"),
        ("version = 2\n", "rubbish", "not a version|not a containerd|is not"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_the_reason(text: str, version: str, reason: str) -> None:
    with pytest.raises(ConfigurationRefused, match=reason):
        render(text, version, Runtimes())


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
