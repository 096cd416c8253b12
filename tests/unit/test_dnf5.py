"""dnf 5: its list of locks is written as it reads it; tests/cases has what dnf 5.4.6 prints."""

from __future__ import annotations

import base64
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.components.runtimes.toolkit.packages import hold_text, is_held
from gpunode.facts.driver import DriverPackages as DriverPackagesFact
from gpunode.facts.families.dnf5 import DRIVER_PACKAGES
from gpunode.facts.toolkit import ContainerToolkit
from gpunode.operations import driver_packages, toolkit
from gpunode.packages.families import dnf5
from tests.support.dnf5 import ENTRY, THEIRS
from tests.support.messages import unnamed
from tests.support.programs import programs, sh
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

EVR = "3:580.82.07-1.fc42"
SET = {"nvidia-open": EVR, "libnvidia-ml": EVR, "nvidia-fabricmanager": "580.82.07-1"}


# --- versionlock's list ----------------------------------------------------------------------------------------------


def entries(text: str) -> list[tuple[str, str, str]]:
    """Return (name, version, comment) of each entry, as dnf 5 reads them."""
    found = tomllib.loads(text)
    assert found.get("version") == "1.0" or not found
    told = []
    for entry in found.get("packages", ()):
        (condition,) = entry["conditions"]
        assert (condition["key"], condition["comparator"]) == ("evr", "=")
        told.append((entry["name"], condition["value"], entry.get("comment", "")))
    return told


def test_what_dnf_wrote_anew_is_still_ours_and_needs_no_change() -> None:
    # As dnf 5 writes it: in another order, with empty lines between, and without comments.
    third = '[[packages]]\nname = "nvidia-open"'
    anew = dnf5.locked("", SET).replace(third, ENTRY.replace("dkms", "ocl-icd") + third)
    assert dnf5.locked(anew, SET) == anew
    moved = dnf5.locked(anew, {**SET, "nvidia-open": "3:580.95.05-1.fc42"})
    assert ("nvidia-open", "3:580.95.05-1.fc42") in [entry[:2] for entry in entries(moved)]
    assert [entry[0] for entry in entries(moved)].count("nvidia-open") == 1
    assert "ocl-icd" in [entry[0] for entry in entries(moved)]


# The second form is what is left of the list where somebody had dnf 5 drop the last lock.
INLINE = """\
# by the site
version = "1.0"
packages = [
  {name = "dkms", comment = "by hand", conditions = [{key = "evr", comparator = "=", value = "3.4.3-2.el9"}]}, # old
]
"""


@pytest.mark.parametrize(
    "text", [INLINE, INLINE.replace('version = "1.0"\n', ""), 'version = "1.0"\npackages = []\n', "packages = []\n"]
)
def test_a_list_in_brackets_gets_its_entries_there_and_loses_ours_again(text: str) -> None:
    theirs = [entry for entry in (("dkms", "3.4.3-2.el9", "by hand"),) if entry[0] in text]
    new = dnf5.locked(text, SET)
    assert sorted(entry[:2] for entry in entries(new)[len(theirs) :]) == sorted(
        (name, version if ":" in version else f"0:{version}") for name, version in SET.items()
    )
    assert entries(new)[: len(theirs)] == theirs and ("# by the site" in new, "# old" in new) == (bool(theirs),) * 2
    assert dnf5.locked(new, SET) == new
    moved = dnf5.locked(new, {**SET, "nvidia-open": "3:580.95.05-1.fc42"})
    assert len(entries(moved)) == len(entries(new)) and "580.95.05" in moved
    both = dnf5.locked(new, {"nvidia-container-toolkit": "1.17.8-1"}, group="toolkit")
    assert len(entries(both)) == len(entries(new)) + 1
    left = dnf5.locked(dnf5.locked(both, {}), {}, group="toolkit")
    assert entries(left) == theirs and bool(left) is bool(theirs)


NAMES = st.sampled_from(["nvidia-open", "libnvidia-ml", "dkms", "kernel-core"])
VERSIONS = st.from_regex(r"([0-9]:)?[0-9]{1,3}\.[0-9]{1,2}-[0-9]\.fc42", fullmatch=True)
KEPT = st.dictionaries(NAMES, VERSIONS, max_size=3)


@given(first=KEPT, second=KEPT, more=KEPT, every=st.lists(st.tuples(NAMES, VERSIONS), max_size=3))
def test_whatever_is_kept_dnf_reads_exactly_that_and_what_others_have_stays(
    first: dict[str, str], second: dict[str, str], more: dict[str, str], every: list[tuple[str, str]]
) -> None:
    text = dnf5.locked(dnf5.locked(THEIRS, more, group="toolkit"), first)
    new = dnf5.locked(text, second, every=every)
    pairs = {*second.items(), *((name, version) for name, version in every if name in second)}
    full = sorted((name, version if ":" in version else f"0:{version}") for name, version in pairs)
    found = entries(new)
    assert sorted((name, version) for name, version, comment in found if comment.endswith("the driver")) == full
    assert len([entry for entry in found if entry[2].endswith("the toolkit")]) == len(more)
    assert ("dkms", "3.4.3-2.el9") in [entry[:2] for entry in found]
    assert dnf5.locked(new, second, every=every) == new


@given(text=st.text(max_size=80))
def test_any_text_is_read_or_refused_in_words(text: str) -> None:
    try:
        new = dnf5.locked(text, SET)
    except ValueError as error:
        assert dnf5.LOCKLIST in str(error)
    else:
        assert len(entries(new)) >= len(SET)


VALUE_FIRST = f'{{value = "{EVR}", key = "evr", comparator = "="}}'
ON_ARM = '{key = "arch", comparator = "=", value = "aarch64"}'


