#!/usr/bin/python3
"""The real runc, but that a container sees its own cgroups alone.

A lab's node is itself a container, and has none of the machine's cgroups to show. It stands before runc on the PATH.
"""

import json
import os
import sys
from pathlib import Path

arguments = sys.argv[1:]
if "--bundle" in arguments:
    file = Path(arguments[arguments.index("--bundle") + 1]) / "config.json"
    config = json.loads(file.read_text())
    namespaces = config.setdefault("linux", {}).setdefault("namespaces", [])
    if not any(namespace.get("type") == "cgroup" for namespace in namespaces):
        namespaces.append({"type": "cgroup"})
        file.write_text(json.dumps(config))
os.execv("/usr/sbin/runc", ["runc", *arguments])
