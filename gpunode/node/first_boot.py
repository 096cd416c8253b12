"""What an image has for its first boot as a machine: a script that verifies and records, and the unit that runs it."""

from __future__ import annotations

import shlex

from gpunode.base.shell_file import script_file
from gpunode.base.template import rendered
from gpunode.components.runtimes.runtime import CDI_MARK, OWN_SPECIFICATION
from gpunode.settings import Settings

SCRIPT = "/usr/local/lib/gpunode/first-boot.sh"
UNIT = "gpunode-first-boot.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
RECORD = "/var/lib/gpunode/first-boot"
UNPROVEN = "/var/lib/gpunode/transactions/driver/unproven"


def files(settings: Settings, gpunode: str) -> dict[str, str]:
    """Return path -> text of what an image has for its first boot; gpunode: the version that makes it."""
    toolkit = settings.toolkit
    values = {
        "cdi": "yes" if toolkit.enabled and toolkit.cdi == "generate" else "",
        "target": OWN_SPECIFICATION,
        "mark": CDI_MARK,
        "unproven": UNPROVEN,
        "own": "yes",
        "stale": "",
        "links": "yes" if toolkit.enabled and toolkit.device_links else "",
        "units": " ".join(units(settings)),
        "record": RECORD,
        "gpunode": gpunode,
    }
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in values.items())
    parts = (script_file("cdi"), f"make_cdi() {{\n{script_file('cdi_generate')}}}\n", script_file("first_boot"))
    script = "".join(("#!/bin/sh\n# Written by gpunode into an image.\n", head, *parts))
    return {
        SCRIPT: script,
        UNIT_FILE: rendered("gpunode-first-boot.service", record=RECORD, units=units(settings), script=SCRIPT),
    }


def units(settings: Settings) -> tuple[str, ...]:
    """Return the units that are to run after the first boot."""
    runtimes = (
        (settings.containerd.unit, settings.containerd),
        ("docker.service", settings.docker),
        ("crio.service", settings.crio),
    )
    return tuple(unit for unit, component in runtimes if component.enabled)
