"""`--set KEY=VALUE`: what a word makes of the settings, and that it counts above all that an inventory says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gpunode import cli
from gpunode.settings import overrides
from gpunode.settings.overrides import OverrideError, parse

pytestmark = pytest.mark.pure


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("driver.version=580.95.05", {"driver": {"version": "580.95.05"}}),
        # Text stays text, though it reads like a number.
        ("driver.branch=580", {"driver": {"branch": "580"}}),
        ("cuda.version=12.9", {"cuda": {"version": "12.9"}}),
        ("driver.branch=null", {"driver": {"branch": None}}),
        ("driver.flavour=open", {"driver": {"flavour": "open"}}),
        ("mps.enabled=true", {"mps": {"enabled": True}}),
        ("disruption.max_parallel=3", {"disruption": {"max_parallel": 3}}),
        ("mps.clients=null", {"mps": {"clients": None}}),
        ("kubernetes.drain.timeout=60", {"kubernetes": {"drain": {"timeout": 60}}}),
        ('driver.module_parameters={"NVreg_X":"1"}', {"driver": {"module_parameters": {"NVreg_X": "1"}}}),
        ("driver.module_parameters.NVreg_X=1", {"driver": {"module_parameters": {"NVreg_X": "1"}}}),
        ("driver.runfile_url=https://a.example/x?a=b", {"driver": {"runfile_url": "https://a.example/x?a=b"}}),
        # What the settings then refuse, by its key.
        ("mps.enabled=yes", {"mps": {"enabled": "yes"}}),
        ("driver.verzion=580", {"driver": {"verzion": 580}}),
    ],
)
def test_a_word_is_a_setting_read_as_its_kind_asks(word: str, found: dict[str, object]) -> None:
    assert parse([word]) == found


def test_words_are_put_together_and_the_last_counts() -> None:
    words = ["driver.branch=570", "driver.flavour=open", "driver.branch=580", "mps.enabled=true"]
    assert parse(words) == {"driver": {"branch": "580", "flavour": "open"}, "mps": {"enabled": True}}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("driver.version", "COMPONENT.SETTING=VALUE"),
        ("driver=580", "COMPONENT.SETTING=VALUE"),
        ("=1", "COMPONENT.SETTING=VALUE"),
        ("drivr.version=580", "did you mean driver?"),
    ],
)
def test_a_word_that_is_no_setting_is_refused_with_what_is_allowed(word: str, said: str) -> None:
    with pytest.raises(OverrideError, match=re.escape(said)):
        parse([word])


def test_two_words_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(OverrideError, match="another --set"):
        parse(["kubernetes.drain=1", "kubernetes.drain.timeout=60"])


@given(st.text())
def test_whatever_is_given_is_a_mapping_or_a_refusal(word: str) -> None:
    try:
        found = parse([word])
    except OverrideError:
        return
    assert json.loads(json.dumps(found)) == found


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(overrides.SET, "")
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


def test_without_it_nothing_of_it_is_left(inventory: Path) -> None:
    assert _settings(inventory)["gpu-1"]["driver"]["branch"] == "570"


@pytest.mark.parametrize("word", ["driver.flavour=opne", "driver.verzion=1"])
def test_a_setting_that_is_wrong_is_refused_by_its_key(inventory: Path, word: str) -> None:
    done = CliRunner().invoke(cli.gpunode, ["check", "--set", word, str(inventory)])
    assert done.exit_code == 3 and word.partition("=")[0] in done.stderr


def test_a_word_that_is_no_setting_is_a_mistake_of_usage(inventory: Path) -> None:
    done = CliRunner().invoke(cli.gpunode, ["check", "--set", "driver", str(inventory)])
    assert done.exit_code == 2 and "COMPONENT.SETTING=VALUE" in done.stderr


def test_what_others_left_in_the_environment_is_refused(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(overrides.SET, "[1]")
    with pytest.raises(OverrideError, match="unset it"):
        overrides.given()
