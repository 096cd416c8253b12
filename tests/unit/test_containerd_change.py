"""What is to become of containerd's files: which of them, who overrides them, and when the daemon must be restarted."""

from __future__ import annotations

import base64
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.containerd.change import needed_change, placement_of
from gpunode.components.containerd.drop_in import PATH, drop_in, is_imported, with_import, without_import
from gpunode.components.containerd.editor import Runtimes, render
from gpunode.components.containerd.overrides import overrides
from gpunode.components.containerd.state import Containerd, DropIn, parse_containerd
from tests.support.containerd_change import CONFIG, GLOB, KUBEADM, state
from tests.support.containerd_editor import FOREIGN
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure


def written(found: Containerd, asked: Runtimes, placement: Any = "auto") -> dict[str, str | None]:
    wanted = needed_change(found, asked, placement)
    return {} if wanted is None else {file.path: file.text for file in wanted.files}


@pytest.mark.parametrize(
    ("version", "place"), [("1.6.20", "root"), ("1.7.24", "root"), ("2.0.5", "root"), ("2.1.9", "drop-in")]
)
def test_auto_is_the_drop_in_where_containerd_merges_it_and_else_the_root_file(version: str, place: str) -> None:
    assert placement_of(state(version, KUBEADM), Runtimes(), "auto") == place


def test_what_already_stands_in_the_root_file_is_not_moved() -> None:
    right = state("2.1.9", render(KUBEADM, "2.1.9", Runtimes()))
    assert placement_of(right, Runtimes(), "auto") == "root"
    assert needed_change(right, Runtimes()) is None


def test_a_root_file_that_no_drop_in_can_stand_beside_is_edited_itself() -> None:
    disabled = state("2.1.9", 'version = 2\ndisabled_plugins = ["cri"]\n')
    assert placement_of(disabled, Runtimes(), "auto") == "root"
    with pytest.raises(ConfigurationRefused, match="disabled_plugins"):
        needed_change(disabled, Runtimes(), "drop-in")


def test_a_drop_in_comes_with_its_import_and_leaves_the_rest_of_the_root_file_as_it_is() -> None:
    files = written(state("2.1.9", KUBEADM), Runtimes(), "drop-in")
    assert list(files) == [PATH, CONFIG], "a root file must not import what is not there yet"
    root = files[CONFIG] or ""
    assert root.replace(f'imports = ["{PATH}"]\n', "") == KUBEADM
    assert tomllib.loads(files[PATH] or "")["version"] == tomllib.loads(root)["version"] == 2
    settled = state("2.1.9", root, drop_ins=(DropIn(PATH, section=True, text=files[PATH]),))
    assert needed_change(settled, Runtimes(), "drop-in") is None


def test_what_is_checked_before_it_is_in_place_imports_the_copy_and_not_what_is_not_there() -> None:
    wanted = needed_change(state("2.1.9", KUBEADM), Runtimes(), "drop-in")
    assert wanted is not None
    assert tomllib.loads(wanted.staged or "")["imports"] == [f"{PATH}.gpunode-new"]


def test_the_way_back_into_the_root_file_takes_drop_in_and_import_along() -> None:
    root = with_import(KUBEADM, "1.7.24")
    there = DropIn(PATH, section=True, text=drop_in(KUBEADM, "1.7.24", Runtimes()))
    files = written(state("1.7.24", root, drop_ins=(there,)), Runtimes(), "root")
    assert files == {CONFIG: render(KUBEADM, "1.7.24", Runtimes()), PATH: None}


def test_what_is_checked_leaves_out_the_drop_in_that_is_about_to_go_and_keeps_those_of_others() -> None:
    there = DropIn(PATH, section=True, text="")
    other = DropIn("/etc/containerd/conf.d/50-registry.toml")
    wanted = needed_change(state("1.7.24", GLOB + KUBEADM, drop_ins=(other, there)), Runtimes(), "root")
    assert wanted is not None
    assert tomllib.loads(wanted.staged or "")["imports"] == [other.path]


@given(foreign=FOREIGN)
def test_any_root_file_gets_one_import_and_loses_nothing_by_it(foreign: dict[str, Any]) -> None:
    import tomlkit

    for key in ("plugins", "version", "disabled_plugins", "imports"):
        foreign.pop(key, None)
    before = tomlkit.dumps({"version": 2, **foreign})
    after = with_import(before, "1.7.24")
    assert tomllib.loads(after) == {**tomllib.loads(before), "imports": [PATH]}
    assert is_imported(after) and with_import(after, "1.7.24") == after
    assert tomllib.loads(without_import(after) or "") == tomllib.loads(before)


@given(plugin=FOREIGN)
def test_any_section_is_repeated_whole_where_a_drop_in_takes_its_place(plugin: dict[str, Any]) -> None:
    import tomlkit

    plugin.pop("containerd", None)
    root = tomlkit.dumps({"version": 2, "plugins": {"io.containerd.grpc.v1.cri": plugin}})
    made = drop_in(root, "1.7.24", Runtimes())
    section = tomllib.loads(made)["plugins"]["io.containerd.grpc.v1.cri"]
    assert section.pop("containerd")["default_runtime_name"] == "nvidia"
    assert section == tomllib.loads(root)["plugins"].get("io.containerd.grpc.v1.cri", {})
    assert drop_in(root, "1.7.24", Runtimes()) == made


STALE = DropIn(
    "/etc/containerd/conf.d/99-nvidia.toml",
    (("containerd.default_runtime_name", "nvidia"), ("containerd.runtimes.runc.options.SystemdCgroup", "false")),
    section=True,
)
CGROUP = "containerd.runtimes.runc.options.SystemdCgroup"


def test_a_section_that_takes_the_root_file_s_place_shadows_what_it_says_otherwise_and_what_it_leaves_out() -> None:
    old, new = (
        {shadow.key: str(shadow) for shadow in overrides(state(version, GLOB, drop_ins=(STALE,)), Runtimes())}
        for version in ("1.7.24", "2.1.9")
    )
    assert unnamed(old[CGROUP], STALE.path, f"{CGROUP} = false") == unnamed(new[CGROUP], STALE.path) == []
    assert "containerd.runtimes.nvidia.options.BinaryName" in old and set(new) == {CGROUP}


def test_a_drop_in_that_is_read_before_ours_or_not_at_all_shadows_nothing() -> None:
    ours = DropIn(PATH, section=True)
    later = state("2.1.9", GLOB, drop_ins=(ours, STALE))
    assert {shadow.key for shadow in overrides(later, Runtimes(), own_drop_in=True)} == {CGROUP}
    assert not list(overrides(state("2.1.9", GLOB, drop_ins=(STALE, ours)), Runtimes(), own_drop_in=True))
    assert not list(overrides(state("2.1.9", GLOB, drop_ins=(replace(STALE, imported=False),)), Runtimes()))


def test_a_drop_in_s_text_is_in_no_output_and_one_that_is_no_toml_has_an_error() -> None:
    secret, broken = (base64.b64encode(text).decode() for text in (b'password = "hunter2"\n', b"= ="))
    found = parse_containerd([f"drop_in=yes {secret} /a.toml", f"drop_in=yes {broken} /c.toml"])
    assert "hunter2" not in str(found.to_json()) + repr(found)
    assert [each.error is None for each in found.drop_ins] == [True, False]
