"""When a unit of systemd's started, from the timestamp that `systemctl show` prints in UTC (gpunode/system/unit.sh)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from gpunode.base.reading import ParseError

# "Sun 2026-11-22 22:03:24.123456 UTC"; without the part of a second by systemd up to 250.
_TIMESTAMP = re.compile(r"\w{3} (\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})(\.\d{1,6})? UTC", re.ASCII)


def seconds(timestamp: str) -> float:
    """Return a timestamp as seconds since the epoch; raise ParseError where it is none.

    Of whole seconds it is the end: what was written in the second in which a daemon started may have been there before,
    and whoever took it for newer would restart the daemon in each run.
    """
    match = _TIMESTAMP.fullmatch(timestamp.strip())
    try:
        if match is None:
            raise ValueError("of another form")
        whole = datetime.strptime(match[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError as error:
        raise ParseError(f"not a timestamp of systemd's: {timestamp[:60]!r}: {error}") from error
    return float(f"{int(whole.timestamp())}{match[2] or '.999999'}")
