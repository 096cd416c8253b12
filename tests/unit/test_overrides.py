"""`--set KEY=VALUE`: what a word makes of the settings, and that it counts above all that an inventory says."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpunode import cli
from gpunode.cli.selection import retry_option
from gpunode.cli.selection import set_option as set_option_of_commands
from gpunode.fleet import hooks
from gpunode.fleet.inventory import host_data, load_inventory
from gpunode.settings import layers, overrides, settings_from
from gpunode.settings.layers import OverrideError
from gpunode.settings.overrides import parse
from gpunode.settings.problems import SECRET
from tests.support.messages import unnamed

pytestmark = pytest.mark.pure
WORD = "driver.version=580.95.05"


@given(st.text())
def test_whatever_is_given_is_a_mapping_or_a_refusal(word: str) -> None:
    try:
        found = parse([word])
    except OverrideError:
        return
    assert json.loads(json.dumps(found)) == found


# Settings of each kind, with names that settings of that kind take.
_LABEL = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]", fullmatch=True)
_DOMAIN = st.lists(_LABEL, min_size=1, max_size=3).map(".".join)
_RESOURCE = st.builds(
    "{}/{}".format, _DOMAIN, st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,9}[A-Za-z0-9]", fullmatch=True)
)
_NAMED = st.one_of(
    st.tuples(st.just(("kubernetes", "expected_resources")), _RESOURCE, st.integers(1, 9)),
    st.tuples(st.just(("kubernetes", "extended_resources")), _RESOURCE, st.integers(1, 9)),
    st.tuples(st.just(("kubernetes", "node_labels")), _RESOURCE, st.sampled_from(["b7", "a.b"])),
    st.tuples(st.just(("power", "limits")), st.sampled_from(["0000:01:00.0", "NVIDIA H100 80GB HBM3"]), st.integers(1)),
    st.tuples(st.just(("imex", "nodes")), _DOMAIN, st.sampled_from(["10.0.0.1", "fd00::1"])),
    st.tuples(st.just(("sharing", "resources")), st.just("nvidia.com/mig-1g.10gb"), st.integers(2, 9)),
)


def _plain(name: str) -> bool:
    # Two dots in a row, or one at an end, are no key.
    return ".." not in name and not name.endswith(".")


@given(_NAMED.filter(lambda each: _plain(each[1])))
def test_a_name_of_the_users_own_is_one_key_whatever_dots_it_has(named: tuple[tuple[str, str], str, object]) -> None:
    (component, setting), name, value = named
    assert parse([f"{component}.{setting}.{name}={value}"]) == {component: {setting: {name: value}}}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=6), inner, max_size=2),
    max_leaves=5,
)
_KEYS = st.sampled_from([
    "driver.version", "driver.branch", "driver.module_parameters", "driver.module_parameters.NVreg_X", "mps.enabled",
    "mps.clients", "kubernetes.drain", "kubernetes.drain.timeout", "device_plugin.values", "device_plugin.values.a.b",
    "kubernetes.device_plugins.fpga.values", "imex.nodes.gpu-1.example.com", "driver.verzion", "driver.x.y",
])  # fmt: skip


@given(st.lists(st.builds("{}={}".format, _KEYS, _JSON.map(json.dumps) | st.text(max_size=6)), max_size=4))
def test_the_words_that_are_told_again_give_what_was_given(words: list[str]) -> None:
    try:
        found = parse(words)
    except OverrideError:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(layers.SET, json.dumps(found))
        again = overrides.shown()
    if not any(word.endswith(f"={SECRET}") for word in again):
        assert parse(again) == found


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["driver.branch=580", "mps.enabled=true"], ("driver.branch=580", "mps.enabled=true")),
        (["power.limits.NVIDIA H100 80GB HBM3=600"], ("power.limits.NVIDIA H100 80GB HBM3=600",)),
        (["proxy.https=http://me:hunter2@proxy:3128"], (f"proxy.https={SECRET}",)),
        (
            [f"device_plugin.image=a.example/b@sha256:{'0' * 64}"],
            (f"device_plugin.image=a.example/b@sha256:{'0' * 64}",),
        ),
        (["device_plugin.values.registry.password=hunter2"], (f"device_plugin.values.registry.password={SECRET}",)),
        (['device_plugin.values={"env":[{"token":"hunter2"}]}'], (f"device_plugin.values.env={SECRET}",)),
    ],
)
def test_what_may_be_secret_is_not_told_again(
    words: list[str], shown: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(layers.SET, json.dumps(parse(words)))
    assert overrides.shown() == shown
    assert "hunter2" not in str(shown)


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(layers.SET, "")
    monkeypatch.setenv(layers.LIMIT, "")
    path = tmp_path / "fleet.py"
    path.write_text("nodes = [('gpu-1', {'driver': {'branch': '570', 'hold': False}}), 'gpu-2']\n")
    return path


def _settings(inventory: Path, *words: str) -> dict[str, dict[str, dict[str, object]]]:
    done = CliRunner().invoke(cli.gpunode, ["check", "--json", *words, str(inventory)])
    assert done.exit_code == 0, done.output
    found: dict[str, dict[str, dict[str, object]]] = json.loads(done.stdout)["hosts"]
    return found


def test_it_counts_for_all_hosts_above_what_their_inventory_says(inventory: Path) -> None:
    found = _settings(inventory, "--set", "driver.branch=580")
    assert [found[name]["driver"]["branch"] for name in ("gpu-1", "gpu-2")] == ["580", "580"]
    assert found["gpu-1"]["driver"]["hold"] is False, "the rest stays as the inventory says"


# What a parent process gave, and none.
@pytest.mark.parametrize("given_before", [{}, {layers.SET: '{"driver": {"branch": "595"}}', layers.LIMIT: "[]"}])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["check"], 0),
        (["check", "--limit", "gpu-1"], 0),
        (["check", "--set", "driver.flavour=opne"], 3),
        (["check", "--set", "driver"], 2),
        # Refused when --set has been read.
        (["drift", "--timeout", "0"], 2),
    ],
)
def test_it_is_given_to_one_command_of_a_process(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, given_before: dict[str, str], words: list[str], code: int
) -> None:
    for name in (layers.SET, layers.LIMIT):
        monkeypatch.delenv(name)
    for name, text in given_before.items():
        monkeypatch.setenv(name, text)
    before = _settings(inventory)["gpu-1"]["driver"]["branch"]
    done = CliRunner().invoke(cli.gpunode, [words[0], "--set", "driver.branch=580", *words[1:], str(inventory)])
    assert done.exit_code == code, done.output
    assert layers.environment() == given_before
    assert _settings(inventory)["gpu-1"]["driver"]["branch"] == before == ("595" if given_before else "570")


@pytest.mark.parametrize(
    ("word", "code"),
    [("driver.flavour=opne", 3), ("driver.verzion=1", 3), ("driver", 2)],
)
def test_a_setting_that_is_wrong_is_refused_by_its_key_and_a_word_that_is_none_is_a_mistake_of_usage(
    inventory: Path, word: str, code: int
) -> None:
    done = CliRunner().invoke(cli.gpunode, ["check", "--set", word, str(inventory)])
    assert done.exit_code == code
    assert unnamed(done.stderr, word.partition("=")[0] if code == 3 else "COMPONENT.SETTING=VALUE") == []


def test_a_key_given_twice_in_its_json_is_refused() -> None:
    with pytest.raises(OverrideError):
        parse(['driver={"branch": "580", "branch": "590"}'])


@pytest.mark.parametrize("variable", [layers.SET, layers.LIMIT])
@pytest.mark.parametrize(
    "command",
    [
        ["check"],
        ["check", "--json"],
        ["plan"],
        ["drift"],
        ["apply", "--yes"],
        ["rollout", "--dry"],
        ["facts"],
        ["cluster"],
    ],
)
def test_every_command_refuses_it_in_a_message(
    command: list[str], variable: str, inventory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "5")
    done = CliRunner().invoke(cli.gpunode, [*command, str(inventory)])
    assert done.exit_code == 3 and unnamed(done.stderr, variable, "JSON") == [], done.output


def test_pyinfra_itself_refuses_it_in_a_message(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It stands for the state, too, of which nothing is asked.
    found = load_inventory(inventory)
    monkeypatch.setenv(layers.SET, "[1]")
    with pytest.raises(OverrideError):
        layers.given()
    monkeypatch.setenv(layers.SET, "5")
    with pytest.raises(hooks.SettingsRefused, match=layers.SET):
        hooks._validated(lambda *given: None, found, found)  # type: ignore[arg-type]


MIXED = """\
big = ["gpu-1"]
small = [("gpu-2", {"driver": {"branch": "570"}})]
"""


def test_with_a_limit_it_is_judged_on_those_hosts_alone(inventory: Path) -> None:
    inventory.write_text(MIXED)
    word = "driver.version=580.95.05"
    # gpu-2 is to have another branch.
    everywhere = CliRunner().invoke(cli.gpunode, ["check", "--set", word, str(inventory)])
    assert everywhere.exit_code == 3 and "gpu-2: driver.version" in everywhere.stderr
    for words in (("--limit", "gpu-1", "--set", word), ("--set", word, "--limit", "big")):
        assert _settings(inventory, *words)["gpu-1"]["driver"]["version"] == "580.95.05"


@pytest.mark.parametrize(
    ("patterns", "hosts"), [(["big"], ["gpu-1"]), (["gpu-?"], ["gpu-1", "gpu-2"]), (["gpu-2"], ["gpu-2"]), ([], "both")]
)
def test_it_is_for_the_hosts_that_a_limit_names(
    inventory: Path, monkeypatch: pytest.MonkeyPatch, patterns: list[str], hosts: list[str] | str
) -> None:
    inventory.write_text(MIXED)
    monkeypatch.setenv(layers.SET, '{"driver": {"branch": "580"}, "disruption": {"max_parallel": 3}}')
    monkeypatch.setenv(layers.LIMIT, json.dumps(patterns))
    data = host_data(inventory)
    found = [name for name in data if data[name].get("driver", {}).get("branch") == "580"]
    assert found == (["gpu-1", "gpu-2"] if hosts == "both" else hosts)
    # One number for the whole run, whomever it is limited to.
    assert {each["disruption"]["max_parallel"] for each in data.values()} == {3}


def test_what_a_cluster_has_one_of_is_refused_with_the_way_out(inventory: Path) -> None:
    inventory.write_text("nodes = [(f'gpu-{n}', {'kubernetes': {'enabled': True}}) for n in (1, 2)]\n")
    words = ["--limit", "gpu-1", "--set", "device_plugin.namespace=x"]
    done = CliRunner().invoke(cli.gpunode, ["check", *words, str(inventory)])
    assert done.exit_code == 3 and unnamed(done.stderr, "device_plugin.namespace", "--limit") == []
    done = CliRunner().invoke(cli.gpunode, ["check", *words[2:], str(inventory)])
    assert done.exit_code == 0, done.output


FACTS = Path(__file__).parents[2] / "docs" / "examples" / "plan"


def test_it_counts_above_the_settings_of_recorded_facts_too(inventory: Path) -> None:
    words = ["plan", "--facts", f"{FACTS}/facts.json", "--settings", f"{FACTS}/settings.yaml"]
    plain = CliRunner().invoke(cli.gpunode, words)
    other = CliRunner().invoke(cli.gpunode, [*words, "--set", "cuda.version=12.8"])
    assert plain.exit_code == other.exit_code, other.output
    assert "12.8" in other.stdout and "12.8" not in plain.stdout
    wrong = CliRunner().invoke(cli.gpunode, [*words, "--set", "driver.flavour=opne"])
    assert wrong.exit_code == 3 and unnamed(wrong.stderr, "driver.flavour", "'opne'") == []


RETRIES = [("--retry",), ("--retry", "--set", WORD), ("--set", WORD, "--retry"), ("--set", WORD)]


@pytest.mark.parametrize("words", RETRIES)
def test_a_retry_is_a_setting_of_the_command_line_beside_the_others(words: tuple[str, ...]) -> None:
    def check() -> None:
        found = layers.given()
        assert found.get("disruption", {}).get("retry", False) is ("--retry" in words)
        assert ("driver" in found) is (WORD in words)

    command = retry_option(set_option_of_commands(click.Command("apply", callback=check)))
    assert CliRunner().invoke(command, words, catch_exceptions=False).exit_code == 0
    assert layers.given() == {}


def test_a_retry_changes_no_digest() -> None:
    assert settings_from({"disruption": {"retry": True}}).digest() == settings_from({}).digest()
