"""Why a history cannot be written, or asked."""

from __future__ import annotations

from gpunode.base.errors import CodedError


class HistoryError(CodedError):
    """Say that a database does not answer, or refuses, and what to do."""

    code = "history.unavailable"


class NewerError(HistoryError):
    """Say that a newer gpunode has written it."""

    code = "history.newer"


class NoDriverError(HistoryError):
    """Say that what speaks with PostgreSQL is not installed."""

    code = "history.no-driver"


class NothingError(HistoryError):
    """Say that there is no history yet, or none of this inventory."""

    code = "history.nothing-yet"
