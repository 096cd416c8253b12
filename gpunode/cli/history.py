"""`gpunode history`: since when is it so, and what changed?"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpunode.base.findings import ExitCode
from gpunode.base.importing import uncollected
from gpunode.base.messages import with_code
from gpunode.base.structured_text import FLEET, load_json
from gpunode.base.terminal import say_coloured
from gpunode.cli.errors import NOT_READ, end, end_by
from gpunode.cli.output import columns, is_json, is_quiet, output_option, say_document, talk
from gpunode.cli.recording import caution_of_later, chosen, history_option

if TYPE_CHECKING:
    from gpunode.history.asking import Known, Question
    from gpunode.history.place import Place
    from gpunode.history.tables import Pruned

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def history() -> None:
    """What was found of the hosts over time: since when it is so, what changed (docs/history.md).

    Times are in UTC, and said as 24h, 'yesterday 22:00', 22:00 or 2026-01-14T22:00.
    """


def _moment(context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    """Return the time that an option names; --older-than names an age."""
    from gpunode.history.place import MomentError, age, moment

    now = datetime.now(UTC)
    try:
        return None if text is None else now - age(text) if option.name == "older_than" else moment(text, now)
    except MomentError as error:
        raise click.BadParameter(with_code(str(error), error.code)) from None


def _asked(command: F) -> F:
    """Give a command what says which findings are asked for."""
    options = (
        click.argument("inventory", required=False),
        click.option(
            "--limit", "--host", "hosts", multiple=True, metavar="PATTERN",
            help="These hosts alone: a name or a glob such as 'gpu-*'; may be given more than once.",
        ),
        click.option("--component", "components", multiple=True, metavar="NAME", help="This component alone: driver."),
        click.option(
            "--code", "codes", multiple=True, metavar="CODE",
            help="Findings of this code, such as driver.loaded-module, alone.",
        ),
        history_option,
    )  # fmt: skip
    for give in reversed(options):
        command = give(command)
    return command


@history.command()
@_asked
@click.option("--at", metavar="TIME", callback=_moment, help="How it was then; by default, how it was last.")
@output_option("the findings (docs/output.md)", "the findings alone")
def findings(
    inventory: str | None, hosts: tuple[str, ...], components: tuple[str, ...], codes: tuple[str, ...],
    at: datetime | None,
) -> None:  # fmt: skip
    """Say what is not as desired on the hosts of INVENTORY, and since when; no host is contacted.

    Without INVENTORY, of every inventory that the history has. Exits 0 whatever was found, 1 where the history cannot
    be read, 64 usage.
    """
    from gpunode.cli.drift import coloured
    from gpunode.history.asking import answers, asking

    with _told() as place:
        from gpunode.history import output

        question = _question(inventory, hosts, components, codes)
        with asking(place) as connection:
            found, known = answers(connection, question, at), _known(connection, question)
    if is_json():
        say_document(output.of_findings(place, question.inventory, found, at))
    elif text := output.findings_text(found, known, columns(), coloured, is_quiet()):
        say_coloured(text)


@history.command()
@_asked
@click.option("--since", metavar="TIME", callback=_moment, default="24h", show_default=True, help="From then on.")
@click.option("--until", metavar="TIME", callback=_moment, default="now", show_default=True, help="Up to then.")
@output_option("the changes (docs/output.md)", "the changes alone")
def changes(
    inventory: str | None, hosts: tuple[str, ...], components: tuple[str, ...], codes: tuple[str, ...],
    since: datetime, until: datetime,
) -> None:  # fmt: skip
    """Say what changed on the hosts of INVENTORY between two times, and which runs there were.

    Without INVENTORY, of every inventory that the history has. A change is told at the time of the first reading that
    found it. Exits 0 whatever changed, 1 where the history cannot be read, 64 usage.
    """
    from gpunode.cli.drift import coloured
    from gpunode.history.asking import asking
    from gpunode.history.asking import changes as changes_between

    if since > until:
        raise click.UsageError("--since lies behind --until: nothing can have changed between them")
    with _told() as place:
        from gpunode.history import output

        question = _question(inventory, hosts, components, codes)
        with asking(place) as connection:
            found, known = changes_between(connection, question, since, until), _known(connection, question)
    if is_json():
        say_document(output.of_changes(place, question.inventory, found, since, until))
    elif text := output.changes_text(found, known, since, until, columns(), coloured, is_quiet()):
        say_coloured(text)


@history.command()
@history_option
@output_option("the inventories (docs/output.md)", "the same")
def inventories() -> None:
    """List the inventories that the history has, with their hosts and reports."""
    from gpunode.history.asking import asking, known

    with _told() as place:
        from gpunode.history import output

        with asking(place) as connection:
            found = known(connection)
    if is_json():
        say_document(output.of_inventories(place, found))
    elif found:
        say_coloured(output.inventories_text(found, columns()))


def _content(file: Path) -> bytes:
    """Return the document's bytes, and one more than are read of one that is too large."""
    if str(file) == "-":
        return sys.stdin.buffer.read(FLEET + 1)
    with file.open("rb") as opened:
        return opened.read(FLEET + 1)


