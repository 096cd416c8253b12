"""`gpunode check INVENTORY`: are the settings of every host right?"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpunode.base.findings import ExitCode
from gpunode.base.folding import UNBOUND, fold, folded_in_a_line
from gpunode.base.importing import uncollected
from gpunode.base.terminal import say
from gpunode.cli.errors import complain, end_by, refuse_limit, say_cautions
from gpunode.cli.output import columns, error_columns, is_json, is_quiet, output_option, say_document
from gpunode.cli.selection import called, inventory_argument, limit_option, set_option

if TYPE_CHECKING:
    from gpunode.fleet.call import Call
    from gpunode.node.preflight import Refusal
    from gpunode.settings import Settings

    # Verdict -> the hosts that it is on.
    Told = dict[Refusal, list[str]]

# Raised when a key of the document goes away or changes its meaning; a new key raises nothing.
SCHEMA = 1


@click.command()
@inventory_argument()
@output_option("the verdict, with every host's settings (docs/output.md)", "what is refused")
@click.option("--all", "show_all", is_flag=True, help="Name every host, however many are alike.")
@limit_option
@set_option
def check(inventory: Path, show_all: bool, limit: tuple[str, ...]) -> None:
    """Validate the settings of every host in INVENTORY; no host is contacted.

    With --limit the settings of all hosts must be right all the same, and these alone are told of; what --set gives is
    for these, and for no other is it judged.

    Refused is also what no node can become: a CUDA release that the driver is too old for, a branch that no repository
    has. Exit status: 0 all are right, 1 the inventory cannot be read, 3 settings are refused (one message names every
    mistake) or the inventory's Python fails, 64 usage.
    """
    # Late, because reading inventories imports pyinfra.
    with uncollected():
        from gpunode.fleet.inventory import LimitError, foreign_names, layered_data, limited, load_inventory
        from gpunode.fleet.inventory_files import InventoryError
        from gpunode.settings import SettingsError, check_hosts
        from gpunode.settings.layers import REPLACE, OverrideError

    try:
        layered = layered_data(inventory)
        every = check_hosts({name: found.data for name, found in layered.items()}, foreign_names())
        told_of = limited(load_inventory(inventory), limit) if limit else tuple(every)
        hosts, layered = {name: every[name] for name in told_of}, {name: layered[name] for name in told_of}
    except LimitError as error:
        refuse_limit(error)
    except InventoryError as error:
        end_by(error, error.status, "cannot read the inventory: ", **_nothing())
    except (OverrideError, SettingsError) as error:
        end_by(error, ExitCode.INPUT_REFUSED, **_nothing())
    say_cautions()
    refused, told = _anywhere(hosts)
    code = ExitCode.INPUT_REFUSED if refused else ExitCode.GOOD
    dropped = {name: found.dropped for name, found in layered.items() if found.dropped}
    if is_json():
        say_document(document(hosts, refused, told, dropped, called(inventory, limit)))
    elif not is_quiet():
        for name, keys in dropped.items():
            _say(f"{name}: `{REPLACE}` drops what its groups say of {', '.join(keys)}")
        for item, names in told.items():
            _say(f"caution: {_named(names, show_all)}: {item}")
    for item, names in refused.items():
        # With a code of its own.
        complain(f"refused: {folded_in_a_line(names, UNBOUND if show_all else error_columns())}: {item}")
    if not refused and not is_json() and not is_quiet():
        _say(f"settings of {len(hosts)} host{'' if len(hosts) == 1 else 's'} are right: {_named(hosts, show_all)}")
    sys.exit(code)


def _named(names: Iterable[str], show_all: bool) -> str:
    return folded_in_a_line(names, UNBOUND if show_all else columns())


def _say(text: str) -> None:
    say(fold(text, columns(), "  "))


def _nothing() -> dict[str, Any]:
    """Return what the document says where no host's settings could be read."""
    counts = {"hosts": {"right": 0, "refused": 0}}
    nothing: dict[str, Any] = {"problems": [], "refusals": [], "cautions": [], "dropped": {}, "hosts": {}}
    return {"counts": counts, "ok": False, **nothing}


def document(
    hosts: Mapping[str, Settings], refused: Told, told: Told, dropped: Mapping[str, Sequence[str]], call: Call
) -> dict[str, Any]:
    """Return what --output json prints of settings that could be read."""
    from gpunode.base.document import head

    code = ExitCode.INPUT_REFUSED if refused else ExitCode.GOOD
    bad = {name for names in refused.values() for name in names}
    counts = {"hosts": {"right": len(hosts) - len(bad), "refused": len(bad)}}
    return {
        **head(SCHEMA, counts, code, call.to_json()),
        "ok": not refused,
        "error": None,
        "code": None,
        "problems": [],
        "refusals": _as_json(refused),
        "cautions": _as_json(told),
        "dropped": {name: list(keys) for name, keys in dropped.items()},
        "hosts": {name: {**settings.to_json(), "digest": settings.digest()} for name, settings in hosts.items()},
    }


def _anywhere(hosts: Mapping[str, Settings]) -> tuple[Told, Told]:
    """Return what can be had on no node, and what a person should know of it: verdict -> hosts."""
    from gpunode.node.preflight.anywhere import cautions_anywhere, refused_anywhere

    refused: Told = {}
    told: Told = {}
    today = datetime.now(UTC).date()
    for host, settings in hosts.items():
        for item in refused_anywhere(settings):
            refused.setdefault(item, []).append(host)
        for caution in cautions_anywhere(settings, today):
            told.setdefault(caution, []).append(host)
    return refused, told


def _as_json(told: Told) -> list[dict[str, object]]:
    return [{**item.to_json(), "hosts": names} for item, names in told.items()]
