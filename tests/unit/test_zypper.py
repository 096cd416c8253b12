"""zypper and rpm: what they are asked and told on a node. tests/cases has what is read of them and written for them."""

from __future__ import annotations

import base64
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from xml.sax.saxutils import quoteattr

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpunode.base import tables
from gpunode.base.explanations import failure
from gpunode.base.reading import ParseError
from gpunode.facts.driver import Driver as DriverFact
from gpunode.facts.driver import DriverPackages as DriverPackagesFact
from gpunode.facts.families.zypper import DRIVER_PACKAGES, ZypperOffers
from gpunode.operations import driver_packages, repositories
from gpunode.operations.families import FAMILIES, ZYPPER, DriverChange
from gpunode.operations.families.zypper import ZYPP
from gpunode.operations.keeping import KEEPING, digest_of_text
from gpunode.operations.script import script
from gpunode.packages.driver_packages.choice import Offers
from gpunode.packages.driver_packages.names import NAME
from gpunode.packages.driver_packages.simulation import Simulation, gate
from gpunode.packages.driver_packages.sources import package_set
from gpunode.packages.families import zypper
from gpunode.packages.families.zypper import LOCKS
from gpunode.settings import settings_from
from gpunode.system.boot import Boot
from tests.support.messages import unnamed
from tests.support.package_sources import SUSE
from tests.support.programs import programs, sh
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

pytestmark = pytest.mark.pure

SET = {"nvidia-open": "580.95.05-1", "nvidia-compute-G06": "580.95.05-1", "nvidia-fabricmanager": "580.95.05-1"}
THEIRS = zypper.lock("curl") + "\ntype: package\nmatch_type: glob\ncase_sensitive: on\nsolvable_name: vim*\n\n"


@pytest.mark.parametrize("system", [("sle-micro", "5.5"), ("opensuse-microos", "20251101")])
def test_what_was_not_looked_at_is_refused_with_the_reason(system: tuple[str, str]) -> None:
    assert tables.reason_to_refuse(*system)


# --- locks -----------------------------------------------------------------------------------------------------------

names = st.from_regex(NAME, fullmatch=True).filter(lambda name: len(name) < 30)


@given(st.lists(names, unique=True, max_size=5), st.sets(names, max_size=5))
def test_locks_of_ours_are_the_same_the_second_time_and_gone_without_a_trace(theirs: list[str], keep: set[str]) -> None:
    text = "".join(zypper.lock(name) for name in theirs)
    locked, ours = zypper.locked(text, (), keep)
    assert set(ours) == keep - set(theirs)
    assert zypper.locked(locked, ours, keep) == (locked, ours)
    assert zypper.locked(locked, ours, ()) == (text, ())


INSTALLED = ("nvidia-open 580.95.05-1", "nvidia-compute-G06 580.95.05-1", "curl 1.1-1", "kernel-default 6.4.0-1.1",
             "nvidia-container-toolkit 1-1")  # fmt: skip


def probed(folder: Path, text: str) -> list[str]:
    programs(folder, {"rpm": "".join(f"echo 'have {line}'\n" for line in INSTALLED)})
    done = sh(folder, f"{DRIVER_PACKAGES.replace('/etc/zypp', str(folder))}\n{text}")
    done.check_returncode()
    return done.stdout.splitlines()


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("entry", "held"),
    [
        (None, []), ("", []), (zypper.lock("nvidia-open"), ["nvidia-open"]),
        (zypper.lock("nvidia-*"), ["nvidia-compute-G06", "nvidia-open"]),
        (zypper.lock("curl") + zypper.lock("kernel-default"), ["kernel-default"]),
        (zypper.lock("nvidia-ope?"), ["nvidia-open"]),
        (zypper.lock("nvidia.open"), []),
        ("type: package\nsolvable_name: compute\n", ["nvidia-compute-G06"]),
        ("type: package\nmatch_type: glob\nsolvable_name: nvidia-open\nversion: < 590\n", []),
        ("type: patch\nmatch_type: glob\nsolvable_name: nvidia-open\n", []),
        # What nobody wrote for us to understand must not make all the others unheld.
        (zypper.lock("nvidia-[open") + zypper.lock("nvidia-open"), ["nvidia-open"]),
    ],
)  # fmt: skip
def test_a_package_is_held_by_the_lock_that_fits_it(tmp_path: Path, entry: str | None, held: list[str]) -> None:
    if entry is not None:
        (tmp_path / "locks").write_text(entry)
    lines = [line.split() for line in probed(tmp_path, "of_driver")]
    assert sorted(name for _, name, _ in lines) == ["kernel-default", "nvidia-compute-G06", "nvidia-open"]
    assert sorted(name for want, name, _ in lines if want == "hold") == held


