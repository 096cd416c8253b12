"""A real apt with a root of its own says what would come and what would go, and changes nothing of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.resolve_apt import Apt, AptFailed, Unreachable

pytestmark = pytest.mark.real
INDEX = """\
Package: containerd.io
Version: 2.3.4-2
Architecture: amd64
Provides: containerd, runc
Conflicts: containerd, runc
Filename: ./a.deb
Size: 1
SHA256: aa

Package: containerd
Version: 1.6.20
Architecture: amd64
Depends: runc
Filename: ./b.deb
Size: 1
SHA256: bb

Package: runc
Version: 1.1.5
Architecture: amd64
Filename: ./c.deb
Size: 1
SHA256: cc

Package: runc
Version: 1.0.0
Architecture: amd64
Filename: ./d.deb
Size: 1
SHA256: dd

Package: broken
Version: 1
Architecture: amd64
Depends: nowhere (= 2)
Filename: ./e.deb
Size: 1
SHA256: ee
"""


@pytest.fixture
def sources(tmp_path: Path) -> str:
    (tmp_path / "repository").mkdir()
    (tmp_path / "repository" / "Packages").write_text(INDEX)
    return f"deb [trusted=yes] file:{tmp_path}/repository ./\n"


def test_a_transaction_is_told_with_what_comes_and_what_goes(tmp_path: Path, sources: str) -> None:
    apt = Apt(tmp_path / "root", sources)
    assert apt.update() == ()
    found = apt.resolve("containerd")
    assert (found.possible, found.installed, found.removed) == (True, {"runc": "1.1.5", "containerd": "1.6.20"}, ())
    assert apt.resolve("containerd", "runc=1.0.0").installed["runc"] == "1.0.0"
    assert "nowhere" in apt.resolve("broken").errors
    assert "nothing-of-the-kind" in apt.resolve("nothing-of-the-kind").errors
    assert apt.offers("runc", "nothing-of-the-kind") == {"runc": ("1.1.5", "1.0.0")}
    assert apt.install("containerd.io").installed == {"containerd.io": "2.3.4-2"}
    found = apt.resolve("containerd")
    assert (found.installed, found.removed) == ({"runc": "1.1.5", "containerd": "1.6.20"}, ("containerd.io",))


def test_preferences_are_heeded_and_what_cannot_be_done_is_an_error(tmp_path: Path, sources: str) -> None:
    apt = Apt(tmp_path / "root", sources, preferences="Package: runc\nPin: version 1.0*\nPin-Priority: 1001\n")
    apt.update()
    assert apt.resolve("containerd").installed == {"runc": "1.0.0", "containerd": "1.6.20"}
    with pytest.raises(AptFailed, match="nowhere"):
        apt.install("broken")
    assert not (tmp_path / "root/var/lib/dpkg/status").read_text()


def test_a_repository_that_cannot_be_read_is_named_and_the_others_stay(tmp_path: Path, sources: str) -> None:
    missing = f"deb [trusted=yes] file:{tmp_path}/missing ./\n"
    apt = Apt(tmp_path / "root", sources + missing)
    (found,) = apt.update()
    assert isinstance(found, Unreachable) and found.uri.startswith(f"file:{tmp_path}/missing") and found.reason
    assert apt.resolve("runc").possible
