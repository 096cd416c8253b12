"""The editor of the toolkit's config.toml: what is asked is there, all else is as it was."""

from __future__ import annotations

import tomllib
from typing import Any

import hypothesis
import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.components.runtimes.toolkit.configuration import desired_keys, differences, render
from gpunode.settings import ToolkitSettings, settings_from

pytestmark = pytest.mark.pure


def asked(**settings: Any) -> Any:
    return desired_keys(settings_from({"toolkit": settings}).toolkit)


_NAMES = st.sampled_from(
    ["nvidia-container-runtime", "nvidia-container-cli", "nvidia-ctk", "mode", "debug", "log-level", "a", "b c"]
)
_VALUES: Any = st.recursive(
    st.one_of(st.booleans(), st.integers(0, 9), st.text("ab#\"'\n= ", max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_NAMES, inner, max_size=3)),
    max_leaves=8,
)
_ASKED = st.fixed_dictionaries({
    "mode": st.sampled_from([None, "auto", "legacy"]),
    "no_cgroups": st.sampled_from([None, True, False]),
    "debug": st.sampled_from([None, True, False]),
    "preset": st.sampled_from(["none", "shared"]),
})  # fmt: skip


def _stands_in_the_way(present: dict[str, Any], key: tuple[str, ...]) -> bool:
    """Say whether no table stands where one of the key's has its place, or one where its value has."""
    for name in key[:-1]:
        inner = present.get(name, {})
        if not isinstance(inner, dict):
            return True
        present = inner
    value = present.get(key[-1])
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(each, dict) for each in value))


@hypothesis.example(
    {"nvidia-container-runtime": {"mode": {}}}, {"mode": "auto", "no_cgroups": None, "debug": None, "preset": "none"}
)
@given(present=st.dictionaries(_NAMES, _VALUES, max_size=5), wanted=_ASKED)
def test_any_file_keeps_what_is_not_ours_and_twice_is_once(present: dict[str, Any], wanted: dict[str, Any]) -> None:
    text = "# at the top\n" + tomlkit.dumps(present) + "# at the end\n"
    keys = asked(**wanted)
    try:
        once = render(text, keys)
    except ConfigurationRefused:
        assert any(_stands_in_the_way(present, key) for key in keys)
        return
    assert render(once, keys) == once
    assert differences(once, keys) == ()
    assert "# at the top" in once and "# at the end" in once
    expected = tomllib.loads(text)
    for key, value in keys.items():
        table = expected
        for name in key[:-1]:
            table = table.setdefault(name, {}) if value is not None else table.get(name, {})
        table.pop(key[-1], None)
        if value is not None:
            table[key[-1]] = value
    assert tomllib.loads(once) == expected


def test_a_preset_agrees_with_what_says_the_same() -> None:
    settings = {"preset": "shared", "accept_nvidia_visible_devices_envvar_when_unprivileged": False}
    assert asked(**settings) == asked(preset="shared")
    assert ToolkitSettings.model_validate(settings).accept_nvidia_visible_devices_as_volume_mounts is True