@pytest.mark.simulated
def test_what_the_driver_is_locked_by_is_lifted_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "locks").write_text(zypper.lock("nvidia-op*") + THEIRS + zypper.lock("cuda-drivers-x"))
    said = probed(tmp_path, "unlocking nvidia-open")
    assert [line for line in said if line.startswith("solvable_name")] == ["solvable_name: curl", "solvable_name: vim*"]


def held(host: Host, locks: str, ours: tuple[str, ...] = (), hold: bool = True) -> list[str]:
    found = zypper.LockedPackages(tuple(sorted(SET.items())), (), locks=locks, ours=ours)
    host.readings[DriverPackagesFact] = found
    return commands(driver_packages.held, host, family="zypper", hold=hold, kernel=False)


def test_a_name_is_ours_before_its_lock_is_there_and_until_it_is_gone(host: Host) -> None:
    text, ours = zypper.locked(THEIRS, (), SET)
    *written, note = held(host, THEIRS)
    assert f"gpunode {zypper.LOCKS} {zypper.OURS}" in note
    assert [zypper.OURS in command for command in written] == [True, False]
    assert base64.b64encode(text.encode()).decode() in written[1]
    assert held(host, text, ours) == []
    *gone, _ = held(host, text, ours, hold=False)
    assert [zypper.OURS in command for command in gone] == [False, True]
    assert base64.b64encode(THEIRS.encode()).decode() in gone[0]
    # A file that zypper made for our locks alone goes with them.
    *alone, _ = held(host, *zypper.locked("", (), SET), hold=False)
    assert ['rm -f "$path"' in command for command in alone] == [True, True]


# --- what the repositories offer, and what zypper would do -----------------------------------------------------------


def answered(text: str, status: int = 0, *more: str) -> list[str]:
    return [f"status={status}", f"xml={base64.b64encode(text.encode()).decode()}", *more]


def solvable(name: str, version: str, **more: str) -> str:
    fields = {"type": "package", "name": name, "edition": version, "arch": "x86_64", "summary": 'a "®" & <b>', **more}
    return f"<solvable {' '.join(f'{key}={quoteattr(value)}' for key, value in fields.items())}>\n</solvable>"


def test_an_exit_code_and_a_silence_are_no_consent_but_for_what_is_there() -> None:
    there = ["installed=curl 1.1-1", "asked=curl 1.1-1"]
    assert zypper.parse_simulation(answered("<stream></stream>", 0, *there)).errors == ()
    silent = [*there, "asked=nvidia-open 580.95.05-1"]
    for status, names in ((0, ["nvidia-open"]), (5, ["nvidia-open"])):
        (error,) = zypper.parse_simulation(answered("<stream></stream>", status, *silent)).errors
        assert unnamed(error, *names, "curl") == ["curl"]
    (error,) = zypper.parse_simulation(answered("<stream></stream>", 5)).errors
    assert unnamed(error, "exits 5", "root") == []


versions = st.from_regex(r"[0-9][0-9.]{0,8}-[0-9]{1,3}", fullmatch=True)


