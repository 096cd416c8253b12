"""`gpunode check INVENTORY`: are the settings of every host right?"""

from __future__ import annotations

import json
import sys

import click

from gpunode.findings import ExitCode
from gpunode.importing import uncollected
from gpunode.terminal import say


@click.command()
@click.argument("inventory")
@click.option("--json", "as_json", is_flag=True, help="Print the verdict as JSON, with every host's settings.")
def check(inventory: str, as_json: bool) -> None:
    """Validate the settings of every host in INVENTORY; no host is contacted.

    Exit status: 0 all are right, 1 the inventory cannot be read, 3 settings are refused (one message names every
    mistake), 64 usage.
    """
    # Late, because reading inventories imports pyinfra.
    with uncollected():
        from gpunode.inventory import InventoryError, foreign_names, host_data
        from gpunode.settings import SettingsError, check_hosts

    try:
        hosts = check_hosts(host_data(inventory), foreign_names())
    except InventoryError as error:
        if as_json:
            say(json.dumps({"ok": False, "error": str(error), "problems": [], "hosts": {}}, indent=2))
        say(f"cannot read the inventory: {error}", err=True)
        sys.exit(ExitCode.ERROR)
    except SettingsError as error:
        if as_json:
            problems = [problem.to_json() for problem in error.problems]
            say(json.dumps({"ok": False, "problems": problems, "hosts": {}}, indent=2))
        say(str(error), err=True)
        sys.exit(ExitCode.INPUT_REFUSED)
    if as_json:
        found = {host: {**settings.to_json(), "digest": settings.digest()} for host, settings in hosts.items()}
        say(json.dumps({"ok": True, "problems": [], "hosts": found}, indent=2))
        return
    say(f"settings of {len(hosts)} host{'' if len(hosts) == 1 else 's'} are right: {', '.join(hosts)}")
