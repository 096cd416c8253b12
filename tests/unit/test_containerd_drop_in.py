"""containerd's runtimes as a drop-in beside the root file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.containerd.drop_in import drop_in, is_imported
from gpunode.components.containerd.editor import Runtimes
from gpunode.components.containerd.state import effective_runtimes

pytestmark = pytest.mark.pure
DATA = Path(__file__).parent / "data"
OLD = (DATA / "in-containerd16-kubeadm.toml").read_text()
NEW = (DATA / "in-containerd2-kubeadm.toml").read_text()


def section(text: str) -> dict[str, Any]:
    (found,) = tomllib.loads(text)["plugins"].values()
    return dict(found)


@pytest.mark.parametrize(
    ("root", "version"), [(None, "1.6.20"), (OLD, "1.7.24"), (OLD, "2.1.9"), (NEW, "2.1.9"), (None, "2.1.9")]
)
def test_it_names_both_runtimes_and_is_of_the_root_file_s_version(root: str | None, version: str) -> None:
    made = drop_in(root, version, Runtimes())
    default, runtimes = effective_runtimes(made)
    assert default == "nvidia"
    assert {runtime.name: runtime.systemd_cgroup for runtime in runtimes} == {"runc": True, "nvidia": True}
    wanted = tomllib.loads(root)["version"] if root else {"1.6.20": 2, "2.1.9": 3}[version]
    assert tomllib.loads(made)["version"] == wanted


@pytest.mark.parametrize("version", ["1.6.20", "1.7.24", "2.0.5"])
def test_before_2_1_it_repeats_the_root_file_s_section_which_it_takes_the_place_of(version: str) -> None:
    made = section(drop_in(OLD, version, Runtimes()))
    assert made["sandbox_image"] == "registry.k8s.io/pause:3.9"
    assert made["registry"] == {"config_path": "/etc/containerd/certs.d"}


def test_since_2_1_it_says_what_is_ours_and_nothing_more() -> None:
    made = section(drop_in(OLD, "2.1.9", Runtimes()))
    assert set(made) == {"containerd"}
    assert set(made["containerd"]) == {"default_runtime_name", "runtimes"}


@pytest.mark.parametrize(
    ("root", "version", "reason"),
    [
        ("[plugins.cri]\nx = 1\n", "1.7.24", "schema version 1"),
        ('disabled_plugins = ["cri"]\nversion = 2\n', "1.7.24", "disabled_plugins"),
        ("version = 3\n", "1.6.20", "reads 1, 2"),
        ("version = =", "1.6.20", "not TOML"),
        ("version = 2\n", "0.9", "not supported"),
    ],
)
def test_a_root_file_that_it_cannot_stand_beside_is_refused(root: str, version: str, reason: str) -> None:
    with pytest.raises(ConfigurationRefused, match=reason):
        drop_in(root, version, Runtimes())


def test_whether_it_counts_is_told_from_the_root_file_s_imports() -> None:
    assert is_imported('version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n')
    assert not is_imported('version = 2\nimports = ["/etc/containerd/other/*.toml"]\n')
    assert not is_imported(None)
