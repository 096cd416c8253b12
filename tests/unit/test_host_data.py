"""A host's mapping adds to its group's, key by key, unless it says that it replaces it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyinfra.api import Inventory
from pyinfra.context import ctx_host

from gpunode.facts.base import driver_root
from gpunode.fleet.inventory import host_data, layered_data
from gpunode.settings import SettingsError, check_hosts, settings_from
from gpunode.settings.hosts import merged
from gpunode.settings.layers import REPLACE, SET
from tests.support import warm
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure

Layer = dict[str, Any]


def flat(layers: list[Layer]) -> Layer:
    """Return the data as pyinfra has them: the topmost value of a name, whole."""
    return {name: value for layer in layers for name, value in layer.items()}


def data(*layers: Layer) -> Layer:
    return merged(layers, flat(list(layers))).data


def refused(*layers: Layer) -> list[str]:
    """Return the settings that are refused."""
    with pytest.raises(SettingsError) as wrong:
        settings_from(data(*layers))
    return [problem.key for problem in wrong.value.problems]


@pytest.mark.parametrize("value", ["yes", 1, False, None])
def test_a_mark_that_is_not_true_is_no_setting(value: object) -> None:
    assert refused({"driver": {"branch": "580"}}, {"driver": {REPLACE: value}}) == [f"driver.{REPLACE}"]


@pytest.mark.parametrize("wrong", ["open", 580, None, ["open"]])
def test_what_is_no_mapping_is_refused_as_ever(wrong: object) -> None:
    group: Layer = {"driver": {"branch": "580"}}
    assert refused(group, {"driver": wrong}) == refused({"driver": wrong}) == ["driver"]
    assert data({"driver": wrong}, group) == group


def test_mappings_without_end_are_refused_and_not_followed() -> None:
    deep: Any = "x"
    for _ in range(900):
        deep = {"a": deep}
    twice: Layer = {}
    twice["one"] = twice["two"] = twice
    for layer, key in (({"device_plugin": {"values": deep}}, "device_plugin.values"), ({"driver": twice}, "driver")):
        assert all(each.startswith(key) for each in refused(layer, layer))


VALUES = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=8
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), min_size=1, max_size=4))
def test_one_layer_at_a_time_or_all_at_once_is_the_same(values: list[Layer]) -> None:
    layers = [{"driver": value} for value in values]
    together = data(*layers)
    one_by_one = layers[0]
    for layer in layers[1:]:
        one_by_one = data(one_by_one, layer)
    assert together == one_by_one
    assert data(together, together) == together


def test_pyinfra_s_own_layers_are_those_that_are_merged(tmp_path: Path) -> None:
    (tmp_path / "group_data").mkdir()
    (tmp_path / "group_data" / "all.py").write_text('driver = {"branch": "570", "source": "cuda-repository"}\n')
    (tmp_path / "group_data" / "gpus.py").write_text('driver = {"branch": "580"}\nssh_user = "root"\n')
    (tmp_path / "site.py").write_text(
        'gpus = [("192.0.2.1", {"driver": {"flavour": "open"}}), ("192.0.2.2", {"driver": {"_replace": True}})]\n'
    )
    found = layered_data(str(tmp_path / "site.py"))
    first = {"branch": "580", "source": "cuda-repository", "flavour": "open"}
    assert (found["192.0.2.1"].data["driver"], found["192.0.2.1"].data["ssh_user"]) == (first, "root")
    assert (found["192.0.2.2"].data["driver"], found["192.0.2.2"].dropped) == ({}, ("driver.branch", "driver.source"))
    assert check_hosts(host_data(str(tmp_path / "site.py")), {"ssh_user"})["192.0.2.1"].driver.branch == "580"
    done = warm.run("gpunode", "check", str(tmp_path / "site.py"))
    assert (done.returncode, done.stderr) == (0, "")
    assert unnamed(done.stdout, "192.0.2.2", "_replace", "driver.branch, driver.source") == []
    shown = json.loads(warm.run("gpunode", "check", "--json", str(tmp_path / "site.py")).stdout)
    assert shown["dropped"] == {"192.0.2.2": ["driver.branch", "driver.source"]}
    assert shown["hosts"]["192.0.2.1"]["driver"]["branch"] == "580"


def test_a_fact_reads_below_the_root_that_the_merged_data_of_its_host_say(monkeypatch: pytest.MonkeyPatch) -> None:
    own: dict[str, Layer] = {
        "group": {"driver": {"branch": "580"}},
        "host": {"driver": {"root": "/host"}},
        "off": {"driver": {"enabled": False}},
        "replaced": {"driver": {REPLACE: True}},
    }
    group = (list(own), {"driver": {"root": "/group"}})
    inventory = Inventory((list(own.items()), {}), gpus=group)

    def roots() -> dict[str, str]:
        read = {}
        for each in inventory:
            with ctx_host.use(each):
                read[each.name] = driver_root()
        return read

    assert roots() == {"group": "/group", "host": "/host", "off": "/", "replaced": "/"}
    monkeypatch.setenv(SET, json.dumps({"driver": {"root": "/set"}}))
    assert roots() == {"group": "/set", "host": "/set", "off": "/", "replaced": "/set"}
