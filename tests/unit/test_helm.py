"""Helm releases: what helm tells of one, how it differs from what is asked, and what is done about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpunode.base.reading import ParseError
from gpunode.kubernetes.helm.change import ActualRelease, DesiredRelease, change, removal
from gpunode.kubernetes.helm.manifest import Identity, Object, differences, drifted, objects
from gpunode.kubernetes.helm.release import Release, parse_history, parse_list
from gpunode.settings import SettingsError
from tests.support.helm import MANIFEST, NOW, OTHER, TIMEOUT, commands, different, release

pytestmark = pytest.mark.pure

# A busy machine takes longer, and is not what is tried.
unhurried = settings(deadline=None)


def test_no_secret_shows_in_a_difference() -> None:
    hidden = different("MANIFEST", "MANIFEST", "hunter2", "hunter3")
    assert hidden == ["Secret credentials: stringData.key: <not shown>, desired <not shown>"]
    told = [different("MANIFEST", MANIFEST.replace("{key: hunter2}", "hunter3")), different("MANIFEST", "")]
    variable = MANIFEST.replace("TWO", "API_TOKEN")
    told += [different(found, variable) for found in (
        variable.replace('value: "2"', "value: hunter2"), variable.replace(', {name: API_TOKEN, value: "2"}', ""),
    )]  # fmt: skip
    assert all(told) and not [each for each in told if "hunter" in str(each) or '"2"' in str(each)]
    assert "hunter" not in repr(objects(MANIFEST, "gpu"))


@pytest.mark.parametrize(
    "manifest",
    [
        "a: [",
        "7",
        "- 1",
        "kind: Pod",
        "{kind: Pod, apiVersion: v1, metadata: {}}",
        "a: !!python/object:x {}",
        MANIFEST * 2,
    ],
)
def test_what_is_no_manifest_is_refused_without_its_words(manifest: str) -> None:
    with pytest.raises(ParseError) as error:
        objects(manifest, "gpu")
    assert "hunter2" not in str(error.value) and "\n" not in str(error.value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["env", "name", "containers", "limits", "ports", "rules", "data", "annotations", "configMap"]
    ), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@unhurried
@given(plain, plain)
def test_an_object_differs_from_another_and_not_from_itself(one: Any, other: Any) -> None:
    def made(spec: Any) -> dict[Identity, Object]:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
        return objects(yaml.safe_dump(pod), "gpu")

    assert differences(made(one), made(one)) == drifted(made(one), made(one)) == ()
    told = differences(made(one), made(other))
    assert all("\n" not in str(each) for each in told)
    assert bool(told) == bool(differences(made(other), made(one)))


fields = st.recursive(
    st.sampled_from(["", "x", "1"]) | st.none() | st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
        ["env", "name", "value", "key", "args", "containers", "tolerations", "rules", "strategy", "volumes"]
    ), inner, max_size=4),
    max_leaves=15,
)  # fmt: skip


def _served(value: Any) -> Any:
    """Return a value as an API server returns it that knows all fields of a kind."""
    if isinstance(value, dict):
        served = {key: _served(item) for key, item in value.items()}
        # A container's or a variable's name is no optional field: an empty one is written, too.
        kept = {key: item for key, item in served.items() if item is not None and item not in ("", {}, [])}
        return kept | ({"name": ""} if value.get("name") == "" else {})
    return list(map(_served, value)) if isinstance(value, list) else value


@unhurried
@given(fields)
def test_what_an_api_server_keeps_of_an_object_is_no_drift_from_it(spec: Any) -> None:
    def made(content: Any) -> dict[Identity, Object]:
        found = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a"}, "spec": content}
        return objects(yaml.safe_dump(found), "gpu")

    assert drifted(made(spec), made(_served(spec))) == differences(made(spec), made(_served(spec))) == ()


WANTED = DesiredRelease("nvidia-device-plugin", "0.20.0", "gpu", MANIFEST, takes_over=True)


def test_it_is_known_whose_pods_stay_by_the_revision_that_is_gone_back_to() -> None:
    """By that one, whatever the desired revision and the one that was cut off say."""
    stays = MANIFEST.replace("spec:\n  template:", "spec:\n  updateStrategy: {type: OnDelete}\n  template:", 1)
    cut_off, behind = release("deployed", "pending-upgrade"), stays
    daemon_set, none = frozenset({Identity("apps", "DaemonSet", "", "nvdp")}), frozenset[Identity]()
    for desired, ours in ((stays, none), (OTHER, none), (stays.replace("plugin:v1", "plugin:v2"), daemon_set)):
        found = change(replace(WANTED, manifest=desired), ActualRelease(cut_off, behind), NOW, TIMEOUT)
        assert (found.stays_behind, found.stays) == (daemon_set, ours)
    assert not change(WANTED, ActualRelease(cut_off, MANIFEST), NOW, TIMEOUT).stays_behind
    # Where nothing is gone back to, it is no matter.
    assert not change(WANTED, ActualRelease(release("deployed"), behind), NOW, TIMEOUT).stays_behind


def test_a_release_that_is_not_asked_for_goes_unless_it_is_another_s_or_under_way() -> None:
    def steps(found: Release | None) -> list[str]:
        return [each.act for each in removal(found, "nvidia-device-plugin", NOW, TIMEOUT).steps]

    assert steps(release("deployed")) == ["uninstall"] and steps(None) == []
    assert steps(release("pending-upgrade", age=1)) == steps(release("deployed", chart="postgresql-15.1.0")) == []


@pytest.mark.parametrize("parse", [parse_history, lambda text: parse_list(text, "nvdp", "gpu")])
@pytest.mark.parametrize(
    "text",
    ["", "hunter2", "7", "null", '"hunter2"', "[7]", '{"info": 7}', "[[]]", "[" * 100_000, '[{"revision": true}]'],
)  # fmt: skip
def test_an_answer_that_is_none_is_refused_without_its_words(parse: Any, text: str) -> None:
    try:
        found = parse(text)
    except ParseError as error:
        assert "hunter2" not in str(error)
    else:
        assert found is None and text == '[{"revision": true}]'


def test_values_are_in_no_command_line_and_in_no_text_form() -> None:
    command = commands().upgrade({"password": "hunter2\U0001f600"})
    assert "hunter2" not in repr(command) and command.stdin == '{"password": "hunter2\U0001f600"}'
    assert command.seconds >= 2 * 60
    for text in ("\x7f", "\ud800", "\x00"):
        with pytest.raises(SettingsError):
            commands(values={"a": [text]})


def test_a_proxy_is_told_with_what_is_reached_without_it() -> None:
    listing = commands().listing()
    assert listing.environment == {"https_proxy": "http://proxy.example.org:3128", "no_proxy": "10.0.0.1"}
    assert "HELM_DRIVER" in listing.unset