@given(st.dictionaries(names, st.tuples(st.none() | versions, versions), max_size=8), st.dictionaries(names, versions))
def test_whatever_would_come_and_go_is_read_back(
    comes: dict[str, tuple[str | None, str]], goes: dict[str, str]
) -> None:
    groups = {
        "to-upgrade": [solvable(name, new, **{"edition-old": old}) for name, (old, new) in comes.items() if old],
        "to-install": [solvable(name, new) for name, (old, new) in comes.items() if not old],
        "to-remove": [solvable(name, old) for name, old in goes.items()],
    }
    inner = "".join(f"<{tag}>{''.join(items)}</{tag}>" for tag, items in groups.items())
    text = f"<?xml version='1.0'?>\n<stream>\n<install-summary>{inner}</install-summary>\n</stream>\n"
    read = zypper.parse_simulation(answered(text))
    assert {name: (old, new) for name, old, new in read.comes} == comes
    assert dict(read.goes) == goes
    assert read.errors == ()


@given(st.binary(max_size=300), st.integers(0, 255))
def test_whatever_arrives_is_an_answer_or_refused_and_nothing_else(text: bytes, status: int) -> None:
    lines = [f"status={status}", f"xml={base64.b64encode(b'<stream>' + text + b'</stream>').decode()}"]
    for parse in (zypper.parse_simulation, zypper.parse_offers):
        with suppress(ParseError):
            parse(lines)


def simulated(*comes: tuple[str, str | None, str], goes: tuple[tuple[str, str], ...] = ()) -> Simulation:
    return Simulation(comes, goes, manager="zypper", trial="zypper install --dry-run")


OPEN = ("nvidia-open", None, "580.95.05-1")
G07 = (("nvidia-open", "580.95.05-1", "590.48.01-1"), ("nvidia-compute-G07", None, "590.48.01-1"))
KMP = ("nvidia-open-driver-G06-signed-cuda-kmp-default", "580.82.07_k6.4.0-1")
TO_G07 = simulated(*G07, goes=(("nvidia-compute-G06", "580.95.05-1"),))


@pytest.mark.parametrize(
    ("simulation", "asked", "allowed", "named"),
    [
        # A module that came built goes for DKMS, and G06 for G07.
        (simulated(OPEN, ("nvidia-open-driver-G06", None, "580.95.05-1"), goes=(KMP,)), "580.95.05-1", False, None),
        (TO_G07, "590.48.01-1", True, None),
        (TO_G07, "590.48.01-1", False, ("590.48.01-1", "driver.allow_branch_change")),
        (simulated(OPEN, goes=(("curl", "1-1"),)), "580.95.05-1", False, ("remove curl",)),
        (simulated(OPEN, ("nvidia-compute-G07", None, "590.48.01-1")), "580.95.05-1", True, ("branch 580",)),
    ],
)
def test_the_gate_refuses_another_branch_and_what_is_no_part_of_the_driver(
    simulation: Simulation, asked: str, allowed: bool, named: tuple[str, ...] | None
) -> None:
    found = gate(simulation, {"nvidia-open": asked}, asked[:3], allowed)
    assert (found is None) == (named is None)
    assert unnamed(" ".join(found or ()), *(named or ())) == []


def test_a_library_of_another_version_of_the_branch_is_refused() -> None:
    asked, mixed = ("nvidia-open", None, "580.82.07-1"), ("nvidia-compute-G06", None, "580.95.05-1")
    (error,) = zypper.only_at("580.82.07", simulated(asked, mixed)).errors
    assert unnamed(error, "nvidia-compute-G06 580.95.05-1") == []


