"""What dnf 5 offers and would do, read as it prints it.

The texts are what dnf 5.4.6 of Debian sid printed over the lab's repositories, cut short.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base.reading import ParseError
from gpunode.packages.families import dnf5
from tests.support.dnf5_words import FILTERED, FLAVOUR

pytestmark = pytest.mark.pure

EVR = "3:580.82.07-1.fc42"
NAMES = st.sampled_from(["nvidia-open", "libnvidia-ml", "dkms", "kernel-core"])
VERSIONS = st.from_regex(r"([0-9]:)?[0-9]{1,3}\.[0-9]{1,2}-[0-9]\.fc42", fullmatch=True)


def test_offers_are_newest_first_and_an_answer_that_broke_off_is_none() -> None:
    lines = ["dnf=0", "available=nvidia-open 3:580.82.07-1.fc42", "available=nvidia-open 3:580.105.08-1.fc42"]
    offers = dnf5.parse_offers([*lines, "available=nvidia-fabricmanager 0:580.95.05-1"])
    assert offers.available[0][1] == "580.95.05-1" or offers.available[0][1] == "3:580.105.08-1.fc42"
    assert [version for name, version in offers.available if name == "nvidia-open"] == [
        "3:580.105.08-1.fc42",
        "3:580.82.07-1.fc42",
    ]
    # An abort: the list of locks is no TOML.
    with pytest.raises(ParseError):
        dnf5.parse_offers(["dnf=134"])


UPGRADE = """Updating and loading repositories:
Repositories loaded.
Package                              Arch   Version            Repository        Size
Upgrading:
 kmod-nvidia-open-dkms               noarch 3:580.95.05-1.fc42 gpunode-cuda   0.0   B
   replacing kmod-nvidia-open-dkms   noarch 3:580.82.07-1.fc42 gpunode-cuda   0.0   B
 nvidia-open                         noarch 3:580.95.05-1.fc42 gpunode-cuda   0.0   B
   replacing nvidia-open             noarch 3:580.82.07-1.fc42 gpunode-cuda   0.0   B

Transaction Summary:
 Upgrading:          2 packages
 Replacing:          2 packages

Total size of inbound packages is 241 KiB. Need to download 241 KiB.
After this operation, 0 B extra will be used (install 433 KiB, remove 433 KiB).
Operation aborted by the user.
"""
UNKNOWN = """Updating and loading repositories:
Repositories loaded.
Failed to resolve the transaction:
No match for argument: nvidia-open-3:999-1.el10
Package "bash-5.1.8-1.el9.noarch" is already installed.
You can try to add to command line:
  --skip-unavailable to skip unavailable packages
"""
LOCKED = """Failed to resolve the transaction:
Argument 'nvidia-open-3:580.95.05-1.el10' matches only packages excluded by versionlock.
"""
NOTHING = """Package "nvidia-open-3:580.82.07-1.el10.noarch" is already installed.

Nothing to do.
"""


def said(text: str, *more: str, status: int = 1) -> list[str]:
    return [f"status={status}", *(f"line={line}" for line in text.splitlines()), *more]


def test_what_replaces_its_own_older_version_is_no_loss() -> None:
    there = ("installed=nvidia-open 3:580.82.07-1.fc42", "installed=kmod-nvidia-open-dkms 3:580.82.07-1.fc42")
    found = dnf5.parse_simulation(said(UPGRADE, *there, "asked=nvidia-open 3:580.95.05-1.fc42"))
    assert found.comes == (
        ("kmod-nvidia-open-dkms", "3:580.82.07-1.fc42", "3:580.95.05-1.fc42"),
        ("nvidia-open", "3:580.82.07-1.fc42", "3:580.95.05-1.fc42"),
    )
    assert (found.goes, found.errors, found.replaced) == ((), (), ())


def test_what_goes_with_others_and_what_another_package_replaces_is_told() -> None:
    found = dnf5.parse_simulation(said(FLAVOUR))
    assert [name for name, _ in found.goes] == [
        "kmod-nvidia-open-dkms",
        "nvidia-open",
        "nvidia-settings",
        "nvidia-fabricmanager",
    ]
    assert found.replaced == ("nvidia-fabricmanager",)
    assert [name for name, _, _ in found.comes] == [
        "cuda-drivers",
        "nvidia-fabric-manager",
        "kmod-nvidia-latest-dkms",
        "containerd.io",
    ]
    assert ("containerd.io", None, "1.6.20-1.fc42") in found.comes


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FILTERED, ("Problem: installed package nvidia-driver-cuda-libs", "- conflicting requests")),
        (UNKNOWN, ("No match for argument: nvidia-open-3:999-1.el10",)),
        (LOCKED, ("excluded by versionlock",)),
    ],
)
def test_why_nothing_is_resolved_is_told_without_what_one_might_try(text: str, words: tuple[str, ...]) -> None:
    found = dnf5.parse_simulation(said(text, "asked=nvidia-open 3:999-1.el10"))
    for word in words:
        assert any(word in line for line in found.errors)
    assert not any("try to add" in line or "--skip" in line or "already installed" in line for line in found.errors)
    assert (found.comes, found.goes) == ((), ())


def test_a_silence_is_no_consent_but_for_what_is_there() -> None:
    there = dnf5.parse_simulation(said(NOTHING, f"installed=nvidia-open {EVR}", f"asked=nvidia-open {EVR}", status=0))
    assert there.errors == ()
    silent = dnf5.parse_simulation(said("terminate called\n", f"asked=nvidia-open {EVR}", status=134))
    assert "it says nothing of nvidia-open" in silent.errors[0]
    with pytest.raises(ParseError):
        dnf5.parse_simulation(["status="])
    with pytest.raises(ParseError):
        dnf5.parse_simulation(said("Upgrading:\n nvidia-open\n"))


@given(st.lists(st.tuples(NAMES, VERSIONS, st.booleans()), unique_by=lambda row: row[0], min_size=1))
def test_each_row_of_a_table_comes_or_goes_once(rows: list[tuple[str, str, bool]]) -> None:
    lines = ["Package Arch Version Repository Size"]
    for name, version, comes in rows:
        full = version if ":" in version else f"0:{version}"
        lines += ["Installing:" if comes else "Removing dependent packages:", f" {name} x86_64 {full} cuda 0.0   B"]
    found = dnf5.parse_simulation(said("\n".join(lines)))
    plain = [(name, version.removeprefix("0:"), comes) for name, version, comes in rows]
    assert [(name, version) for name, _, version in found.comes] == [(n, v) for n, v, comes in plain if comes]
    assert list(found.goes) == [(name, version) for name, version, comes in plain if not comes]
