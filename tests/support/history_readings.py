"""How long a finding was so after readings of a host, in minutes of a day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from gpunode.history.intervals import End, Interval, Reading, State, merged

KEY = ("driver", "loaded module")
BEGIN = datetime(2026, 1, 14, tzinfo=UTC)
OLD, OLDER, GOOD = State("drift", "570.10", "580.95"), State("reboot pending", "560.1", "580.95"), End.GOOD
Found = State | End
# What was read at which minute.
Readings = list[tuple[int, Found]]


def at(minute: int) -> datetime:
    return BEGIN + timedelta(minutes=minute)


def after(readings: Sequence[tuple[int, Found]], intervals: tuple[Interval, ...] = ()) -> tuple[Interval, ...]:
    """Return what is known after readings in this order; each of them read all of the host."""
    good: tuple[datetime, ...] = ()
    for minute, found in readings:
        if intervals or isinstance(found, State):
            intervals = merged(intervals, KEY, Reading(at(minute), "drift", found, good))
        good = (max(*good, at(minute)) if good else at(minute),)
    return intervals


def told(intervals: Sequence[Interval]) -> list[tuple[str | None, ...]]:
    """Return (actual, not yet, begun, last, ended, since) of each, the times as `02:10`."""

    def clock(time: datetime | None) -> str | None:
        return None if time is None else f"{time:%H:%M}"

    times = [(each.not_yet, each.begun, each.last, each.ended, each.since) for each in intervals]
    return [(each.state.actual, *map(clock, row)) for each, row in zip(intervals, times, strict=True)]


def known(readings: list[list[str]]) -> list[str]:
    """Return actual, not yet, begun, last, ended, since of each interval; readings: minute, and OLD, OLDER or GOOD."""
    kinds: dict[str, Found] = {"OLD": OLD, "OLDER": OLDER, "GOOD": GOOD}
    found = told(after([(int(minute), kinds[kind]) for minute, kind in readings]))
    return [" ".join(each or "-" for each in row) for row in found]
