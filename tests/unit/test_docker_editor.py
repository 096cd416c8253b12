"""The editor of docker's daemon.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.docker.editor import Daemon, DaemonRefused, render

pytestmark = pytest.mark.pure
EXISTING = (Path(__file__).parent / "data" / "in-docker-existing.json").read_text()
PATH = "/usr/bin/nvidia-container-runtime"


def test_from_nothing_it_says_what_is_asked_and_nothing_more() -> None:
    assert json.loads(render(None, "26.1.5", Daemon())) == {
        "runtimes": {"nvidia": {"path": PATH}},
        "default-runtime": "nvidia",
        "exec-opts": ["native.cgroupdriver=systemd"],
    }
    plain = json.loads(render("", "26.1.5", Daemon(default="runc", nvidia=False)))
    assert plain == {"exec-opts": ["native.cgroupdriver=systemd"]}


def test_foreign_keys_stay_where_they_were() -> None:
    before, after = json.loads(EXISTING), json.loads(render(EXISTING, "20.10.24+dfsg1", Daemon()))
    assert list(after)[: len(before)] == list(before)
    assert after["runtimes"].pop("nvidia") == {"path": PATH}
    assert after.pop("default-runtime") == "nvidia"
    assert after == before


def test_a_file_that_is_right_comes_back_to_the_letter() -> None:
    text = '{"default-runtime":"nvidia",\n\t"exec-opts": [ "native.cgroupdriver=systemd" ],'
    text += f'"runtimes":{{"nvidia":{{"path":"{PATH}","runtimeArgs":[]}}}}}}'
    assert render(text, "26.1.5", Daemon()) == text


def test_indentation_is_the_file_s_own() -> None:
    assert '\n\t"default-runtime"' in render('{\n\t"debug": true\n}\n', "26.1.5", Daemon())
    assert '\n  "default-runtime"' in render('{\n  "debug": true\n}\n', "26.1.5", Daemon())


def test_another_cgroup_driver_and_arguments_of_the_runtime_are_replaced() -> None:
    before = {"exec-opts": ["native.cgroupdriver=cgroupfs", "isolation=x"], "runtimes": {"nvidia": {"args": ["-x"]}}}
    after = json.loads(render(json.dumps(before), "26.1.5", Daemon()))
    assert after["exec-opts"] == ["isolation=x", "native.cgroupdriver=systemd"]
    assert after["runtimes"]["nvidia"] == {"args": [], "path": PATH}
    other = json.loads(render(None, "26.1.5", Daemon(systemd_cgroup=False)))
    assert other["exec-opts"] == ["native.cgroupdriver=cgroupfs"]


def test_runc_is_made_the_default_again_where_another_was() -> None:
    before = json.dumps({"default-runtime": "nvidia"})
    assert json.loads(render(before, "26.1.5", Daemon(default="runc")))["default-runtime"] == "runc"


def test_cdi_is_set_where_it_is_asked_for_and_left_alone_else() -> None:
    assert json.loads(render(None, "26.1.5", Daemon(cdi=True)))["features"] == {"cdi": True}
    assert "features" not in json.loads(render(None, "26.1.5", Daemon()))
    on = '{"features": {"cdi": true, "other": false}}'
    assert json.loads(render(on, "26.1.5", Daemon(cdi=False)))["features"] == {"cdi": False, "other": False}
    # On by default since 28.2: what is to be off has to be said, and before that it has not.
    assert json.loads(render(None, "28.2.0", Daemon(cdi=False)))["features"] == {"cdi": False}
    assert "features" not in json.loads(render(None, "28.2.0", Daemon(cdi=True)))
    assert "features" not in json.loads(render(None, "28.1.1", Daemon(cdi=False)))
    assert json.loads(render('{"features": {"cdi": false}}', "28.2.0", Daemon(cdi=True)))["features"] == {"cdi": True}


@pytest.mark.parametrize(
    ("text", "version", "reason"),
    [
        ("{", "26.1.5", "not JSON: .* line 1"),
        ("[]", "26.1.5", "no JSON object"),
        ('{"a": 1, "a": 2}', "26.1.5", "'a' twice"),
        ('{"a": NaN}', "26.1.5", "NaN"),
        ('{"runtimes": []}', "26.1.5", "'runtimes' is no object"),
        ('{"exec-opts": "x"}', "26.1.5", "'exec-opts' is no list"),
        ("[" * 100_000, "26.1.5", "nested too deeply"),
        ("{}", "rubbish", "not a docker version"),
        ("{}", "1.10.3", "not supported"),
    ],
)
def test_what_cannot_be_edited_is_refused_with_the_reason(text: str, version: str, reason: str) -> None:
    with pytest.raises(DaemonRefused, match=reason):
        render(text, version, Daemon())


def test_cdi_under_a_docker_that_lacks_it_is_refused() -> None:
    with pytest.raises(DaemonRefused, match="has no CDI"):
        render(None, "20.10.24", Daemon(cdi=True))


_OURS = ("runtimes", "default-runtime", "exec-opts", "features")
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
_RUNTIMES = st.dictionaries(st.text(max_size=10), st.dictionaries(st.text(max_size=5), _JSON, max_size=2), max_size=2)


@given(
    foreign=st.dictionaries(st.text(max_size=10), _JSON, max_size=4),
    runtimes=_RUNTIMES,
    options=st.lists(st.text(max_size=20), max_size=3),
    default=st.sampled_from(["nvidia", "runc"]),
    indent=st.sampled_from([None, 2, 4, "\t"]),
)
def test_any_file_keeps_its_foreign_keys_and_settles_after_one_edit(
    foreign: dict[str, Any], runtimes: dict[str, Any], options: list[str], default: str, indent: int | str | None
) -> None:
    before = {key: value for key, value in foreign.items() if key not in _OURS}
    asked = Daemon(default=default)
    whole = {**before, "runtimes": runtimes, "exec-opts": options}
    text = render(json.dumps(whole, indent=indent), "26.1.5", asked)
    after = json.loads(text)
    assert {key: value for key, value in after.items() if key not in _OURS} == before
    assert {**after["runtimes"], "nvidia": None} == {**runtimes, "nvidia": None}
    assert [option for option in options if not option.startswith("native.cgroupdriver=")] == after["exec-opts"][:-1]
    assert after.get("default-runtime", "runc") == default
    assert render(text, "26.1.5", asked) == text
