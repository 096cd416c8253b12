"""What a command found goes into the history; where it cannot, that is told, and changes nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpunode.base.document import AHEAD
from gpunode.base.errors import CodedError
from gpunode.base.errors import in_words as error_in_words
from gpunode.base.messages import with_code
from gpunode.base.terminal import say
from gpunode.fleet.engine.parts import expected

if TYPE_CHECKING:
    from gpunode.history.asking import Known
    from gpunode.history.intervals import Key
    from gpunode.history.place import Place

F = TypeVar("F", bound=Callable[..., Any])
_PLACE, _KEEP = "gpunode.history", "gpunode.history.keep"
_DEFAULT_KEEP = "365d"
_FOR_EVER = "all"


def history_option(command: F) -> F:
    """Give a command the option --history."""
    return click.option(
        "--history",
        metavar="FILE|URL|none",
        envvar="GPUNODE_HISTORY",
        show_envvar=True,
        expose_value=False,
        callback=_set,
        help="Where findings are kept over time: a file of SQLite's, postgresql://HOST/DATABASE, or none. By default a "
        "file of your own (docs/history.md).",
    )(command)


def _set(context: click.Context, option: click.Parameter, text: str | None) -> None:
    if context.resilient_parsing:
        return
    from gpunode.history.place import KEEP_VARIABLE, MomentError, PlaceError, age, place

    kept = os.environ.get(KEEP_VARIABLE) or _DEFAULT_KEEP
    try:
        context.meta[_PLACE] = place(text)
        context.meta[_KEEP] = None if kept == _FOR_EVER else age(kept)
    except PlaceError as error:
        raise click.BadParameter(with_code(str(error), error.code)) from None
    except MomentError as error:
        raise click.UsageError(with_code(f"{KEEP_VARIABLE}: {error}; {_FOR_EVER!r} keeps all", error.code)) from None


def chosen() -> tuple[Place | None, timedelta | None]:
    """Return the command's history (None: there is none), and how long it keeps what is over (None: for ever)."""
    context = click.get_current_context(silent=True)
    return (None, None) if context is None else (context.meta.get(_PLACE), context.meta.get(_KEEP))


def recorded(document: Mapping[str, Any], command: str) -> Mapping[str, Mapping[Key, tuple[Any, Any]]]:
    """Write what a document tells into the history; return since when each finding of its hosts is so.

    Nothing where there is no history, or it cannot be written, which is told on standard error.
    """
    place, keep = chosen()
    # Whoever gave out a part of an inventory (gpunode.fleet.engine) records what comes of it.
    if place is None or expected() is not None:
        return {}
    # How it would be by other settings than the inventory's is not how it is.
    if command == "drift" and document.get("set"):
        return {}
    try:
        # Late: SQLAlchemy takes as long as the rest of a command's start.
        from gpunode.base.importing import uncollected

        with uncollected():
            from gpunode.history.asking import asking, known
            from gpunode.history.place import inventory_name
            from gpunode.history.told import told
            from gpunode.history.writing import record
        found = told(document, command)
        name = inventory_name(found.inventory or "an inventory without a name")
        since = record(place, found, name, keep)
        with asking(place) as connection:
            caution_of_later(each for each in known(connection) if each.name == name)
        return since
    except Exception as error:
        from gpunode.history.place import HistoryError

        # Whatever it is: what was found of the nodes is told as it is.
        if os.environ.get("GPUNODE_DEBUG"):
            raise
        code = error.code if isinstance(error, CodedError) else HistoryError.code
        words = error_in_words(error)
        without = "; `--history none` does without a history"
        say(with_code(f"caution: this is not in the history: {words}{without}", code), err=True)
        return {}


def caution_of_later(known: Iterable[Known]) -> None:
    """Print a caution of each inventory of which a report is later than now."""
    from gpunode.history.output import in_words
    from gpunode.history.told import FutureError

    for each in known:
        if each.last is not None and each.last > datetime.now(UTC) + AHEAD:
            text = (
                f"caution: the history has a report of {each.name} of {in_words(each.last)}, later than now: it hides "
                "what was found since; check this machine's clock, then run `gpunode history forget --after now`"
            )
            say(with_code(text, FutureError.code), err=True)


def with_since(document: dict[str, Any], since: Mapping[str, Mapping[Key, tuple[Any, Any]]]) -> dict[str, Any]:
    """Return a document with what its page shows of the history: host -> component: what -> since when it is so."""
    told = {
        host: {f"{component}: {what}": at.isoformat() for (component, what), (at, _) in found.items()}
        for host, found in since.items()
    }
    return {**document, "history": told}
