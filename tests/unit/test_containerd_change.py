"""What is to become of containerd's files: which of them, who overrides them, and when the daemon must be restarted."""

from __future__ import annotations

import base64
import hashlib
import json
import tomllib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.containerd.change import change, placed
from gpunode.components.containerd.drop_in import PATH, drop_in, is_imported, with_import, without_import
from gpunode.components.containerd.editor import Runtimes, render
from gpunode.components.containerd.overrides import shadows
from gpunode.components.containerd.state import Containerd, DropIn, parse_containerd
from tests.support.containerd_change import CONFIG, GLOB, KUBEADM, state
from tests.support.containerd_editor import FOREIGN

pytestmark = pytest.mark.pure


def written(found: Containerd, asked: Runtimes, placement: Any = "auto") -> dict[str, str | None]:
    wanted = change(found, asked, placement)
    return {} if wanted is None else {file.path: file.text for file in wanted.files}


@pytest.mark.parametrize(
    ("version", "place"), [("1.6.20", "root"), ("1.7.24", "root"), ("2.0.5", "root"), ("2.1.9", "drop-in")]
)
def test_auto_is_the_drop_in_where_containerd_merges_it_and_else_the_root_file(version: str, place: str) -> None:
    assert placed(state(version, KUBEADM), Runtimes(), "auto") == place


def test_what_already_stands_in_the_root_file_is_not_moved() -> None:
    right = state("2.1.9", render(KUBEADM, "2.1.9", Runtimes()))
    assert placed(right, Runtimes(), "auto") == "root"
    assert change(right, Runtimes()) is None


def test_a_root_file_that_no_drop_in_can_stand_beside_is_edited_itself() -> None:
    disabled = state("2.1.9", 'version = 2\ndisabled_plugins = ["cri"]\n')
    assert placed(disabled, Runtimes(), "auto") == "root"
    with pytest.raises(ConfigurationRefused, match="disabled_plugins"):
        change(disabled, Runtimes(), "drop-in")


def test_a_drop_in_comes_with_its_import_and_leaves_the_rest_of_the_root_file_as_it_is() -> None:
    files = written(state("2.1.9", KUBEADM), Runtimes(), "drop-in")
    assert list(files) == [PATH, CONFIG], "a root file must not import what is not there yet"
    root = files[CONFIG] or ""
    assert root.replace(f'imports = ["{PATH}"]\n', "") == KUBEADM
    assert tomllib.loads(files[PATH] or "")["version"] == tomllib.loads(root)["version"] == 2
    settled = state("2.1.9", root, drop_ins=(DropIn(PATH, section=True, text=files[PATH]),))
    assert change(settled, Runtimes(), "drop-in") is None


def test_what_is_checked_before_it_is_in_place_imports_the_copy_and_not_what_is_not_there() -> None:
    wanted = change(state("2.1.9", KUBEADM), Runtimes(), "drop-in")
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
    wanted = change(state("1.7.24", GLOB + KUBEADM, drop_ins=(other, there)), Runtimes(), "root")
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


@pytest.mark.parametrize("version", ["1.7.24", "2.1.9"])
def test_a_stale_drop_in_is_named_with_its_key_and_what_it_says(version: str) -> None:
    found = {shadow.key: shadow for shadow in shadows(state(version, GLOB, drop_ins=(STALE,)), Runtimes())}
    assert str(found[CGROUP]) == f"{STALE.path} says {CGROUP} = false, not true"


def test_a_section_that_takes_the_root_file_s_place_shadows_what_it_leaves_out() -> None:
    key = "containerd.runtimes.nvidia.options.BinaryName"
    old = {shadow.key: shadow for shadow in shadows(state("1.7.24", GLOB, drop_ins=(STALE,)), Runtimes())}
    assert "leaves out" in str(old[key])
    new = {shadow.key for shadow in shadows(state("2.1.9", GLOB, drop_ins=(STALE,)), Runtimes())}
    assert new == {CGROUP}


def test_a_drop_in_that_is_read_before_ours_or_not_at_all_shadows_nothing() -> None:
    ours = DropIn(PATH, section=True)
    later = state("2.1.9", GLOB, drop_ins=(ours, STALE))
    assert {shadow.key for shadow in shadows(later, Runtimes(), own_drop_in=True)} == {CGROUP}
    assert not list(shadows(state("2.1.9", GLOB, drop_ins=(STALE, ours)), Runtimes(), own_drop_in=True))
    assert not list(shadows(state("2.1.9", GLOB, drop_ins=(replace(STALE, imported=False),)), Runtimes()))


PROBE = [
    "ActiveState=active", "UnitFileState=enabled", "started=Thu 1970-01-01 00:16:40.000000 UTC",
    "binary=/usr/bin/containerd",
    f"config={CONFIG}", "version=containerd github.com/containerd/containerd 1.7.24~ds1", "written=1001.000000",
    "merged=" + base64.b64encode(b"version = 2\n").decode(), "shims=0",
]  # fmt: skip
DIGEST = hashlib.sha256(b"version = 2\n").hexdigest()


@pytest.mark.parametrize(
    ("more", "stale"),
    [
        ([], True),
        ([f"loaded={DIGEST} 999.9"], False),
        ([f"loaded={'0' * 64} 999.9"], True),
        # Noted for another start than this one.
        ([f"loaded={DIGEST} 500.0"], True),
        ([f"loaded={hashlib.sha256(b'').hexdigest()} 999.9"], True),
        ([f"loaded={DIGEST} 999.9", "unit_written=1002.0"], True),
    ],
)
def test_a_newer_file_that_says_the_same_as_the_daemon_was_started_with_takes_no_restart(
    more: list[str], stale: bool
) -> None:
    assert parse_containerd([*PROBE, *more]).stale is stale


def test_the_imports_which_containerd_1_prints_in_any_order_are_no_difference() -> None:
    def merged(*imports: str) -> str | None:
        dump = f"imports = {json.dumps(imports)}\nversion = 2\n"
        return parse_containerd([*PROBE, "merged=" + base64.b64encode(dump.encode()).decode()]).merged

    assert merged("/a.toml", "/b.toml") == merged("/b.toml", "/a.toml") == DIGEST


def test_drop_ins_stand_in_the_order_in_which_they_are_read() -> None:
    root = base64.b64encode(b'imports = ["/z/*.toml", "/a/*.toml"]').decode()
    lines = [f"drop_in=yes - {path}" for path in ("/a/1.toml", "/z/9.toml", "/z/1.toml", "/other.toml")]
    found = parse_containerd([*PROBE, f"text={root}", *lines]).drop_ins
    assert [drop_in.path for drop_in in found] == ["/z/1.toml", "/z/9.toml", "/a/1.toml", "/other.toml"]


def test_a_drop_in_is_read_with_what_it_says_and_its_text_is_in_no_output() -> None:
    text = base64.b64encode(b'[plugins.cri.containerd]\ndefault_runtime_name = "x"\npassword = "hunter2"\n').decode()
    found = parse_containerd([*PROBE, f"drop_in=yes {text} /etc/containerd/conf.d/a b.toml", "drop_in=no - /z.toml"])
    first, second = found.drop_ins
    assert (first.path, first.imported, first.section) == ("/etc/containerd/conf.d/a b.toml", True, True)
    assert first.says == (("containerd.default_runtime_name", "x"),)
    assert (second.imported, second.section) == (False, False)
    assert "hunter2" not in str(found.to_json()) + repr(found)
    broken = base64.b64encode(b"= =").decode()
    (unread,) = parse_containerd([*PROBE, f"drop_in=yes {broken} /c.toml"]).drop_ins
    assert unread.error is not None
