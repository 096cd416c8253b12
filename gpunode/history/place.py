"""Which history is meant (a file, a URL of PostgreSQL's, or none), the times that people name, and their errors."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error

if TYPE_CHECKING:
    from sqlalchemy import URL


UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_ALLOWED_TIMES = "give 24h, 90d, 'yesterday 22:00', '22:00' or 2026-01-14T22:00, in UTC"
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
    try:
        if (day := _DAY.fullmatch(text)) is not None:
            begin = midnight - timedelta(days=day[1].lower() == "yesterday")
            return _at_clock(begin, day[2]) if day[2] else begin
        if _CLOCK.fullmatch(text):
            found = _at_clock(midnight, text)
            return found if found <= now else found - timedelta(days=1)
        told = datetime.fromisoformat(text)
        return (told if told.tzinfo else told.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise MomentError(f"{text!r} is no time: {_ALLOWED_TIMES}") from None


def _at_clock(midnight: datetime, text: str) -> datetime:
    """Return a time of a day, such as 22:00; raise ValueError."""
    if (found := _CLOCK.fullmatch(text)) is None:
        raise ValueError(text)
    return midnight.replace(hour=int(found[1]), minute=int(found[2]), second=int(found[3] or 0))


VARIABLE, NAME_VARIABLE, KEEP_VARIABLE = "GPUNODE_HISTORY", "GPUNODE_HISTORY_AS", "GPUNODE_HISTORY_KEEP"
NONE = "none"
FILE = "history.sqlite"
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_ALLOWED = "give a file, postgresql://HOST/DATABASE, or none"
_EXIT = "1 of `gpunode history`; of other commands as without it"


class HistoryError(CodedError):
    """Say that a database does not answer, or refuses, and what to do."""

    code = command_error(
        "history.unavailable", "The history cannot be read or written.",
        "Its file cannot be opened, or its server does not answer, refuses the user, or is busy with another writer "
        "for too long. A command that writes to the history prints its results and ends as usual; only the history "
        "lacks them.",
        remedy="correct what the message says; `--history none`, or GPUNODE_HISTORY=none, works without a history",
        exit=_EXIT,
    )  # fmt: skip


class NewerError(HistoryError):
    """Say that a newer gpunode has written it."""

    code = command_error(
        "history.newer", "A newer gpunode has written this history.",
        "This gpunode does not know the form of its tables, and neither reads nor writes them.",
        remedy="upgrade gpunode on this machine, or name another history with --history", exit=_EXIT,
    )  # fmt: skip


class NoDriverError(HistoryError):
    """Say that what speaks with PostgreSQL is not installed."""

    code = command_error(
        "history.no-driver", "The history is in PostgreSQL, and psycopg is not installed.",
        "psycopg comes with gpunode's extra `postgresql`.",
        remedy="install it into gpunode's environment: `pip install 'gpunode[postgresql]'`", exit=_EXIT,
    )  # fmt: skip


class NothingError(HistoryError):
    """Say that there is no history yet, or none of this inventory."""

    code = command_error(
        "history.nothing-yet", "The history does not exist yet, or has nothing about this inventory.",
        "`gpunode drift`, `apply`, `rollout` and `agent collect` write to it, under the inventory's full path or the "
        "name in GPUNODE_HISTORY_AS.",
        remedy="run `gpunode drift INVENTORY` with the same --history; `gpunode history inventories` lists the "
        "inventories",
    )  # fmt: skip


class PlaceError(CodedError):
    """Say why a text names no history, and what does."""

    code = command_error(
        "history.unknown-place", "The value of --history is not a history that gpunode can keep.",
        "A history is an SQLite file or a PostgreSQL URL; `none` turns it off. No host was contacted.",
        remedy="give a path, postgresql://USER@HOST/DATABASE, or none; put a password into a PGPASSFILE", exit="64",
    )  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Hold where a history is: in a file, or at a server of PostgreSQL's; the URL may hold a password."""

    file: Path | None = None
    url: str = field(default="", repr=False)

    def __str__(self) -> str:
        """Return it as it may be shown: without a password, and without what stands behind a ?, which may be one."""
        if self.file is not None:
            return str(self.file)
        from sqlalchemy import make_url

        url = make_url(self.url)
        user = f"{quote(url.username, safe='')}@" if url.username else ""
        host = f"[{url.host}]" if url.host and ":" in url.host else url.host or ""
        return f"postgresql://{user}{host}{f':{url.port}' if url.port else ''}/{url.database or ''}"

    def for_sqlalchemy(self) -> URL:
        """Return the URL that SQLAlchemy takes."""
        from sqlalchemy import URL, make_url

        if self.file is not None:
            return URL.create("sqlite", database=str(self.file))
        return make_url(self.url).set(drivername="postgresql+psycopg")


def place(text: str | None, environment: Mapping[str, str] = os.environ) -> Place | None:
    """Return the history that a text names, the user's own where it is empty; None where there is to be none.

    Raise PlaceError. environment: where a user's, or a service's, files of that kind are kept
    """
    if not text:
        return Place(default_file(environment))
    if text == NONE:
        return None
    scheme, colon, rest = text.partition("://")
    if not colon and text.startswith(tuple(f"{each}:" for each in _POSTGRESQL)):
        raise PlaceError(f"this is neither a file nor a URL: {_ALLOWED}")
    if not colon:
        return Place(Path(text).expanduser())
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        # As SQLAlchemy has it: three slashes before a path from here, four before a whole one.
        return Place(Path(rest[1:]).expanduser())
    if scheme in _POSTGRESQL:
        return Place(url=_checked(f"postgresql://{rest}"))
    # What stands behind the scheme may be a password.
    raise PlaceError(f"{scheme}://… is no history that gpunode can keep: {_ALLOWED}")


def _checked(url: str) -> str:
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        # Two readings of it: where they differ, a part of a password would be taken for the server's name, and shown.
        parts, found = urlsplit(url), make_url(url)
        same = (parts.hostname or None, parts.port) == (found.host.lower() if found.host else None, found.port)
        if same and parts.port != 0 and (found.database or found.query):
            return url
    # What is raised would repeat a part of the URL.
    except (ValueError, ArgumentError):
        pass
    raise PlaceError(
        "this URL of PostgreSQL's cannot be read: give postgresql://USER@HOST:PORT/DATABASE; a password belongs into "
        "~/.pgpass, and in a URL / ? # @ : of it are written as %2F and so on"
    )


def default_file(environment: Mapping[str, str]) -> Path:
    """Return the file of whoever runs this: in the folder of a service's state, or of a user's."""
    if folder := environment.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(folder) / FILE
    state = environment.get("XDG_STATE_HOME", "")
    # One that is not absolute is to be ignored, its specification says.
    home = Path(state) if state.startswith("/") else Path(environment.get("HOME") or "~").expanduser() / ".local/state"
    return home / "gpunode" / FILE


def inventory_name(inventory: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return how a history calls an inventory: its whole path, by whatever path it is named, or as it is told to.

    Controllers that share a history, with the inventory at different places, are told one name: GPUNODE_HISTORY_AS.
    """
    if told := environment.get(NAME_VARIABLE):
        return told
    path = Path(inventory)
    return str(path.resolve()) if path.exists() else inventory
