"""When a daemon started, by what systemd of several releases prints; systemd is SIMULATED."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpunode.base.probe import Probe, Text
from gpunode.base.probe_output import checked
from gpunode.base.reading import ParseError
from gpunode.components.mps.daemon import UNITS as FILES
from gpunode.components.mps.state import parse_mps
from gpunode.components.runtimes.containerd.state import parse_containerd
from gpunode.facts.base import UNITS
from gpunode.facts.gpu import Mps as MpsFact
from gpunode.facts.runtimes import Containerd as ContainerdFact
from gpunode.system.service import seconds

pytestmark = pytest.mark.simulated

# 2026-01-15 12:00:05 UTC
SECOND = 1768478405
PRECISE = "Thu 2026-01-15 12:00:05.250000 UTC"
# The client formats: systemctl of these releases heeds TZ.
WHOLE = "Thu 2026-01-15 12:00:05 UTC"
_SYSTEMCTL = """#!/bin/sh
for argument in "$@"; do
  case "$argument $HEEDS" in --timestamp=*' no option') echo "unrecognized option '$argument'" >&2; exit 1;; esac
done
time=$WHOLE; case "$* $HEEDS" in *--timestamp=us+utc*' yes') time=$PRECISE;; esac
[ "$LC_ALL $TZ" = "C UTC" ] || time='Do 2026-01-15 13:00:05 CET'
printf 'Names=%s\\nLoadState=loaded\\nActiveState=active\\nUnitFileState=enabled\\n' "$NAME"
printf 'ActiveEnterTimestamp=%s\\nFragmentPath=%s\\n' "$time" "$FRAGMENT"
"""
# 239 of RHEL 8, 249 of Ubuntu 22.04, 252 of Debian 12.
RELEASES = pytest.mark.parametrize(
    ("heeds", "started"), [("no option", "05.999999"), ("no", "05.999999"), ("yes", "05.250000")]
)


def printed(folder: Path, probe: str, heeds: str, name: str) -> list[str]:
    (folder / "systemctl").write_text(_SYSTEMCTL)
    (folder / "systemctl").chmod(0o755)
    environment = {
        "PATH": f"{folder}:/usr/bin:/bin", "HEEDS": heeds, "NAME": name, "PRECISE": PRECISE, "WHOLE": WHOLE,
        "TZ": "Europe/Berlin", "FRAGMENT": str(folder / "nvidia-mps.service"),
    }  # fmt: skip
    done = subprocess.run(["sh", "-c", probe], env=environment, capture_output=True, text=True, check=False)
    return checked(done.stdout.splitlines())


@RELEASES
def test_every_systemd_tells_when_a_unit_started_and_of_whole_seconds_the_end_counts(
    tmp_path: Path, heeds: str, started: str
) -> None:
    part = Text('unit x; says ActiveEnterTimestamp; echo "$SAID"', (UNITS.of("x"),))
    (told, _) = printed(tmp_path, Probe([(None, part)]), heeds, "x")
    assert f"{seconds(told):.6f}" == f"{SECOND // 100}{started}"


@pytest.mark.pure
@given(st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)))
def test_a_timestamp_is_read_to_the_microsecond_and_a_whole_second_to_its_end(moment: datetime) -> None:
    at = moment.replace(tzinfo=UTC)
    assert datetime.fromtimestamp(seconds(f"{at:%a %Y-%m-%d %H:%M:%S.%f} UTC"), UTC) == at
    assert 0 <= seconds(f"{at:%a %Y-%m-%d %H:%M:%S} UTC") - at.timestamp() < 1


@pytest.mark.pure
@given(st.text(max_size=40))
@example("Do 2026-01-15 13:00:05 CET")
@example("Thu 2026-13-15 12:00:05 UTC")
@example("n/a")
def test_what_is_no_timestamp_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        seconds(text)


@RELEASES
def test_containerd_runs_and_its_start_is_known_by_every_systemd(tmp_path: Path, heeds: str, started: str) -> None:
    found = parse_containerd(printed(tmp_path, ContainerdFact().command(), heeds, "containerd.service"))
    assert found.active and found.started_at == float(f"{SECOND // 100}{started}")


@RELEASES
def test_an_mps_daemon_runs_and_no_unit_written_right_before_its_start_makes_it_stale(
    tmp_path: Path, heeds: str, started: str
) -> None:
    unit = tmp_path / "nvidia-mps.service"
    unit.write_text("# Written by gpunode\n")
    stat = tmp_path / "stat"
    stat.write_text('#!/bin/sh\necho "$WRITTEN"\n')
    stat.chmod(0o755)
    probe = MpsFact().command().replace(str(Path(FILES[0]).parent), str(tmp_path))
    for written, stale in (("05.200000", False), (started, False), ("06.000000", True)):
        (found,) = parse_mps(
            printed(tmp_path, f"WRITTEN={SECOND // 100}{written}; export WRITTEN\n{probe}", heeds, "nvidia-mps.service")
        ).daemons
        assert (found.active, found.stale) == (True, stale), written