@history.command("import")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--inventory", metavar="NAME", help="Whose hosts they tell of; by default as each document has it.")
@history_option
@output_option("what was read (docs/output.md)", "nothing")
def import_(files: tuple[Path, ...], inventory: str | None) -> None:
    """Take JSON documents of drift, apply and agent collect, and agents' own reports, into the history.

    They may come in any order, and more than once; - is standard input. Exits 0 where all were taken, 1 where the
    history cannot be written, 3 where a file is no such document: then none is taken behind it.
    """
    from gpunode.history.writing import record

    with _told() as place:
        from gpunode.history import output
        from gpunode.history.place import inventory_name
        from gpunode.history.told import NoDocumentError, told

        taken: list[tuple[str, str, int]] = []
        keep = chosen()[1]
        for file in files:
            try:
                found = told(load_json(_content(file), FLEET), now=datetime.now(UTC))
            except OSError as error:
                end(f"{file}: {error.strerror}", NOT_READ, ExitCode.ERROR)
            except NoDocumentError as error:
                end_by(error, ExitCode.INPUT_REFUSED, f"{file}: ")
            except ValueError as error:
                end(f"{file}: cannot be read as JSON: {error}", NoDocumentError.code, ExitCode.INPUT_REFUSED)
            named = inventory or found.inventory
            if named is None:
                raise click.UsageError(f"{file} does not say of which inventory it is: give --inventory NAME")
            # Whoever names it means it, whatever the environment says of others.
            name = inventory_name(named, {}) if inventory else inventory_name(named)
            record(place, found, name, keep)
            taken.append((str(file), name, found.nodes))
            many = f"{found.nodes} host{'' if found.nodes == 1 else 's'}"
            talk(f"{file}: {many} of {name}, {found.at:%Y-%m-%d %H:%M} UTC")
    if is_json():
        say_document(output.of_import(place, inventory, taken))


@history.command()
@click.option(
    "--older-than", metavar="AGE", callback=_moment, required=True, help="What ended that long ago: 90d, say."
)
@history_option
@output_option("how much was removed (docs/output.md)", "nothing")
def prune(older_than: datetime) -> None:
    """Remove what is old from the history; what is so still stays, however long it has been so.

    What writes to the history does the same once a day, for what is older than a year (or GPUNODE_HISTORY_KEEP).
    """
    from gpunode.history.tables import prune as pruned_before

    _removed(pruned_before, "over before", before=older_than)


@history.command()
@click.option("--after", metavar="TIME", callback=_moment, required=True, help="What is recorded as later: 'now', say.")
@history_option
@output_option("how much was removed (docs/output.md)", "nothing")
def forget(after: datetime) -> None:
    """Remove from the history what is recorded as later than a time, such as by a clock that was ahead.

    What such a report ended is so again. Check this machine's clock first: 'now' is by it.
    """
    from gpunode.history.tables import forget as forgotten_after

    _removed(forgotten_after, "later than", after=after)


def _removed(remove: Callable[[Place, datetime], Pruned], what: str, **times: datetime) -> None:
    """Remove from the history by the one time in `times`, and say how much it was."""
    ((_, time),) = times.items()
    with _told() as place:
        from gpunode.history import output

        found = remove(place, time)
    if is_json():
        say_document(output.of_prune(place, found, **times))
    counts = f"{found.findings:,} findings, {found.records:,} reports, {found.hosts:,} hosts"
    talk(f"removed what was {what} {output.in_words(time)}: {counts}")


@contextmanager
def _told() -> Iterator[Place]:
    """Yield the history that is meant; end the program with 1 where it cannot be used, with 64 where it is none."""
    from gpunode.history.place import HistoryError

    place, _ = chosen()
    if place is None:
        raise click.UsageError("--history none: there is none to be asked; name a file or a URL")
    try:
        # A hundred thousand findings are no garbage.
        with uncollected():
            yield place
    except HistoryError as error:
        end_by(error, ExitCode.ERROR)


def _question(
    inventory: str | None, hosts: tuple[str, ...], components: tuple[str, ...], codes: tuple[str, ...]
) -> Question:
    from gpunode.history.asking import Question
    from gpunode.history.place import inventory_name

    return Question(None if inventory is None else inventory_name(inventory), hosts, components, codes)


def _known(connection: Any, question: Question) -> list[Known]:
    from gpunode.history.asking import known

    found = [each for each in known(connection) if question.inventory in (None, each.name)]
    caution_of_later(found)
    return found
