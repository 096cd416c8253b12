"""`gpunode check INVENTORY`: are the settings of every host right?"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from gpunode.base.errors import CodedError
from gpunode.base.findings import ExitCode
from gpunode.base.importing import uncollected
from gpunode.base.terminal import say
from gpunode.cli.errors import end_by
from gpunode.cli.selection import limit_option, set_option

if TYPE_CHECKING:
    from gpunode.node.preflight import Refusal
    from gpunode.settings import Settings

    # Verdict -> the hosts that it is on.
    Told = dict[Refusal, list[str]]


@click.command()
@click.argument("inventory", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON, with every host's settings.")
@limit_option
@set_option
def check(inventory: str, as_json: bool, limit: tuple[str, ...]) -> None:
    """Validate the settings of every host in INVENTORY; no host is contacted.

    With --limit the settings of all hosts must be right all the same, and these alone are told of; what --set gives is
    for these, and for no other is it judged.

    Refused is also what no node can become: a CUDA release that the driver is too old for, a branch that no repository
    has. Exit status: 0 all are right, 1 the inventory cannot be read, 3 settings are refused (one message names every
    mistake), 64 usage.
    """
    # Late, because reading inventories imports pyinfra.
    with uncollected():
        from gpunode.fleet.inventory import InventoryError, foreign_names, layered_data, limited, load_inventory
        from gpunode.settings import SettingsError, check_hosts
        from gpunode.settings.host_data import REPLACE
        from gpunode.settings.overrides import OverrideError

    try:
        layered = layered_data(inventory)
        every = check_hosts({name: found.data for name, found in layered.items()}, foreign_names())
        told_of = limited(load_inventory(inventory), limit) if limit else tuple(every)
        hosts, layered = {name: every[name] for name in told_of}, {name: layered[name] for name in told_of}
    except InventoryError as error:
        if as_json:
            say(_unread(error))
        end_by(error, ExitCode.ERROR, "cannot read the inventory: ")
    except OverrideError as error:
        if as_json:
            say(_unread(error))
        end_by(error, ExitCode.INPUT_REFUSED)
    except SettingsError as error:
        if as_json:
            problems = [problem.to_json() for problem in error.problems]
            say(json.dumps({"ok": False, "problems": problems, "hosts": {}}, indent=2))
        end_by(error, ExitCode.INPUT_REFUSED)
    refused, told = _anywhere(hosts)
    if as_json:
        found = {host: {**settings.to_json(), "digest": settings.digest()} for host, settings in hosts.items()}
        document = {"ok": not refused, "problems": [], "hosts": found}
        document |= {"refusals": _as_json(refused), "cautions": _as_json(told)}
        document |= {"dropped": {name: found.dropped for name, found in layered.items() if found.dropped}}
        say(json.dumps(document, indent=2))
    else:
        for name, each in layered.items():
            if each.dropped:
                say(f"{name}: `{REPLACE}` drops what its groups say of {', '.join(each.dropped)}")
        for item, names in told.items():
            say(f"caution: {', '.join(names)}: {item}")
    if refused:
        for item, names in refused.items():
            say(f"refused: {', '.join(names)}: {item}", err=True)
        sys.exit(ExitCode.INPUT_REFUSED)
    if not as_json:
        say(f"settings of {len(hosts)} host{'' if len(hosts) == 1 else 's'} are right: {', '.join(hosts)}")


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


def _unread(error: CodedError) -> str:
    """Return the document of an inventory, or of a --set, that could not be read."""
    told = {"ok": False, "error": str(error), "code": error.code, "problems": [], "hosts": {}}
    return json.dumps(told, indent=2)
