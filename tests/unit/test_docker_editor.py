"""The editor of docker's daemon.json."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.components.runtimes.docker.editor import render
from gpunode.components.runtimes.runtime import Runtimes

pytestmark = pytest.mark.pure
PATH = "/usr/bin/nvidia-container-runtime"
_OURS = ("runtimes", "default-runtime", "exec-opts", "features")
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
_FOREIGN = st.dictionaries(st.text(max_size=10).filter(lambda key: key not in _OURS), _JSON, max_size=3)


def _null_or(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


_ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "path": st.sampled_from([PATH, "nvidia-container-runtime", "/usr/bin/crun"]),
        "args": _null_or(st.lists(st.just("-x"), max_size=1)),
        "runtimeArgs": _null_or(st.lists(st.just("-y"), max_size=1)),
        "runtimeType": _null_or(st.just("io.containerd.runc.v2")),
        "options": _null_or(st.just({"BinaryName": "/usr/bin/crun"})),
    },
)
_DAEMON = st.fixed_dictionaries(
    {},
    optional={
        "debug": _null_or(st.booleans()),
        "log-opts": st.just({"tag": "größe \U0001f600", "max-size": "10m"}),
        "default-runtime": _null_or(st.sampled_from(["nvidia", "runc", "crun"])),
        "exec-opts": _null_or(st.lists(st.sampled_from(["native.cgroupdriver=cgroupfs", "x=y"]), max_size=2)),
        "features": _null_or(st.dictionaries(st.sampled_from(["cdi", "buildkit"]), st.booleans())),
        "runtimes": _null_or(st.dictionaries(st.sampled_from(["nvidia", "crun"]), _null_or(_ENTRY))),
    },
)


def _meant(values: dict[str, Any], asked: Runtimes) -> dict[str, Any]:
    """Return what a file is to say without nulls, which say nothing: told here once more, in the plainest way."""
    runtimes = dict(values.get("runtimes") or {})
    old = runtimes.get("nvidia") or {}
    kept = {} if old.get("runtimeType") or old.get("options") else old
    runtimes["nvidia"] = {**{key: value for key, value in kept.items() if value}, "path": PATH, "args": []}
    runtimes["nvidia"].pop("runtimeArgs", None)
    options = [option for option in values.get("exec-opts") or [] if "cgroupdriver" not in option]
    found = {**values, "runtimes": runtimes, "exec-opts": [*options, "native.cgroupdriver=systemd"]}
    found["default-runtime"] = asked.default
    if asked.cdi is not None:
        found["features"] = {**(values.get("features") or {}), "cdi": asked.cdi}
    return {key: value for key, value in found.items() if value is not None}


def _said(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {key: value for key, value in json.loads(text).items() if value is not None}
    nvidia = found.get("runtimes", {}).get("nvidia") or {}
    for key in ("runtimeArgs", "runtimeType", "options"):
        if key in nvidia and not nvidia[key]:
            del nvidia[key]
    nvidia["args"] = nvidia.get("args") or []
    found.setdefault("default-runtime", "runc")
    return found


@given(
    foreign=_FOREIGN,
    values=_DAEMON,
    indent=st.sampled_from([None, 2, 4, "\t"]),
    tight=st.booleans(),
    escaped=st.booleans(),
    windows=st.booleans(),
    bom=st.booleans(),
    end=st.sampled_from(["", "\n", "\n\n"]),
    default=st.sampled_from(["nvidia", "runc"]),
    cdi=st.sampled_from([None, True]),
)
def test_a_file_in_any_style_says_what_is_meant_and_settles_to_the_byte(
    foreign: dict[str, Any], values: dict[str, Any], indent: int | str | None, tight: bool, escaped: bool,
    windows: bool, bom: bool, end: str, default: str, cdi: bool | None,
) -> None:  # fmt: skip
    separators, values = (",", ":") if tight else None, {**foreign, **values}
    text = json.dumps(values, indent=indent, ensure_ascii=escaped, separators=separators) + end
    text = ("\ufeff" if bom else "") + (text.replace("\n", "\r\n") if windows else text)
    asked = Runtimes(default=default, cdi=cdi)
    once = render(text, "26.1.5", asked)
    assert _said(once.removeprefix("\ufeff")) == _meant(values, asked)
    assert render(once, "26.1.5", asked) == once
    if once != text:
        assert not once.startswith("\ufeff") and ("\r\n" in once) == ("\r\n" in text)