class NewestFirst(Host):
    """A node whose zypper takes of three packages, each of which needs the next at its version or newer, the newest."""

    CHAIN = ("nvidia-open-driver-G06", "nvidia-compute-G06", "libnvidia-ml")
    OFFERED = ("595.71.05-1", "580.173.02-1", "580.95.05-1")

    def get_fact(self, fact: type, **asked: object) -> object:
        if fact is ZypperOffers:
            return Offers(tuple((name, version) for name in self.CHAIN for version in self.OFFERED))
        coming = asked["coming"]
        assert isinstance(coming, dict)
        # What is asked for counts; of the rest the first that is new enough, which is the newest.
        return simulated(*((name, None, coming.get(name, self.OFFERED[0])) for name in self.CHAIN))


def test_all_that_would_come_newer_is_named_at_the_version_that_is_asked_for(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "get_fact", NewestFirst({}).get_fact)
    change = DriverChange({"nvidia-open-driver-G06": "580.95.05-1"}, (), "580.95.05")
    assert ZYPPER.bound(change).coming == dict.fromkeys(NewestFirst.CHAIN, "580.95.05-1")
    # What the repositories do not have at that version stays for the gate to judge.
    absent = replace(change, upstream="580.99.01")
    assert ZYPPER.bound(absent) == absent
    for other in (FAMILIES["dnf"], FAMILIES["apt"], FAMILIES["pacman"]):
        assert other.bound(change) == change


def test_a_node_that_came_by_the_metapackage_sees_no_change(host: Host) -> None:
    wanted = package_set(settings_from({"driver": {"branch": "580"}}).driver, SUSE, "open", [], Boot("x"))
    there = {name: "580.95.05-1" for name in (*wanted, "nvidia-open")}
    host.readings[DriverPackagesFact] = zypper.LockedPackages(tuple(sorted(there.items())), ())
    host.readings[DriverFact] = GOOD.driver
    found = commands(
        driver_packages.installed, host, desired=wanted, branch="580", branch_change=False, rollback="required",
        kernel=None, source=SUSE,
    )  # fmt: skip
    assert (found, host.refusals) == ([], [])
    assert unnamed(host.noops[0], *(f"{name} 580.95.05-1" for name in wanted)) == []


@pytest.mark.simulated
@pytest.mark.parametrize(
    ("imported", "other", "gone"),
    [(True, False, True), (False, False, False), (True, True, False)],
    ids=["ours alone", "somebody else's", "needed by another repository"],
)
def test_a_key_leaves_rpm_s_database_with_the_last_repository_that_brought_it(
    tmp_path: Path, imported: bool, other: bool, gone: bool
) -> None:
    for folder in ("etc/pki/rpm-gpg", "etc/zypp/repos.d", "var/lib/gpunode/zypper"):
        (tmp_path / folder).mkdir(parents=True)
    for label in ("cuda", *(["toolkit"] if other else [])):
        (tmp_path / f"etc/pki/rpm-gpg/gpunode-{label}.asc").touch()
        (tmp_path / f"etc/zypp/repos.d/gpunode-{label}.repo").touch()
    # Not of a repository of ours, whatever its name.
    (tmp_path / "etc/pki/rpm-gpg/gpunode-lab.asc").touch()
    state = tmp_path / "var/lib/gpunode/zypper"
    if imported:
        (state / "cuda.imported").write_text("d42d0685\n")
    bodies = {
        "gpg": f"printf 'pub:\\nfpr:::::::::{'A' * 32}D42D0685:\\n'",
        "rpm": 'case "$1" in -q) printf "gpg-pubkey-d42d0685-1\\ngpg-pubkey-0-1\\n";; '
        f'*) echo "$*" > {tmp_path}/told;; esac',
    }
    programs(tmp_path, bodies)
    text = repositories.ZYPPER.FORGET.replace("/etc/", f"{tmp_path}/etc/").replace("/var/", f"{tmp_path}/var/")
    sh(tmp_path, f"set -eu\n{text}", name="cuda", key="unused").check_returncode()
    told = (tmp_path / "told").read_text() if (tmp_path / "told").exists() else ""
    assert told == ("-e gpg-pubkey-d42d0685-1\n" if gone else "")
    assert (state / "toolkit.imported").exists() == (imported and other)
    assert not (state / "cuda.imported").exists()


