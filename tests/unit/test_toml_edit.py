"""Edits of TOML files in every style that people write, read again by another parser."""

from __future__ import annotations

import copy
import time
import tomllib
from typing import Any

import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.toml_edit import BOM, ConfigurationRefused, Table, edited, plain, put, same, table_in
from gpunode.components.runtimes.containerd.drop_in import drop_in, with_import, without_import
from gpunode.components.runtimes.containerd.editor import render
from gpunode.components.runtimes.runtime import Runtimes
from gpunode.components.runtimes.toolkit.configuration import desired_keys
from gpunode.components.runtimes.toolkit.configuration import render as render_toolkit
from gpunode.settings import settings_from
from tests.support.containerd_files import CRI2, CRI3, configurations, meant
from tests.support.toml_styles import STYLES, Style

pytestmark = pytest.mark.pure


@given(configuration=configurations(), style=STYLES, default=st.sampled_from(["nvidia", "runc"]), cgroup=st.booleans())
def test_a_file_of_containerd_in_any_style_says_what_is_meant_and_settles_or_is_refused_with_its_line(
    configuration: tuple[str, dict[str, Any]], style: Style, default: str, cgroup: bool
) -> None:
    version, values = configuration
    text = style.text(values)
    assert plain(text) == values
    asked = Runtimes(default=default, systemd_cgroup=cgroup)
    try:
        once = render(text, version, asked)
    except ConfigurationRefused as refusal:
        # Dotted keys alone are a style in which tomlkit errs.
        assert style.dotted < min(style.braces, 9) and str(refusal).startswith("line ")
        return
    assert same(plain(once), meant(values, version, asked))
    assert render(once, version, asked) == once
    unread = style.bom and version.startswith("2")
    assert (once == text) == (same(values, meant(values, version, asked)) and not unread)
    if once != text:
        assert ("\r\n" in text) == ("\r\n" in once) and once.count("\r\n") in (0, once.count("\n"))
        assert not once.startswith(BOM)
        if style.dotted == style.braces == 9:
            kept = [line for line in text.removeprefix(BOM).splitlines() if line.lstrip().startswith("[")]
            if "default_runtime]" not in text:
                assert set(kept) <= set(once.splitlines())


@given(configuration=configurations(), style=STYLES)
def test_an_import_comes_and_goes_and_a_drop_in_reads_any_style(
    configuration: tuple[str, dict[str, Any]], style: Style
) -> None:
    version, values = configuration
    text = style.text(values)
    other = with_import(text, version, "/opt/a.toml")
    assert plain(other) == values | {"imports": [*values.get("imports", []), "/opt/a.toml"]}
    assert with_import(other, version, "/opt/a.toml") == other
    assert plain(without_import(other, version, "/opt/a.toml") or "") == values
    if "disabled_plugins" not in values:
        made = plain(drop_in(text, version, Runtimes()))
        assert (
            made["plugins"][CRI2 if values["version"] == 2 else CRI3]["containerd"]["default_runtime_name"] == "nvidia"
        )


@given(style=STYLES, debug=st.booleans(), runtimes=st.lists(st.sampled_from(["runc", "crun"]), max_size=2))
def test_the_toolkit_s_configuration_in_any_style_says_what_is_meant_and_settles(
    style: Style, debug: bool, runtimes: list[str]
) -> None:
    values = {"disable-require": False, "nvidia-container-runtime": {"mode": "auto", "runtimes": runtimes},
              "nvidia-container-cli": {"load-kmods": True}}  # fmt: skip
    asked = desired_keys(settings_from({"toolkit": {"mode": "legacy", "debug": debug}}).toolkit)
    wanted = copy.deepcopy(values)
    for (table, key), value in asked.items():
        if value is not None:
            wanted[table][key] = value  # type: ignore[index]
    once = render_toolkit(style.text(values), asked)
    assert plain(once) == wanted and render_toolkit(once, asked) == once


def test_a_file_that_is_not_utf_8_stays_where_nothing_is_to_be_changed() -> None:
    text = "# f\ufffdr uns\n" + render(None, "1.7.24", Runtimes())
    assert render(text, "1.7.24", Runtimes()) == text


@pytest.mark.parametrize("version, keeps", [("1.6.20", True), ("1.7.24", True), ("2.1.9", False)])
def test_a_byte_order_mark_goes_where_containerd_cannot_read_it_and_else_stays(version: str, keeps: bool) -> None:
    good = with_import(render(None, version, Runtimes()), version)
    assert render(BOM + good, version, Runtimes()) == (BOM + good if keeps else good)
    assert with_import(BOM + good, version) == (BOM + good if keeps else good)


def test_an_edit_that_would_say_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def edit(document: Table) -> None:
        put(table_in(document, "a"), "b", 2)

    assert tomllib.loads(edited("[a]\nb = 1 # c\n", edit)) == {"a": {"b": 2}}
    monkeypatch.setattr(tomlkit, "dumps", lambda document: "[a]\nb = 3\n")
    with pytest.raises(ConfigurationRefused, match=r"^line 2: "):
        edited("[a]\nb = 1\n", edit)
    with pytest.raises(ConfigurationRefused):
        render("a = " + "[" * 5000, "1.7.24", Runtimes())


@pytest.mark.parametrize(
    "text",
    ["a = {" + ", ".join(f"{'a.' * 50}k{n} = 1" for n in range(20)) + "}\n", "[[a]]\nb = 1\n" * 10_000],
    ids=["keys with dots in braces", "a long file"],
)
def test_a_file_that_would_take_an_edit_seconds_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigurationRefused):
        edited(text, lambda table: table.update(b=2))
    assert time.process_time() - began < 1
