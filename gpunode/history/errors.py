"""Why a history cannot be written, or asked."""

from __future__ import annotations

from gpunode.base.errors import CodedError
from gpunode.base.messages import command_error

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
