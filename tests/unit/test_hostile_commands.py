"""Hostile values in the commands that operations send: they arrive to the letter, and nothing else happens.

The real sh, gpg, apt and coreutils of this machine run them, in a temporary folder, as pyinfra would over SSH.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pyinfra.api import StringCommand
from pyinfra.connectors.util import make_unix_command

from gpunode.facts.deb import AptRepository, DebPackages
from gpunode.facts.families.dnf import DnfOffers, DnfRepository, DnfSimulation
from gpunode.facts.families.dnf5 import Dnf5Offers, Dnf5Repository, Dnf5Simulation
from gpunode.facts.families.pacman import PacmanOffers, PacmanPackages, PacmanSimulation
from gpunode.facts.families.rpm import RpmPackages
from gpunode.facts.families.zypper import ZypperOffers, ZypperRepository, ZypperSimulation
from gpunode.facts.file import File
from gpunode.facts.unit import Unit
from gpunode.operations.apt_trust import commands
from gpunode.operations.files import write_command
from gpunode.operations.script import script_command
from gpunode.operations.transaction import transaction_text
from gpunode.packages.apt_trust import DISABLED, Disable, Rewrite
from tests.support.hostile import CANARY, HOSTILE, hostile_text
from tests.support.transactions import of_bodies

pytestmark = [pytest.mark.real, pytest.mark.tier2]


def _can_travel(text: str) -> bool:
    """Say whether a text can be an argument of a program at all."""
    return "\0" not in text and text.encode("utf-8", "ignore").decode() == text


ARGUMENTS = tuple(filter(_can_travel, HOSTILE))


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield an empty folder; a canary in it at the end is a failure. A fixture would be one for all of hypothesis."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield folder
        assert not list(folder.rglob(CANARY)), "a value was run"


# Each in a shell and a folder of its own, by one program: to start some hundred from here takes several times as long.
_EACH = 'n=0; for line; do n=$((n + 1)); mkdir "$n"; (cd "$n"; eval "$line") || { echo "$n: $?" >&2; exit 1; }; done'


def _line(command: StringCommand | str) -> str:
    """Return a command as pyinfra's SSH connector hands it to the node's login shell."""
    asked = command if isinstance(command, StringCommand) else StringCommand(command)
    found: str = make_unix_command(asked).get_raw_value()
    return found


def _run(command: StringCommand | str, folder: Path) -> None:
    given = getattr(command, "connector_arguments", {}).get("_stdin", [])
    _sh(folder, _line(command), given="".join(f"{line}\n" for line in given))


def _sh(folder: Path, *words: str, given: str = "") -> None:
    if os.geteuid():
        # Only root may give a file to root; that is not what is shown here.
        (folder / "bin").mkdir(exist_ok=True)
        (folder / "bin" / "chown").symlink_to("/bin/true")
    done = subprocess.run(
        ["sh", "-c", *words], cwd=folder, input=given, capture_output=True, text=True, errors="replace", timeout=60,
        check=False,
        env={**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def _arrives_in_a_script(value: str) -> None:
    with _folder() as folder:
        _run(script_command('printf %s "$value" > variable; printf %s "$1" > argument', value, value=value), folder)
        assert (folder / "variable").read_bytes() == value.encode()
        assert (folder / "argument").read_bytes() == value.encode()


# Longer than any setting may be; one argument of a program ends at 128 KiB, and here are two.
@pytest.mark.parametrize("value", [*ARGUMENTS, pytest.param("; $(x) " * 4_300, id="60 KB")])
def test_a_value_arrives_in_a_script_to_the_letter(value: str) -> None:
    _arrives_in_a_script(value)


@given(hostile_text.filter(_can_travel))
def test_any_value_arrives_in_a_script_to_the_letter(value: str) -> None:
    _arrives_in_a_script(value)


def test_the_canary_dies_where_a_value_is_not_quoted() -> None:
    with pytest.raises(AssertionError, match="a value was run"), _folder() as folder:
        _run(StringCommand("echo", f"; touch {CANARY}"), folder)


@pytest.mark.parametrize("value", ARGUMENTS)
def test_a_value_arrives_in_a_transaction_to_the_letter(value: str) -> None:
    transaction = of_bodies(":", 'printf %s "$value" > "$folder/arrived"', ":")
    with _folder() as folder:
        text = transaction_text(transaction, "target", {"folder": str(folder), "value": value})
        done = subprocess.run(["sh", "-c", text, "sh", "change"], cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (folder / "arrived").read_bytes() == value.encode()


@pytest.mark.parametrize("value", ARGUMENTS)
def test_a_file_is_written_and_read_to_the_letter_whatever_its_name_and_text(
    value: str, run_shell: Callable[[str], tuple[int, list[str]]]
) -> None:
    with _folder() as folder:
        path = folder / f"a{value.replace('/', '_')}" / value.replace("/", "_")
        _run(write_command(str(path), value), folder)
        assert path.read_bytes() == value.encode() and list(path.parent.iterdir()) == [path]
        _, lines = run_shell(File().command(path=str(path)))
        assert f"sha256={hashlib.sha256(value.encode()).hexdigest()}" in lines


@pytest.mark.parametrize("mode", [(), ("644",), ("600",), ("755",)])
def test_a_file_of_90_kilobytes_is_written_with_the_mode_that_is_asked(mode: tuple[str, ...]) -> None:
    text = f"$(touch {CANARY})'\n" * 5_600
    with _folder() as folder:
        _run(write_command(str(folder / "file"), text, *mode), folder)
        assert (folder / "file").read_text() == text
        assert (folder / "file").stat().st_mode & 0o777 == int((*mode, "644")[0], 8)


@pytest.mark.parametrize("value", ARGUMENTS)
def test_disabling_a_file_takes_its_name_and_text_to_the_letter(value: str) -> None:
    with _folder() as folder:
        for number, name in enumerate(("renamed", "rewritten")):
            path = folder / f"{name}{value.replace('/', '_')}"
            path.write_text("old", encoding="utf-8")
            step = Rewrite(str(path), value, value) if number else Disable(str(path), value)
            for command in commands([step]):
                _run(command, folder)
            assert path.with_name(path.name + DISABLED).read_text(encoding="utf-8") == "old"
            assert path.exists() == bool(number)
        assert path.read_bytes() == value.encode()


def _of_one(value: str) -> dict[str, str]:
    """Return fact -> what it asks about a value."""
    repository = {"keyring": value, "source": value, "stamp": value, "uri": f"http://{value}"}
    of_dnf: tuple[Any, ...] = (DnfRepository, Dnf5Repository, ZypperRepository)
    return {
        "File": File().command(path=value),
        "Unit": Unit().command(unit=value),
        "AptRepository": AptRepository().command(**repository, distrusted=[value]),
        "DnfOffers": DnfOffers().command(names=[value], stream=value),
        "DnfSimulation": DnfSimulation().command(coming={value: value}, going=[value], stream=value),
        **{fact.__name__: fact().command(**repository) for fact in of_dnf},
    }


def _of_many(values: Sequence[str]) -> dict[str, str]:
    """Return fact -> what it asks about all values at once, of those that take any number of names."""
    asked: tuple[tuple[dict[str, Any], tuple[Any, ...]], ...] = (
        ({"names": [*values, *values]}, (DebPackages, RpmPackages, PacmanPackages)),
        ({"names": [*values]}, (Dnf5Offers, PacmanOffers, ZypperOffers)),
        (
            {"coming": {each: each for each in values}, "going": [*values]},
            (Dnf5Simulation, PacmanSimulation, ZypperSimulation),
        ),
    )
    return {fact.__name__: fact().command(**arguments) for arguments, facts in asked for fact in facts}


@pytest.mark.parametrize("fact", [*_of_one(""), *_of_many(["x"])])
def test_a_probe_reads_and_runs_nothing_whatever_it_is_asked_about(fact: str) -> None:
    of_many = _of_many(ARGUMENTS)
    asked = [of_many[fact]] if fact in of_many else [_of_one(value)[fact] for value in ARGUMENTS]
    with _folder() as folder:
        _sh(folder, _EACH, "sh", *map(_line, asked))
        left = {number: list((folder / str(number)).iterdir()) for number in range(1, len(asked) + 1)}
        assert {number: names for number, names in left.items() if names} == {}


def test_the_canary_dies_in_the_folder_of_the_one_command_of_many_that_lets_it() -> None:
    with pytest.raises(AssertionError, match="a value was run"), _folder() as folder:
        _sh(folder, _EACH, "sh", _line("true"), _line(StringCommand("echo", f"; touch {CANARY}")))
    with pytest.raises(AssertionError, match="2: 3"), _folder() as folder:
        _sh(folder, _EACH, "sh", _line("true"), _line("exit 3"), _line("true"))
