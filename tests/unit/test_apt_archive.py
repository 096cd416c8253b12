"""The distribution's own archive: what the node says of it; tests/cases has what is read, written and removed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpunode.facts.packages import SOURCE, AptArchive
from gpunode.operations import apt
from gpunode.packages.deb import AptArchive as Reading
from gpunode.packages.deb import Target
from tests.support.simulated_host import Host, commands

pytestmark = pytest.mark.pure


@pytest.mark.real
def test_the_probe_runs_under_sh_and_is_read(run_shell: Callable[[str], tuple[int, list[str]]]) -> None:
    code, lines = run_shell(AptArchive().command())
    assert code == 0
    assert any(line.startswith("apt=") for line in lines)


def test_a_machine_that_never_read_its_lists_reads_them_first(host: Host) -> None:
    file, text = "/etc/apt/sources.list", "deb http://mirror.example/debian bookworm main\n"
    answers = [
        Reading((Target(origin, "http://mirror.example/debian/", "bookworm", "main", file),), ((file, text),))
        for origin in ("", "Debian")
    ]
    host.get_fact = lambda fact, **_: answers.pop(0)  # type: ignore[method-assign]
    refresh, written = commands(apt.components, host, origin="Debian", desired=("non-free",))
    assert "refresh" in refresh and SOURCE in written
