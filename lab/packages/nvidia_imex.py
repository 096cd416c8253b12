#!/usr/bin/python3 -ISB
"""SIMULATED nvidia-imex and nvidia-imex-ctl: daemons of several lab nodes find each other by TCP, and tell of it.

Stands in a node under both names. Real are the paths, the keys of config.cfg that are read, the ports, the words and
the JSON of `-N -j` and `-q`, as data/imex.yaml names their sources, and three rules: a daemon ends where the loaded
driver is of another version, it reads its list of nodes when it starts, and once it has met a node with another list it
blocks that one until it ends. The names of the two mismatches are a guess. No memory is mapped: there is no NVLink.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

VERSION = "@VERSION@"
CONFIG = "/etc/nvidia-imex/config.cfg"
LOG = Path("/var/log/gpunode-lab.log")
SECONDS = 2.0
Answer = dict[str, Any]


def log(text: str) -> None:
    """Add a line to the lab's log."""
    with LOG.open("a") as file:
        file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} SIMULATED nvidia-imex {VERSION}: {text}\n")


def config(path: str) -> dict[str, str]:
    """Return the keys of config.cfg."""
    lines = Path(path).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))


def nodes_of(settings: dict[str, str]) -> list[str]:
    """Return the addresses of the list of nodes."""
    try:
        return Path(settings["IMEX_NODE_CONFIG_FILE"]).read_text().split()
    except OSError:
        sys.exit("Failed to read node configuration file")


def ask(address: str, port: int, question: Answer) -> Answer | None:
    """Return what a daemon answers; None where there is none."""
    try:
        with socket.create_connection((address, port), SECONDS) as connection:
            connection.settimeout(SECONDS)
            file = connection.makefile("rw")
            file.write(json.dumps(question) + "\n")
            file.flush()
            found: Answer = json.loads(file.readline() or "null")
            return found
    except (OSError, ValueError):
        return None


class Daemon:
    """Hold a daemon: its list as it read it, its own address, and what became of its connection to each node."""

    def __init__(self, settings: dict[str, str]) -> None:
        """Take the configuration, of which the list is read once."""
        self.nodes = nodes_of(settings)
        self.port, self.command_port = int(settings["SERVER_PORT"]), int(settings["IMEX_CMD_PORT"])
        self.commands = settings.get("IMEX_CMD_ENABLED") == "1"
        self.map = hashlib.sha256("\n".join(self.nodes).encode()).hexdigest()
        self.status = dict.fromkeys(self.nodes, "NEVER_CONNECTED")
        self.own = ""

    def bind(self) -> list[socket.socket]:
        """Return the listening sockets; the address that can be bound is the node's own."""
        for address in self.nodes:
            try:
                listening = [socket.create_server((address, self.port))]
            except OSError:
                continue
            self.own = address
            return [*listening, *([socket.create_server(("", self.command_port))] if self.commands else ())]
        sys.exit(f"SIMULATED nvidia-imex: none of {self.nodes} is an address of this node")

    def answer(self, question: Answer) -> Answer:
        """Return what is told to another daemon, or to nvidia-imex-ctl."""
        if "map" in question:
            return {"map": self.map, "version": VERSION}
        every = {str(n): {"host": host, "status": self.status[host]} for n, host in enumerate(self.nodes)}
        return {"status": "READY", "host": self.own, "connections": every, "version": VERSION}

    def serve(self, listening: socket.socket) -> None:
        """Answer whoever connects, for ever."""
        while True:
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(SECONDS)
                file = connection.makefile("rw")
                try:
                    file.write(json.dumps(self.answer(json.loads(file.readline()))) + "\n")
                    file.flush()
                except (OSError, ValueError):
                    continue

    def watch(self) -> None:
        """Look at each node every second, but for those that are blocked."""
        while True:
            for host in self.nodes:
                if self.status[host].endswith("MISMATCH"):
                    continue
                found = ask(host, self.port, {"map": self.map})
                if found is None:
                    self.status[host] = "NEVER_CONNECTED" if self.status[host] == "NEVER_CONNECTED" else "DISCONNECTED"
                elif found["version"] != VERSION:
                    self.status[host] = "VERSION_MISMATCH"
                else:
                    self.status[host] = "CONNECTED" if found["map"] == self.map else "NODE_MAP_MISMATCH"
            time.sleep(1)


def daemon(path: str) -> None:
    """Run the daemon, behind the one that systemd started."""
    loaded = Path("/sys/module/nvidia/version")
    version = loaded.read_text().strip() if loaded.exists() else "none"
    if version != VERSION:
        log(f"the loaded driver is {version}")
        sys.exit(f"SIMULATED nvidia-imex {VERSION}: the loaded driver is {version}")
    found = Daemon(config(path))
    sockets = found.bind()
    log(f"{found.own} of {', '.join(found.nodes)}")
    if os.fork():
        # Without the interpreter's end: the child has the sockets.
        os._exit(0)
    os.setsid()
    for listening in sockets:
        threading.Thread(target=found.serve, args=(listening,), daemon=True).start()
    found.watch()


def control(options: list[str]) -> int:
    """Print what nvidia-imex-ctl prints with -q, and with -N -j."""
    settings = config(options[options.index("-c") + 1] if "-c" in options else CONFIG)
    port = int(settings["IMEX_CMD_PORT"])
    if "-q" in options:
        found = ask("127.0.0.1", port, {})
        print(found["status"] if found else "UNAVAILABLE")
        return 0
    nodes, told = nodes_of(settings), {}
    for number, host in enumerate(nodes):
        unknown = {str(n): {"host": each, "status": "INVALID", "changed": False} for n, each in enumerate(nodes)}
        nobody = {"status": "UNAVAILABLE", "host": host, "connections": unknown, "version": ""}
        told[str(number)] = {**(ask(host, port, {}) or nobody), "changed": False, "hostName": ""}
    ready = [node["status"] == "READY" for node in told.values()]
    pairs = [each["status"] for node in told.values() for each in node["connections"].values()]
    status = "UP" if all(ready) and set(pairs) == {"CONNECTED"} else "DEGRADED" if any(ready) else "DOWN"
    print(json.dumps({"nodes": told, "timestamp": time.strftime("%m/%d/%Y %H:%M:%S.000"), "status": status}))
    return 0


if __name__ == "__main__":
    if Path(sys.argv[0]).name == "nvidia-imex-ctl":
        sys.exit(control(sys.argv[1:]))
    daemon(sys.argv[sys.argv.index("-c") + 1] if "-c" in sys.argv else CONFIG)
