"""The distribution's own archive: read by the node's mirror and key, with the components that the driver needs."""

from __future__ import annotations

import base64
from collections.abc import Callable

import pytest

from gpunode.base.reading import ParseError, Unknown
from gpunode.facts.apt_archive import SOURCE, AptArchive
from gpunode.operations import apt_archive
from gpunode.packages.apt_archive import AptArchive as Reading
from gpunode.packages.apt_archive import ArchiveError, Target, more_components, parse_apt_archive, whole_archive
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure

WANTED = ("contrib", "non-free", "non-free-firmware")
ONE_LINE = "/etc/apt/sources.list"
DEB822 = "/etc/apt/sources.list.d/debian.sources"


def target(component: str = "main", origin: str = "Debian", suite: str = "bookworm", file: str = ONE_LINE) -> Target:
    return Target(origin, "http://mirror.example/debian/", suite, component, file)


def reading(text: str, *targets: Target, file: str = ONE_LINE, own: str | None = None) -> Reading:
    return Reading(targets or (target(file=file),), ((file, text),), own)


PLAIN = "deb http://mirror.example/debian bookworm main\n"


def test_an_entry_of_ours_has_what_the_node_s_lack_by_the_same_mirror() -> None:
    assert more_components(reading(PLAIN), "Debian", WANTED) == (
        "# Written by gpunode\nTypes: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\n"
        "Components: contrib non-free non-free-firmware\n"
    )
    some = reading(PLAIN, target(), target("non-free"))
    assert "Components: contrib non-free-firmware\n" in str(more_components(some, "Debian", WANTED))


def test_no_entry_of_ours_is_needed_where_the_node_s_enable_all() -> None:
    every = reading(PLAIN, *(target(name) for name in ("main", *WANTED)))
    assert more_components(every, "Debian", WANTED) is None


@pytest.mark.parametrize(
    ("file", "text", "options"),
    [
        (ONE_LINE, "deb [arch=amd64 signed-by=/usr/share/keyrings/Own.gpg] http://mirror.example/debian bookworm main",
         ["Architectures: amd64", "Signed-By: /usr/share/keyrings/Own.gpg"]),
        (ONE_LINE, PLAIN, []),
        (DEB822, "Types: deb\nURIs: http://other.example/x\nSuites: bookworm\nComponents: main\nSigned-By: /no.gpg\n\n"
                 "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n"
                 "Components: main\nSigned-By: /usr/share/keyrings/debian.gpg\nCheck-Valid-Until: no\n",
         ["Check-Valid-Until: no", "Signed-By: /usr/share/keyrings/debian.gpg"]),
    ],
    ids=["one line", "one line without options", "deb822"],
)  # fmt: skip
def test_the_archive_is_trusted_as_the_node_trusts_it(file: str, text: str, options: list[str]) -> None:
    # Two words on one archive's Signed-By, and apt reads no source at all any more.
    found = str(more_components(reading(text, file=file), "Debian", WANTED)).splitlines()
    assert found[5:] == options


def test_a_list_of_mirrors_as_cloud_images_have_it_is_taken_as_it_is_written() -> None:
    place = Target("Debian", "mirror+file:/etc/apt/mirrors/debian.list/", "bookworm", "main", ONE_LINE)
    found = more_components(
        reading("deb mirror+file:///etc/apt/mirrors/debian.list bookworm main", place), "Debian", WANTED
    )
    assert "URIs: mirror+file:///etc/apt/mirrors/debian.list\n" in str(found)


def test_another_archive_s_entry_is_none_of_ours() -> None:
    targets = (target(), target("main", "LP-PPA-graphics-drivers"), target("main", "Debian", "bookworm-security"))
    text = f"{PLAIN}deb http://mirror.example/debian bookworm-security main\n"
    whole = whole_archive(reading(text, *targets), "Debian", WANTED)
    assert whole.count("Types: deb") == 2
    assert whole.count("Components: main contrib non-free non-free-firmware") == 2


@pytest.mark.parametrize(
    ("text", "origin", "said"),
    [
        (PLAIN, "Ubuntu", "apt reads no archive of the origin Ubuntu"),
        ("", "Debian", "is not found in /etc/apt/sources.list"),
        ("deb [signed-by=PGP] http://mirror.example/debian bookworm main", "Debian", "holds the archive's key itself"),
    ],
)
def test_what_cannot_be_copied_is_refused_with_a_remedy(text: str, origin: str, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        more_components(reading(text), origin, WANTED)


def test_the_node_s_answer_is_read_without_what_our_own_entry_adds() -> None:
    text = base64.b64encode(PLAIN.encode()).decode()
    lines = [
        "apt=0", f"own_path={SOURCE}", f"own={text}", f"file={ONE_LINE} {text}",
        f"target=Debian|http://mirror.example/debian/|bookworm|main|{ONE_LINE}:1",
        f"target=Debian|http://mirror.example/debian/|bookworm|non-free|{SOURCE}:1",
        "target=$(ORIGIN)|http://never.example/|bookworm|main|/etc/apt/sources.list:2",
    ]  # fmt: skip
    found = parse_apt_archive(lines)
    assert found.components("Debian") == {"main"}
    assert found.own == PLAIN
    assert found.targets[-1].origin == ""
    for broken in (lines[1:], ["apt=0", "target=x|y"]):
        with pytest.raises(ParseError):
            parse_apt_archive(broken)


@pytest.mark.real
def test_the_probe_runs_under_sh_and_is_read(run_shell: Callable[[str], tuple[int, list[str]]]) -> None:
    code, lines = run_shell(AptArchive().command())
    assert code == 0
    assert any(line.startswith("apt=") for line in lines)


def _operation(host: Host, *answers: Reading | Unknown) -> list[str]:
    given = list(answers)
    host.get_fact = lambda fact, **_: given.pop(0) if len(given) > 1 else given[0]  # type: ignore[method-assign]
    return commands(apt_archive.components, host, origin="Debian", desired=WANTED)


def test_the_entry_is_written_once_and_removed_when_it_is_not_needed(host: Host) -> None:
    (written,) = _operation(host, reading(PLAIN))
    assert SOURCE in written
    text = more_components(reading(PLAIN), "Debian", WANTED)
    assert _operation(host, reading(PLAIN, own=text)) == []
    every = [target(name) for name in ("main", *WANTED)]
    (removed,) = _operation(host, reading(PLAIN, *every, own=text))
    assert "rm -f" in removed and SOURCE in removed
    assert _operation(host, reading(PLAIN, *every)) == []
    assert host.noops[-1].endswith("by the node's own entries")


def test_a_machine_that_never_read_its_lists_reads_them_first(host: Host) -> None:
    refresh, written = _operation(host, Reading((target(origin=""),), ((ONE_LINE, PLAIN),)), reading(PLAIN))
    assert "refresh" in refresh and SOURCE in written


def test_nothing_is_written_on_an_answer_that_is_none(host: Host) -> None:
    assert _operation(host, Unknown()) == []
    assert "nothing was changed" in host.refusals[0]
    assert _operation(host, Reading((), ())) != [], "the refresh"
    assert "apt reads no archive of the origin Debian" in host.refusals[1]
