#!/usr/bin/python3
"""SIMULATED dcgmi of gpunode's lab: `health -s a` and `health -c -j`, in the words and the JSON of the real one.

What is wrong with a GPU it takes from a file: lines of KIND, NUMBER, SYSTEM, VALUE, MESSAGE, divided by tabs.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

WATCHES = Path("/run/gpunode-lab/dcgm-watches")
INCIDENTS = Path("/run/gpunode-lab/dcgm-incidents")
RANKS = ("Healthy", "Warning", "Failure")


def main(arguments: list[str]) -> int:
    """Do what is asked; return the exit status."""
    if arguments not in (["health", "-s", "a"], ["health", "-c", "-j"]):
        print(f"SIMULATED dcgmi knows no {' '.join(arguments)}", file=sys.stderr)
        return 1
    try:
        socket.create_connection(("127.0.0.1", 5555), timeout=5).close()
    except OSError:
        print("Error: unable to establish a connection to the specified host: localhost")
        print("Error: Unable to connect to host engine. Host engine connection invalid/disconnected.")
        return 1
    if arguments[1] == "-s":
        WATCHES.parent.mkdir(parents=True, exist_ok=True)
        WATCHES.write_text("a\n")
        print("Health monitor systems set successfully.")
        return 0
    if not WATCHES.exists():
        print("Error: Health watches not enabled. Please enable watches. ")
        return 1
    lines = INCIDENTS.read_text().splitlines() if INCIDENTS.exists() else []
    print(json.dumps(report([line.split("\t") for line in lines]), indent=3, sort_keys=True))
    return 0


def report(incidents: list[list[str]]) -> dict[str, Any]:
    """Return the report of incidents (kind, number, system, value, message) as DCGM's output has it."""
    worst = max((each[3] for each in incidents), key=RANKS.index, default=RANKS[0])
    body: dict[str, Any] = {"Overall Health": {"value": worst}}
    for kind, number, system, value, message in incidents:
        entity = body.setdefault(kind, {"children": {}})["children"].setdefault(number, {"value": value})
        errors = entity.setdefault("children", {}).setdefault("Errors", {"children": {}})["children"]
        errors[system] = {"overflow": [message], "value": value}
    return {"body": body, "header": ["Health Monitor Report"]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