@pytest.mark.parametrize(
    ("text", "held"),
    [
        (dnf5.locked(THEIRS, SET), ["libnvidia-ml", "nvidia-open"]),
        (dnf5.locked("", {"libnvidia-ml": "3:580.95.05-1.fc42"}), []),
        # Names are patterns, and the epoch 0 need not be said.
        (THEIRS.replace("dkms", "*nvidia-ml").replace("3.4.3-2.el9", EVR), ["libnvidia-ml"]),
        (THEIRS.replace("dkms", "nvidia-fabricmanager").replace("3.4.3-2.el9", "3-1"), ["nvidia-fabricmanager"]),
        # Without its version dnf reads none of it; other conditions lock no one version.
        (dnf5.locked("", SET).replace('version = "1.0"', ""), []),
        (THEIRS.replace("dkms", "nvidia-open").replace('"="', '">="').replace("3.4.3-2.el9", EVR), []),
        # Lists in brackets, as hands write them: in any order, with other conditions, the version behind them.
        (dnf5.locked('version = "1.0"\npackages = []\n', SET), ["libnvidia-ml", "nvidia-open"]),
        (dnf5.locked(INLINE, {"nvidia-open": EVR}), ["nvidia-open"]),
        (f"packages = [{{conditions = [{VALUE_FIRST}], name = 'nvidia-open'}}]\nversion = \"1.0\"", ["nvidia-open"]),
        (f'version = "1.0"\n[[packages]]\nname = "nvidia-open" # {{"\nconditions = [{VALUE_FIRST}]', ["nvidia-open"]),
        (f'version = "1.0"\npackages = [{{name = "nvidia-open", conditions = [{VALUE_FIRST}, {ON_ARM}]}}]', []),
        (f"packages = [{{conditions = [{VALUE_FIRST}], name = 'nvidia-open'}}]", []),
        ("", []),
        (None, []),
    ],
)
def test_a_probe_tells_what_a_lock_is_for(text: str | None, held: list[str], tmp_path: Path) -> None:
    locklist = tmp_path / "versionlock.toml"
    if text is not None:
        locklist.write_text(text)
    listed = (
        f"'nvidia-open {EVR} {EVR}' 'libnvidia-ml {EVR} {EVR}' 'bash 5.2-1 0:5.2-1' 'nvidia-fabricmanager 3-1 0:3-1'"
    )
    programs(tmp_path, {"rpm": f"printf '%s\\n' {listed}"})
    done = sh(tmp_path, DRIVER_PACKAGES.replace(dnf5.LOCKLIST, str(locklist)) + "\nof_driver")
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.stderr == ""
    assert [name for want, name, _ in lines if want == "hold"] == held
    assert {name for _, name, _ in lines} >= {"libnvidia-ml", "nvidia-open"}


def held(host: Host, locklist: str, hold: bool = True) -> list[str]:
    found = dnf5.LockedPackages(tuple(sorted(SET.items())), (), locklist=locklist)
    host.readings[DriverPackagesFact] = found
    return commands(driver_packages.held, host, family="dnf5", hold=hold, kernel=False)


def test_hold_writes_the_list_once_lets_go_of_ours_alone_and_takes_away_a_list_of_nothing(host: Host) -> None:
    write, note = held(host, THEIRS)
    ours = dnf5.locked(THEIRS, SET)
    assert base64.b64encode(ours.encode()).decode() in write and f"gpunode {dnf5.LOCKLIST}" in note
    assert held(host, ours) == []
    _write, remove, _note = held(host, dnf5.locked("", SET), hold=False)
    assert "rm -f" in remove
    assert held(host, "broken [") == []
    assert unnamed(host.refusals[0], dnf5.LOCKLIST, "driver.hold = False") == []


def test_the_toolkit_s_packages_are_held_by_the_same_list_and_a_broken_one_is_refused(host: Host) -> None:
    there = replace(GOOD.toolkit, hold_text=THEIRS)
    text = hold_text("dnf5", there, True)
    assert text is not None and all(entry[2].endswith("the toolkit") for entry in entries(text)[1:])
    assert [entry[0] for entry in entries(text)] == ["dkms", *sorted(there.to_hold)]
    assert not is_held("dnf5", there, True)
    assert is_held("dnf5", replace(there, hold_text=text), True)
    host.readings[ContainerToolkit] = there
    write, note = commands(toolkit.held, host, family="dnf5")
    assert base64.b64encode(text.encode()).decode() in write and f"gpunode {dnf5.LOCKLIST}" in note
    broken = replace(there, hold_text="broken [")
    assert not is_held("dnf5", broken, True)
    host.readings[ContainerToolkit] = broken
    assert commands(toolkit.held, host, family="dnf5") == []
    assert unnamed(host.refusals[0], dnf5.LOCKLIST, "toolkit.hold = False") == []


@given(st.lists(st.tuples(NAMES, VERSIONS, st.booleans()), unique_by=lambda row: row[0], min_size=1))
def test_each_row_of_a_table_comes_or_goes_once(rows: list[tuple[str, str, bool]]) -> None:
    lines = ["status=1", "line=Package Arch Version Repository Size"]
    for name, version, comes in rows:
        full = version if ":" in version else f"0:{version}"
        section = "Installing:" if comes else "Removing dependent packages:"
        lines += [f"line={section}", f"line= {name} x86_64 {full} cuda 0.0   B"]
    found = dnf5.parse_simulation(lines)
    plain = [(name, version.removeprefix("0:"), comes) for name, version, comes in rows]
    assert [(name, version) for name, _, version in found.comes] == [(n, v) for n, v, comes in plain if comes]
    assert list(found.goes) == [(name, version) for name, version, comes in plain if not comes]