@pytest.mark.simulated
@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 101, 102, 103, 104, 105, 106, 107, 255])
def test_what_only_tells_of_more_to_do_is_a_success_and_all_else_a_failure(tmp_path: Path, code: int) -> None:
    programs(tmp_path, {"zypper": f"exit {code}"})
    done = sh(tmp_path, f"set -eu\n{ZYPP}\nzypp install x; echo done")
    assert (done.stdout == "done\n") == (code in zypper.GOOD)
    if code not in zypper.GOOD:
        (told,) = failure(done.stderr.splitlines(), "sh")
        assert unnamed(told.cause, *(("killed", "signal 127") if code == 255 else (f"exits {code}",))) == []
        assert told.remedy


def test_the_family_says_what_it_keeps_and_needs() -> None:
    assert (ZYPPER.saved, ZYPPER.holding_tools, "gpg2" in ZYPPER.tools) == ("rpms", (), True)
    # Both go to one folder on the way: their names must differ.
    assert len({path.rpartition("/")[2] for path in ZYPPER.holding}) == 2


@pytest.mark.simulated
def test_of_what_a_killed_zypper_left_twice_the_one_that_came_last_stays(tmp_path: Path, host: Host) -> None:
    listed = ("100 nvidia-open nvidia-open-580.82.07-1.x86_64", "200 nvidia-open nvidia-open-580.95.05-1.x86_64",
              "50 kernel-default kernel-default-6.4.0-1.x86_64", "60 kernel-default kernel-default-6.4.0-2.x86_64",
              "70 nvidia-driver-G06-kmp-default a", "80 nvidia-driver-G06-kmp-default b",
              "90 nvidia-compute-G06 nvidia-compute-G06-580.95.05-1.x86_64")  # fmt: skip
    lines = "".join(f"echo '{line}'\n" for line in listed)
    programs(tmp_path, {"rpm": f'case "$1" in -qa) {lines} ;; *) echo "$*" >> {tmp_path}/told;; esac', "zypper": ""})
    (command,) = ZYPPER.finish()
    sh(tmp_path, command.get_raw_value()).check_returncode()
    assert (tmp_path / "told").read_text() == "-e --nodeps nvidia-open-580.82.07-1.x86_64\n"


@pytest.mark.real
@pytest.mark.parametrize("cut_off", [False, True])
def test_locks_are_lifted_for_the_change_alone_and_a_lifted_lock_is_nobody_s_loss(
    tmp_path: Path, cut_off: bool
) -> None:
    """zypper is SIMULATED: it looks at the locks, and is killed where that is the case."""
    locks, checkpoint = tmp_path / "locks", tmp_path / "checkpoint"
    locks.write_text("\nsolvable_name: nvidia-open\n\n")
    checkpoint.mkdir()
    text = f"""
umask 077; checkpoint={checkpoint}
{KEEPING}
{ZYPPER.functions.replace(LOCKS, str(locks))}
driver_packages() {{ :; }}
unlocking() {{ echo lifted; }}
zypper_at_work() {{ cp {locks} {tmp_path}/seen; {"kill -9 $$" if cut_off else ":"}; }}
if [ "$1" = undo ]; then put_files_back; exit; fi
keep_file {locks} {digest_of_text(locks.read_text())}
without_locks nvidia-open zypper_at_work
"""
    done = sh(tmp_path, script(text), "change")
    assert (done.returncode == 0) != cut_off, done.stderr
    assert (tmp_path / "seen").read_text() == "lifted\n"
    assert (locks.read_text() == "lifted\n") == cut_off
    done = sh(tmp_path, script(text), "undo")
    assert (done.returncode, done.stderr, locks.read_text()) == (0, "", "\nsolvable_name: nvidia-open\n\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint", "locks", "seen"]
