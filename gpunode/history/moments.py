"""Times as people say them: 24h, yesterday 22:00, 2026-01-14. Pure. In UTC, as all that gpunode prints."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error

UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 604800}
ALLOWED = "give 24h, 90d, 'yesterday 22:00', '22:00' or 2026-01-14T22:00, in UTC"
# A hundred years: nothing is older, and a calendar has an end.
LONGEST = timedelta(days=36_525)
_AGE = re.compile(r"([0-9]{1,6}) ?(s|min|m|h|d|w)(?: ago)?")
_DAY = re.compile(r"(today|yesterday)(?:[ T](.+))?", re.IGNORECASE)
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")


class MomentError(CodedError):
    """Say that a text is no time, and what is one."""

    code = command_error(
        "history.time", "A text is not a time, or not a length of time.",
        "Times are in UTC: 24h (that long ago), 'yesterday 22:00', 22:00 (the last one), 2026-01-14T22:00, or with an "
        "offset, 2026-01-14T22:00+01:00. Lengths are a number with s, min, h, d or w.",
        remedy="give one of these", exit="64",
    )  # fmt: skip


def age(text: str) -> timedelta:
    """Return a length of time, such as 90d; raise MomentError."""
    if (found := _AGE.fullmatch(text.strip())) is None:
        raise MomentError(f"{text!r} is no length of time: give a number with s, min, h, d or w, such as 90d")
    length = timedelta(seconds=int(found[1]) * UNITS[found[2]])
    if length > LONGEST:
        raise MomentError(f"{text!r} is longer than {LONGEST.days} days: give a shorter time, such as 90d")
    return length


def moment(text: str, now: datetime) -> datetime:
    """Return the time that is meant; raise MomentError. A length of time is that long ago, a time alone was last."""
    text = text.strip()
    if text == "now":
        return now
    if _AGE.fullmatch(text):
        return now - age(text)
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if (day := _DAY.fullmatch(text)) is not None:
        begin = midnight - timedelta(days=day[1].lower() == "yesterday")
        return begin + _clock(day[2], text) if day[2] else begin
    if _CLOCK.fullmatch(text):
        found = midnight + _clock(text, text)
        return found if found <= now else found - timedelta(days=1)
    try:
        told = datetime.fromisoformat(text)
        return (told if told.tzinfo else told.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise _refused(text) from None


def _clock(text: str, whole: str) -> timedelta:
    found = _CLOCK.fullmatch(text)
    if found is None:
        raise _refused(whole)
    hours, minutes, seconds = int(found[1]), int(found[2]), int(found[3] or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise _refused(whole)
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def _refused(text: str) -> MomentError:
    return MomentError(f"{text!r} is no time: {ALLOWED}")
