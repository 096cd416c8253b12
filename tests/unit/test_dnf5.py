"""dnf 5: what it prints is read as it prints it, and its list of locks is written as it reads it.

The texts are what dnf 5.4.6 of Debian sid printed over the lab's repositories.
"""

from __future__ import annotations

import base64
import subprocess
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import tables
from gpunode.components.toolkit.hold import hold_text, is_held
from gpunode.facts.driver_packages import DriverPackages as DriverPackagesFact
from gpunode.facts.families import by_manager
from gpunode.facts.families.dnf5 import DRIVER_PACKAGES
from gpunode.facts.toolkit import ContainerToolkit
from gpunode.node.preflight.platform import system_refusals
from gpunode.operations import driver_packages, toolkit
from gpunode.packages.driver_packages import module_stream, package_set, resolve_for_os
from gpunode.packages.families import dnf5
from gpunode.packages.repositories import package_repository
from gpunode.settings import settings_from
from gpunode.system.boot import Boot
from gpunode.system.operating_system import OperatingSystem
from tests.support.dnf5 import ENTRY, THEIRS
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

FEDORA = OperatingSystem("fedora", "42", None, (), "Fedora Linux 42", "x86_64", "6.17.4-200.fc42", False)
(SOURCE,) = (row for row in tables.driver_sources() if "fedora" in row.systems)
EVR = "3:580.82.07-1.fc42"
SET = {"nvidia-open": EVR, "libnvidia-ml": EVR, "nvidia-fabricmanager": "580.82.07-1"}


# --- which distribution, which packages ------------------------------------------------------------------------------


def test_fedora_takes_nvidia_s_own_repository_for_it_by_dnf_5() -> None:
    settings = resolve_for_os(settings_from({}), FEDORA)
    assert list(system_refusals(settings, FEDORA)) == []
    assert (settings.driver.branch, settings.cuda.version) == ("580", "13.0")
    cuda = package_repository(settings, FEDORA, "cuda")
    docker = package_repository(settings, FEDORA, "docker")
    assert cuda is not None and docker is not None
    assert (cuda.family, cuda.path) == ("dnf5", "/etc/yum.repos.d/gpunode-cuda.repo")
    assert cuda.address.endswith("/cuda/repos/fedora42/x86_64") and cuda.key_url.endswith("/D42D0685.pub")
    assert docker.address == "https://download.docker.com/linux/fedora/42/$basearch/stable"
    assert docker.key_fingerprint == "060A61C51B558A7F742B77AAC52FEB6B621E9F35"


@pytest.mark.parametrize("version", ["41", "44"])
def test_a_fedora_of_which_nothing_is_known_is_refused_with_what_is(version: str) -> None:
    other = OperatingSystem("fedora", version, None, (), f"Fedora Linux {version}", "x86_64", "6.17.4", False)
    (refusal,) = system_refusals(settings_from({}), other)
    assert "gpunode knows Fedora 42 and 43" in refusal.reason


def test_the_packages_are_those_of_rhel_and_there_is_no_module_stream() -> None:
    wanted = settings_from({"driver": {"version": "580.95.05"}}).driver
    assert module_stream(wanted, SOURCE, "open") == ""
    assert package_set(wanted, SOURCE, "open", ["nvswitch"], Boot("6.17.4")) == {
        "nvidia-open": "580.95.05",
        "nvidia-fabricmanager": "580.95.05",
    }


