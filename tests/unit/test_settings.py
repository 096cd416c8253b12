"""Settings: what is taken, what is refused, and how it is said."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpunode.settings import Problem, SettingsError, check_hosts, component_models, settings_from
from tests.reference import settings as reference
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure


def _problems(data: dict[str, Any]) -> tuple[Problem, ...]:
    with pytest.raises(SettingsError) as refused:
        settings_from(data, ())
    return refused.value.problems


def test_no_secret_shows_in_a_message() -> None:
    text = "\n".join(map(str, _problems({"ssh_pasword": "hunter2", "proxy": {"http": "http://me:hunter2@proxy:1/;x"}})))
    assert "hunter2" not in text


def test_a_mistake_of_a_group_is_told_once_with_all_hosts_that_have_it() -> None:
    group = {"driver": {"flavor": "open"}}
    own = {**group, "cuda": {"versoin": "12.9"}}
    with pytest.raises(SettingsError) as refused:
        check_hosts({"gpu-1": group, "gpu-2": own, "gpu-3": group, "gpu-4": {}, "gpu-9": group})
    head, *lines = str(refused.value).splitlines()
    assert unnamed(head, "2 mistakes") == []
    assert [line.partition(" = ")[0].strip() for line in lines] == [
        "gpu-1 to gpu-3, gpu-9: driver.flavor",
        "gpu-2: cuda.versoin",
    ]
    assert len(refused.value.problems) == 5, "programs get each host's own"


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        settings_from({}).driver.branch = "570"


def test_the_digest_is_that_of_the_meaning() -> None:
    written = settings_from({"driver": {"hold": True}, "cuda": {"profile": True}})
    assert written.digest() == settings_from({}).digest()
    assert settings_from({"cuda": {"profile": False}}).digest() != written.digest()


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)
component_names = st.sampled_from(sorted(component_models()))
field_names = st.sampled_from(sorted({name for model in component_models().values() for name in model.model_fields}))


@given(st.dictionaries(component_names, plain_values | st.dictionaries(field_names, plain_values, max_size=4)))
def test_whatever_is_written_is_taken_or_refused_in_words(data: dict[str, Any]) -> None:
    try:
        settings_from(data, ())
    except SettingsError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.message
            assert "\n" not in str(problem)


def test_every_setting_is_described() -> None:
    for name, model in component_models().items():
        assert not set(model.model_fields) - set(reference.described(model)), name
        assert all(reference.described(model).values()), name


def _nested(levels: int, inside: str) -> Any:
    value: Any = inside
    for level in range(levels):
        value = {"a": value} if level % 2 else [value]
    return value


@pytest.mark.parametrize("levels", [49, 900, 5000])
@pytest.mark.parametrize(
    "path", [("driver", "version"), ("driver", "misspelt"), ("device_plugin", "values"), ("containerd",), ("drivr",)]
)
def test_a_value_nested_deeper_than_any_setting_is_refused_in_words(path: tuple[str, ...], levels: int) -> None:
    data = _nested(levels, "http://user:password@host")
    for name in reversed(path):
        data = {name: data}
    with pytest.raises(SettingsError) as refused:
        settings_from(data, ())
    assert path[0] in str(refused.value)
    assert "password" not in str(refused.value)
    assert len(str(refused.value)) < 1000


def test_a_value_that_holds_itself_and_a_key_that_is_no_word_are_refused_by_their_setting() -> None:
    value: dict[str, Any] = {}
    value["one"] = value["two"] = value
    wrong = {"device_plugin": {"values": value}, "driver": {"branch": {(1, 2): 3}}}
    assert [problem.key for problem in _problems(wrong)] == ["driver.branch", "device_plugin.values"]


def test_a_mirror_s_address_is_filled_in() -> None:
    url = "http://127.0.0.1:8900/cuda/{distribution}/{architecture}"
    repository = settings_from({"repositories": {"cuda": {"url": url}}}).repositories.cuda
    resolved = repository.at(distribution="debian12", architecture="x86_64")
    assert resolved.url == "http://127.0.0.1:8900/cuda/debian12/x86_64"
