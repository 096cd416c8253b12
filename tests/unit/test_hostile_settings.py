"""Hostile text in every string setting: refused in words, or taken as what cannot be anything but itself."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpunode.settings import Component, SettingsError, component_models, settings_from
from tests.support.hostile import HOSTILE, hostile_text

pytestmark = pytest.mark.pure

# What is taken is of these characters: none that a shell, apt.conf, a unit or a deb822 file would read as its own. The
# braces are our placeholders, $(ARCH) is apt's.
_HARMLESS = re.compile(r"(?!-)[A-Za-z0-9._~%+@:=,/{}\[\]*-]{1,1024}", re.ASCII)


def _strings(annotation: Any) -> bool:
    """Say whether a field takes text at any depth, choices (Literal) apart."""
    if get_origin(annotation) is Literal:
        return False
    return annotation is str or any(_strings(item) for item in get_args(annotation))


def _settings(model: type[Component], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool, bool]]:
    """Yield (path, whether it is a list, whether it is a choice) of every setting that is written as text."""
    for name, field in model.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, Component):
            yield from _settings(annotation, (*path, name))
        elif get_origin(annotation) is Literal:
            yield (*path, name), False, True
        elif _strings(annotation):
            is_list = any(get_origin(item) is tuple for item in (annotation, *get_args(annotation)))
            yield (*path, name), is_list, False


TEXTS = [item for name, model in component_models().items() for item in _settings(model, (name,))]
IDS = [".".join(path) for path, _, _ in TEXTS]
# A right value of each, into which hostile text is put.
RIGHT = {
    "version": "1.17.8",
    "branch": "580",
    "http": "http://proxy:3128",
    "https": "http://proxy:3128",
    "no_proxy": ".example.org",
    "url": "https://mirror/cuda/{distribution}",
    "key_url": "https://mirror/key.asc",
    "key_fingerprint": "EB693B3035CD5710E231E123A4B469963BF863CC",
}


def _host_data(path: tuple[str, ...], value: object) -> dict[str, Any]:
    data: Any = value
    for name in reversed(path):
        data = {name: data}
    return typing.cast(dict[str, Any], data)


def _taken(path: tuple[str, ...], is_list: bool, text: str) -> str | None:
    """Return the value that the settings hold for `text`, None where they refuse it in words."""
    try:
        found: Any = settings_from(_host_data(path, [text] if is_list else text))
    except SettingsError as error:
        for problem in error.problems:
            assert problem.message
            assert len(str(problem)) < 1000
            assert str(problem).isprintable()
        return None
    for name in path:
        found = getattr(found, name)
    value: str = found[0] if is_list else found
    return value


def test_every_kind_of_text_setting_is_walked() -> None:
    assert {"driver.version", "repositories.cuda.url", "proxy.no_proxy", "proxy.https", "driver.flavour"} <= set(IDS)


@pytest.mark.parametrize(("path", "is_list", "is_choice"), TEXTS, ids=IDS)
def test_a_hostile_text_is_refused(path: tuple[str, ...], is_list: bool, is_choice: bool) -> None:
    right = RIGHT.get(path[-1], "open")
    for hostile in HOSTILE:
        for text in (hostile, right + hostile, hostile + right, f"{right[:4]}{hostile}{right[4:]}"):
            value = _taken(path, is_list, text)
            assert value is None or (not is_choice and _HARMLESS.fullmatch(value.replace("$(ARCH)", ""))), repr(text)
    for long in ("a" * 100_000, "5" * 100_000, "http://" + "a" * 100_000, "1." * 50_000 + "1", "{" * 100_000):
        assert _taken(path, is_list, long) is None


@given(st.sampled_from(TEXTS), hostile_text, st.integers(0, 40))
@example((("driver", "version"), False, False), "580.95.05\n", 0)
@example((("driver", "version"), False, False), "５８０.95.05", 0)
def test_whatever_is_taken_is_harmless(setting: tuple[tuple[str, ...], bool, bool], text: str, place: int) -> None:
    path, is_list, _ = setting
    right = RIGHT.get(path[-1], "open")
    for candidate in (text, right[:place] + text + right[place:]):
        value = _taken(path, is_list, candidate)
        assert value is None or _HARMLESS.fullmatch(value.replace("$(ARCH)", "")), repr(value)


PASSWORD = "hunter2"


@pytest.mark.parametrize(
    "data",
    [
        {"proxy": {"http": f"http://me:{PASSWORD}@proxy:3128"}},
        {"proxy": {"https": f"me:{PASSWORD}@proxy:3128"}},
        {"proxy": {"http": f"http://me:{PASSWORD}{'x' * 200}@proxy:3128"}},
        {"proxy": {"http": f"http://me:pass word {PASSWORD}@proxy:3128"}},
        {"proxy": {"http": {"url": f"http://me:{PASSWORD}@proxy:3128"}}},
        {"proxy": {"http": [f"http://me:{PASSWORD}@proxy:3128"]}},
        {"proxy": {"http": f"http://me:{PASSWORD}@proxy:3128".encode()}},
        {"proxy": f"http://me:{PASSWORD}@proxy:3128"},
        {"proxy": {"http": "http://proxy:3128", "password": PASSWORD}},
        {"proxy": {"http": "http://proxy:3128", "https": {"proxy_password": PASSWORD}}},
        {"proxy": {f"http://me:{PASSWORD}@proxy:3128": True}},
        {"repositories": {"cuda": {"url": f"https://me:{PASSWORD}@mirror/cuda"}}},
        {"repositories": {"cuda": {"token": PASSWORD}}},
        {"ssh_pasword": PASSWORD},
    ],
    ids=str,
)
def test_a_secret_is_refused_and_not_repeated(data: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as refused:
        settings_from(data, ())
    assert PASSWORD not in str(refused.value)
    assert PASSWORD not in repr([problem.to_json() for problem in refused.value.problems])
