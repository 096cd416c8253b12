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
from gpunode.components.toolkit.configuration import Difference, asked_of, differences, render
from gpunode.settings import ToolkitSettings, settings_from

pytestmark = pytest.mark.pure
# As NVIDIA's packages write it, and as people change it.
PACKAGED = """#accept-nvidia-visible-devices-as-volume-mounts = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false  # team A
supported-driver-capabilities = "compat32,compute,utility"
#swarm-resource = "DOCKER_RESOURCE_GPU"

[nvidia-container-cli]
#debug = "/var/log/nvidia-container-toolkit.log"
environment = []
ldconfig = "@/sbin/ldconfig"
load-kmods = true
#no-cgroups = false

[nvidia-container-runtime]
#debug = "/var/log/nvidia-container-runtime.log"
log-level = "info"   # auditors
mode = "auto"
runtimes = ["docker-runc", "runc", "crun"]

[nvidia-container-runtime.modes]

[nvidia-container-runtime.modes.cdi]
annotation-prefixes = ["cdi.k8s.io/"]
default-kind = "nvidia.com/gpu"
spec-dirs = ["/etc/cdi", "/var/run/cdi"]

[nvidia-ctk]
path = "nvidia-ctk"
"""
SHARED = {"preset": "shared"}


def asked(**settings: Any) -> Any:
    return asked_of(settings_from({"toolkit": settings}).toolkit)


def test_nothing_is_asked_by_default_and_the_file_stays_to_the_letter() -> None:
    assert asked() == {}
    assert render(PACKAGED, asked()) == PACKAGED
    assert render(None, asked()) == ""


def test_the_preset_for_shared_clusters_closes_the_variable_and_opens_the_mounts() -> None:
    text = render(PACKAGED, asked(**SHARED))
    found = tomllib.loads(text)
    assert found["accept-nvidia-visible-devices-envvar-when-unprivileged"] is False
    assert found["accept-nvidia-visible-devices-as-volume-mounts"] is True
    assert {line for line in PACKAGED.splitlines()} <= {line for line in text.splitlines()}


def test_each_setting_is_one_key_and_comments_in_its_line_stay() -> None:
    text = render(PACKAGED, asked(mode="legacy", no_cgroups=True, debug=True))
    found = tomllib.loads(text)
    assert found["nvidia-container-runtime"]["mode"] == "legacy"
    assert found["nvidia-container-cli"]["no-cgroups"] is True
    assert found["nvidia-container-runtime"]["debug"] == "/var/log/nvidia-container-runtime.log"
    assert found["nvidia-container-cli"]["debug"] == "/var/log/nvidia-container-toolkit.log"
    assert 'log-level = "debug"   # auditors' in text
    assert "disable-require = false  # team A" in text


def test_logs_that_are_not_asked_for_any_more_are_switched_off() -> None:
    loud = render(PACKAGED, asked(debug=True))
    assert tomllib.loads(render(loud, asked(debug=False))) == tomllib.loads(PACKAGED)


def test_a_file_from_nothing_holds_what_is_asked_alone() -> None:
    assert tomllib.loads(render(None, asked(**SHARED, mode="cdi", cdi="generate"))) == {
        "accept-nvidia-visible-devices-envvar-when-unprivileged": False,
        "accept-nvidia-visible-devices-as-volume-mounts": True,
        "nvidia-container-runtime": {"mode": "cdi"},
    }


def test_a_difference_names_key_and_both_sides() -> None:
    assert differences(PACKAGED, asked(mode="legacy", no_cgroups=False)) == (
        Difference("nvidia-container-runtime.mode", '"auto"', '"legacy"'),
        Difference("nvidia-container-cli.no-cgroups", "none", "false"),
    )
    assert differences(render(PACKAGED, asked(mode="legacy")), asked(mode="legacy")) == ()
    # 0 is not False.
    assert len(differences("accept-nvidia-visible-devices-as-volume-mounts = 1\n", asked(**SHARED))) == 2


@pytest.mark.parametrize(
    "text, reason",
    [
        ("mode = [", "not TOML"),
        ('nvidia-container-runtime = "x"\n', "nvidia-container-runtime is no table"),
        ("nvidia-container-runtime = [1]\n", "nvidia-container-runtime is no table"),
        ("[nvidia-container-runtime.mode]\n# at the end\n", "nvidia-container-runtime.mode is a table"),
        ("[[nvidia-container-runtime.mode]]\n", "nvidia-container-runtime.mode is a table"),
    ],
)
def test_a_file_that_cannot_be_edited_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationRefused, match=reason):
        render(text, asked(mode="legacy"))
    with pytest.raises(ConfigurationRefused, match=reason):
        differences(text, asked(mode="legacy"))


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
    settings = {**SHARED, "accept_nvidia_visible_devices_envvar_when_unprivileged": False}
    assert asked(**settings) == asked(**SHARED)
    assert ToolkitSettings.model_validate(settings).accept_nvidia_visible_devices_as_volume_mounts is True
