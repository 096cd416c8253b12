"""How long a finding was so, by what was read of its host from time to time. Pure.

A reading says what is so at its time, and nothing of the time between two of them. An interval is told by four times:
`not_yet` (when it was last known not to be so), `begun` and `last` (its first and last reading), `ended` (the earliest
reading known that found it otherwise). Readings may come in any order: reports are collected late, two controllers
read at once. One that finds all as desired leaves no trace where nothing was told before; where a report that comes
late contradicts it, that counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

# What a finding is about: (component, what).
Key = tuple[str, str]


class End(StrEnum):
    """Name how an interval ended."""

    GOOD = "as desired"
    CHANGED = "changed"
    # All that the settings ask was read, and nothing is told of it: they do not ask it any more, say.
    NOT_TOLD = "no longer told"
    LEFT = "left the inventory"


@dataclass(frozen=True)
class State:
    """Hold how a finding is: its class and both sides; code, cause and remedy make no other state of it."""

    finding_class: str
    actual: str | None
    desired: str | None
    code: str = field(default="", compare=False)
    cause: str | None = field(default=None, compare=False)
    remedy: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Interval:
    """Hold how long a finding was so, which is not as desired; times as above, `ended` None where it still is.

    since: when its host was first found other than desired in this, whatever its state was then; last_good: when it was
    last known to be as desired before that, None where nobody knows. by, ended_by: the commands that told it. number:
    its row's, None where it has none yet
    """

    key: Key
    state: State
    begun: datetime
    last: datetime
    since: datetime
    not_yet: datetime | None = None
    last_good: datetime | None = None
    ended: datetime | None = None
    end: End | None = None
    by: str = ""
    ended_by: str | None = None
    number: int | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Reading:
    """Hold when a finding was looked at, by which command, and how it was: a state, or the end of one.

    good: other times, before it or behind it, at which this would have been told, had it been so; left: when the host
    left the inventory, None where it did not
    """

    at: datetime
    by: str
    found: State | End
    good: tuple[datetime, ...] = ()
    left: datetime | None = None


def merged(intervals: Iterable[Interval], key: Key, reading: Reading) -> tuple[Interval, ...]:
    """Return the intervals of one finding with what one more reading says; those that it does not touch are the same.

    intervals: all of this finding, in any order; of those that ended before the reading, the last or none will do. A
    reading that was there before changes nothing, and of two at one time the first counts.
    """
    known = sorted(intervals, key=lambda each: each.begun)
    at = reading.at
    within = next((each for each in known if each.begun <= at <= each.last), None)
    if within is not None:
        is_new = at not in (within.begun, within.last) and reading.found != within.state
        return _chained(_parted(known, within, reading)) if is_new else tuple(known)
    before = next((each for each in reversed(known) if each.last < at), None)
    behind = next((each for each in known if each.begun > at), None)
    if isinstance(reading.found, State) and at in (before and before.ended, behind and behind.not_yet):
        # At this very time it was found otherwise.
        return tuple(known)
    others = [each for each in known if each is not before and each is not behind]
    return _chained([*others, *_between(before, behind, key, reading)])


def _parted(known: Sequence[Interval], within: Interval, reading: Reading) -> list[Interval]:
    """Part an interval in which something else was found; only its own two ends are known to have been so."""
    at, found = reading.at, reading.found
    parts = [
        replace(within, last=within.begun, ended=at, end=End.CHANGED, ended_by=reading.by),
        replace(within, not_yet=at, begun=within.last, number=None),
    ]
    if isinstance(found, End):
        parts[0] = replace(parts[0], end=found)
    else:
        amid = Interval(within.key, found, at, at, at, within.begun, by=reading.by)
        parts.insert(1, replace(amid, ended=within.last, end=End.CHANGED, ended_by=within.by))
    return [*(each for each in known if each is not within), *parts]


def _between(before: Interval | None, behind: Interval | None, key: Key, reading: Reading) -> list[Interval]:
    """Return the two intervals beside a reading, and one of its own where it belongs to neither."""
    at, found = reading.at, reading.found
    # Nothing is known yet of the time between one of them and the reading.
    follows = before if before is not None and (before.ended is None or before.ended > at) else None
    leads = behind if behind is not None and (behind.not_yet is None or behind.not_yet < at) else None
    shifted = replace(leads, not_yet=at) if leads is not None else behind
    if follows is not None and follows.state == found:
        # What is said of the cause may be new.
        return _there(replace(follows, last=at, state=follows.state if isinstance(found, End) else found), shifted)
    end = found if isinstance(found, End) else End.CHANGED
    over = before if follows is None else replace(follows, ended=at, end=end, ended_by=reading.by)
    if leads is not None and leads.state == found:
        not_yet = _last_known(at, before, behind, reading.good)
        return _there(over, replace(leads, begun=at, by=reading.by, not_yet=not_yet))
    return _there(over, None if isinstance(found, End) else _fresh(before, behind, key, found, reading), shifted)


def _there(*intervals: Interval | None) -> list[Interval]:
    return [each for each in intervals if each is not None]


def _fresh(before: Interval | None, behind: Interval | None, key: Key, found: State, reading: Reading) -> Interval:
    """Return an interval of one reading, with what is known of the times before and behind it."""
    at = reading.at
    not_yet = _last_known(at, before, behind, reading.good)
    first = Interval(key, found, at, at, at, not_yet, not_yet, by=reading.by)
    ends: list[tuple[datetime, End | None, str | None]] = []
    if before is not None and before.ended is not None:
        ends.append((before.ended, before.end, before.ended_by))
    if behind is not None:
        if behind.not_yet is not None:
            ends.append((behind.not_yet, End.GOOD, reading.by))
        ends.append((behind.begun, End.CHANGED, behind.by))
    ends += [(time, End.GOOD, reading.by) for time in reading.good]
    if reading.left is not None:
        ends.append((reading.left, End.LEFT, reading.by))
    later = [each for each in ends if each[0] > at]
    if not later:
        return first
    ended, end, ended_by = min(later, key=lambda each: each[0])
    return replace(first, ended=ended, end=end, ended_by=ended_by)


def _last_known(
    at: datetime, before: Interval | None, behind: Interval | None, good: Iterable[datetime]
) -> datetime | None:
    """Return when it was last known to be otherwise, before a time: as desired, or in the state that this one follows.

    A time within an interval is no good one; nor is the end of one that was not told any more, or whose host left.
    """
    known = [each for each in (before, behind) if each is not None]
    times = [time for time in good if not any(each.begun <= time <= each.last for each in known)]
    if before is not None and (before.ended is None or before.ended >= at):
        times.append(before.last)
    elif before is not None and before.ended is not None and before.end is End.GOOD:
        times.append(before.ended)
    if behind is not None and behind.not_yet is not None:
        times.append(behind.not_yet)
    return max((time for time in times if time < at), default=None)


def _chained(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Return the intervals in order, each with since when its host is other than desired in this."""
    found: list[Interval] = []
    for each in sorted(intervals, key=lambda each: each.begun):
        prior = found[-1] if found else None
        since, last_good = each.begun, each.not_yet
        if prior is not None and prior.end is End.CHANGED and prior.ended == each.begun:
            since, last_good = prior.since, prior.last_good
        elif prior is None and each.since < each.begun:
            # What it followed was pruned, or is not among those that were asked for.
            since, last_good = each.since, each.last_good
        found.append(replace(each, since=since, last_good=last_good))
    return tuple(found)
