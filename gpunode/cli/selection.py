"""Which inventory and hosts a command looks at, what it takes for their settings, and what its document is of."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gpunode.base.messages import with_code

if TYPE_CHECKING:
    from gpunode.fleet.call import Call

# Where it stands in click's context: that of the command line, which outlives the command's own.
_INVENTORY, _LIMIT, _OF = "gpunode.inventory", "gpunode.limit", "gpunode.of"
F = TypeVar("F", bound=Callable[..., Any])


def _kept(context: click.Context, option: click.Parameter, value: Any) -> Any:
    context.meta[_LIMIT if option.name == "limit" else _INVENTORY] = value
    return value


def inventory_argument(required: bool = True, default: Path | None = None) -> Callable[[F], F]:
    """Give a command the argument INVENTORY, which its document names, whatever becomes of it."""
    kind = click.Path(path_type=Path)
    given: dict[str, Any] = {} if default is None else {"default": default}
    return click.argument("inventory", type=kind, required=required, is_eager=True, callback=_kept, **given)


limit_option = click.option(
    "--limit",
    multiple=True,
    callback=_kept,
    # What is given by --set is for these hosts.
    is_eager=True,
    metavar="PATTERN",
    help="These hosts alone: a name, a glob such as 'gpu-*', or a group; may be given more than once.",
)


def _set(context: click.Context, option: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    # Where a shell completes a line, nothing is done of what stands in it.
    if not words or context.resilient_parsing:
        return words
    # Late, so that the commands' help needs none of it.
    from gpunode.settings import overrides
    from gpunode.settings.layers import OverrideError

    try:
        # Of the root's context: click does not close that of a command whose words are refused.
        context.find_root().with_resource(overrides.give(words, context.params.get("limit", ())))
    except OverrideError as error:
        raise click.BadParameter(with_code(str(error), error.code)) from None
    return words


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    callback=_set,
    expose_value=False,
    help="This setting for all hosts (with --limit: for those alone), above what the inventory says: "
    "driver.version=580.95.05; may be given more than once. Lists and mappings as JSON.",
)


retry_option = click.option(
    "--retry",
    "settings",
    multiple=True,
    flag_value="disruption.retry=true",
    callback=_set,
    expose_value=False,
    help="Try changes again that failed on a node before and were put back, after their cause was corrected.",
)


def called(inventory: str | Path | None, limit: tuple[str, ...] = ()) -> Call:
    """Return how a command was called, for its document and the commands that it suggests."""
    # Late, as above.
    from gpunode.fleet.call import Call
    from gpunode.settings import overrides

    return Call(None if inventory is None else str(inventory), limit, overrides.shown())


def tell_of(**of: Any) -> None:
    """Have an error's document say what the command is of, as its ordinary document does: a source, a lab."""
    click.get_current_context().meta[_OF] = of


def told_of() -> dict[str, Any]:
    """Return what an error's document is of; nothing where the command line could not be read so far."""
    context = click.get_current_context(silent=True)
    if context is None:
        return {}
    if _INVENTORY not in context.meta:
        return dict(context.meta.get(_OF, {}))
    # Late, as above.
    from gpunode.fleet.call import Call
    from gpunode.settings.layers import OverrideError

    inventory, limit = context.meta[_INVENTORY], context.meta.get(_LIMIT, ())
    try:
        return called(inventory, limit).to_json()
    except OverrideError:
        # What the environment gives for --set cannot be read, and cannot be told.
        return Call(None if inventory is None else str(inventory), limit).to_json()