@pytest.mark.parametrize(
    ("release", "manager"),
    [("ID=fedora\n", "dnf5"), ('ID="fedora"\n', "dnf5"), ('ID="rocky"\nID_LIKE="rhel fedora"\n', "dnf")],
)
def test_dnf_5_is_asked_where_the_distribution_works_with_it(release: str, manager: str, tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text(release)
    for name in ("rpm", "dnf5"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    text = by_manager(**{name: f"echo {name}" for name in ("apt", "dnf", "dnf5", "zypper", "pacman")})
    text = text.replace("/var/lib", f"{tmp_path}/none").replace("/etc/os-release", str(tmp_path / "os-release"))
    done = subprocess.run(["sh", "-c", text], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{manager}\n", "")


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


def test_ours_stand_beside_somebody_else_s_and_go_again_without_a_trace() -> None:
    text = dnf5.locked(THEIRS, SET)
    assert text.startswith(THEIRS)
    ours = [(name, version) for name, version, comment in entries(text) if comment == "gpunode: locked with the driver"]
    assert ours == [("libnvidia-ml", EVR), ("nvidia-fabricmanager", "0:580.82.07-1"), ("nvidia-open", EVR)]
    assert tomllib.loads(dnf5.locked(text, {})) == tomllib.loads(THEIRS)
    # A list of gpunode's alone goes as a whole.
    assert dnf5.locked(dnf5.locked("", SET), {}) == ""
    assert dnf5.locked("", {}) == ""


def test_what_dnf_wrote_anew_is_still_ours_and_needs_no_change() -> None:
    # As dnf 5 writes it: in another order, with empty lines between, and without comments.
    third = '[[packages]]\nname = "nvidia-open"'
    anew = dnf5.locked("", SET).replace(third, ENTRY.replace("dkms", "ocl-icd") + third)
    assert dnf5.locked(anew, SET) == anew
    moved = dnf5.locked(anew, {**SET, "nvidia-open": "3:580.95.05-1.fc42"})
    assert ("nvidia-open", "3:580.95.05-1.fc42") in [entry[:2] for entry in entries(moved)]
    assert [entry[0] for entry in entries(moved)].count("nvidia-open") == 1
    assert "ocl-icd" in [entry[0] for entry in entries(moved)]


def test_a_list_that_dnf_passes_over_is_made_one_that_it_reads() -> None:
    # Without its version dnf 5 takes the list for none of its own.
    text = THEIRS.replace('version = "1.0"\n', "")
    new = dnf5.locked(text, SET)
    assert new.startswith('version = "1.0"\n') and len(entries(new)) == 4
    # Another version than 1.0 is somebody's, and nothing that gpunode could write would be read.
    with pytest.raises(ValueError, match="layout that no entry can be added to"):
        dnf5.locked(text.replace("\n[[packages]]", 'version = "2.0"\n\n[[packages]]', 1), SET)


def test_comments_of_others_stay() -> None:
    text = dnf5.locked("# by the site\n" + THEIRS, SET) + "# keep curl\n" + ENTRY.replace("dkms", "curl")
    left = dnf5.locked(text, {})
    assert "# by the site\n" in left and "# keep curl\n[[packages]]" in left.replace("\n\n", "\n")
    assert [entry[0] for entry in entries(left)] == ["dkms", "curl"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        # dnf 5 itself aborts over the first.
        ("broken [", "cannot be read .* by dnf either"),
        ('version = "1.0"\npackages = 3\n', "is in a layout that no entry can be added to: have dnf write it anew"),
        ('version = "1.0"\nx = """\n[[packages]]\n"""\n', "is in a layout that no entry can be added to"),
        ('version = "1.0"\n[packages]\nname = "dkms"\n', "is in a layout that no entry can be added to"),
    ],
)
def test_a_list_that_cannot_be_added_to_is_refused_and_not_written_over(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=rf"^/etc/dnf/versionlock\.toml {says}"):
        dnf5.locked(text, SET)


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
    (tmp_path / "rpm").write_text(
        "#!/bin/sh\n"
        f"printf '%s\\n' 'nvidia-open {EVR} {EVR}' 'libnvidia-ml {EVR} {EVR}' 'bash 5.2-1 0:5.2-1' "
        "'nvidia-fabricmanager 3-1 0:3-1'\n"
    )
    (tmp_path / "rpm").chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", DRIVER_PACKAGES.replace(dnf5.LOCKLIST, str(locklist)) + "\nof_driver"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.stderr == ""
    assert [name for want, name, _ in lines if want == "hold"] == held
    assert {name for _, name, _ in lines} >= {"libnvidia-ml", "nvidia-open"}


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host({})
    for module in ("driver_packages", "toolkit", "families.dnf5"):
        monkeypatch.setattr(f"gpunode.operations.{module}.host", made)
    return made


def state(locklist: str | None = THEIRS, packages: dict[str, str] = SET) -> Any:
    return dnf5.LockedPackages(tuple(sorted(packages.items())), (), locklist=locklist)


def test_a_node_s_list_comes_with_its_packages() -> None:
    text = base64.b64encode(THEIRS.encode()).decode()
    lines = ["dnf5=yes", "rpm=0", f"package=hold nvidia-open {EVR}", f"locklist={text}"]
    read = DriverPackagesFact.parse(lines)
    assert isinstance(read, dnf5.LockedPackages)
    assert (read.locklist, read.held) == (THEIRS, ("nvidia-open",))
    assert DriverPackagesFact.parse(lines[:2]).locklist is None  # type: ignore[attr-defined]


def test_hold_writes_the_list_once_lets_go_of_ours_alone_and_takes_away_a_list_of_nothing(host: Host) -> None:
    host.readings[DriverPackagesFact] = state()
    write, note = commands(driver_packages.held, host, family="dnf5", hold=True, kernel=False)
    assert base64.b64encode(dnf5.locked(THEIRS, SET).encode()).decode() in write and f"gpunode {dnf5.LOCKLIST}" in note
    host.readings[DriverPackagesFact] = state(dnf5.locked(THEIRS, SET))
    assert commands(driver_packages.held, host, family="dnf5", hold=True, kernel=False) == []
    host.readings[DriverPackagesFact] = state(dnf5.locked("", SET))
    _write, remove, _note = commands(driver_packages.held, host, family="dnf5", hold=False, kernel=False)
    assert "rm -f" in remove
    host.readings[DriverPackagesFact] = state("broken [")
    assert commands(driver_packages.held, host, family="dnf5", hold=True, kernel=False) == []
    assert "cannot be read" in host.refusals[0] and "driver.hold = False" in host.refusals[0]


def test_the_toolkit_s_packages_are_held_by_the_same_list_and_a_broken_one_is_refused(host: Host) -> None:
    there = replace(GOOD.toolkit, hold_text=THEIRS)
    text = hold_text("dnf5", there, True)
    assert text is not None and "gpunode: locked with the toolkit" in text
    assert not is_held("dnf5", there, True)
    assert is_held("dnf5", replace(there, hold_text=text), True)
    host.readings[ContainerToolkit] = there
    write, note = commands(toolkit.held, host, family="dnf5")
    assert base64.b64encode(text.encode()).decode() in write and f"gpunode {dnf5.LOCKLIST}" in note
    broken = replace(there, hold_text="broken [")
    assert not is_held("dnf5", broken, True)
    host.readings[ContainerToolkit] = broken
    assert commands(toolkit.held, host, family="dnf5") == []
    assert "cannot be read" in host.refusals[0] and "toolkit.hold = False" in host.refusals[0]
