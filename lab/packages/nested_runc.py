#!/usr/bin/python3
"""Start the real runc, with a cgroup namespace of its own for each container.

A lab node is itself a container and has none of the machine's cgroups to show: without the namespace no pod starts.
NVIDIA's own nvidia-container-runtime finds this program first on the PATH; the SIMULATED one adds the namespace itself.
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
