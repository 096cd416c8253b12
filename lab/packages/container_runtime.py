#!/usr/bin/python3
"""SIMULATED nvidia-container-runtime: the real runc, with the simulated GPUs for a container that asks for them.

It is /usr/bin/nvidia-container-runtime of nodes without NVIDIA's own toolkit (`gpunode lab up --nvidia-toolkit`), which
reads no config.toml and knows no CDI. Before `create` or `run` it reads the bundle's config.json. If the process asks
for GPUs by NVIDIA_VISIBLE_DEVICES, it gets the /dev/nvidia* nodes, libcuda, and a script in place of nvidia-smi.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def log(text: str) -> None:
    """Add a line to the lab's log, if it can be written."""
    try:
        with Path("/var/log/gpunode-lab.log").open("a") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} SIMULATED nvidia-container-runtime: {text}\n")
    except OSError:
        pass


def tell_caller(arguments: list[str], reason: str) -> None:
    """Write the reason where runc would: into the file after --log, from which containerd takes its error message."""
    if "--log" not in arguments[:-1]:
        return
    entry = {"level": "error", "msg": reason, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    try:
        with Path(arguments[arguments.index("--log") + 1]).open("a") as file:
            file.write(json.dumps(entry) + "\n")
    except OSError:
        pass


def bundle_of(arguments: list[str]) -> Path | None:
    """Return the bundle folder of a `create` or `run`, or None for every other command."""
    if not {"create", "run"} & set(arguments):
        return None
    for position, argument in enumerate(arguments):
        if argument in ("--bundle", "-b") and position + 1 < len(arguments):
            return Path(arguments[position + 1])
        if argument.startswith(("--bundle=", "-b=")):
            return Path(argument.partition("=")[2])
    return Path()


def visible_devices(config: dict[str, Any]) -> str | None:
    """Return which GPUs a container asks for by NVIDIA_VISIBLE_DEVICES, or None."""
    desired = None
    for setting in (config.get("process") or {}).get("env") or []:
        name, _, value = setting.partition("=")
        if name == "NVIDIA_VISIBLE_DEVICES":
            desired = value
    return None if desired in (None, "", "void", "none") else desired


def uuids(root: Path = Path("/")) -> dict[str, str]:
    """Return the GPUs' minor numbers by UUID, as the loaded driver lists them."""
    found = {}
    for file in (root / "proc/driver/nvidia/gpus").glob("*/information"):
        text = file.read_text()
        name, minor = re.search(r"GPU UUID:\s*(\S+)", text), re.search(r"Device Minor:\s*(\d+)", text)
        if name and minor:
            found[name[1]] = minor[1]
    return found


def device_paths(wanted: str, root: Path = Path("/")) -> list[Path]:
    """Return the device nodes to hand in.

    Raises ValueError naming a GPU that is asked for and not there, or the missing driver.
    """
    folder = root / "dev"
    gpus = {path.name.removeprefix("nvidia"): path for path in sorted(folder.glob("nvidia[0-9]*"))}
    if not (folder / "nvidiactl").exists():
        raise ValueError("nvidia-container-cli: initialization error: nvml error: driver not loaded")
    control = [folder / name for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools") if (folder / name).exists()]
    if wanted == "all":
        return [*gpus.values(), *control]
    by_uuid = uuids(root)
    chosen = []
    for item in wanted.split(","):
        name = by_uuid.get(item.strip(), item.strip())
        if name not in gpus:
            raise ValueError(f"nvidia-container-cli: device error: {item.strip()}: unknown device")
        chosen.append(gpus[name])
    return [*chosen, *control]


def add_devices(config: dict[str, Any], paths: list[Path]) -> None:
    """Add device nodes, and the right to use them, to a container's configuration."""
    linux = config.setdefault("linux", {})
    devices = linux["devices"] = list(linux.get("devices") or [])
    resources = linux.setdefault("resources", {})
    rules = resources["devices"] = list(resources.get("devices") or [])
    present = {device["path"] for device in devices}
    for path in paths:
        status = path.stat()
        if not stat.S_ISCHR(status.st_mode) or str(path) in present:
            continue
        major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
        devices.append(
            {"path": str(path), "type": "c", "major": major, "minor": minor, "fileMode": 0o666, "uid": 0, "gid": 0}
        )
        rules.append({"allow": True, "type": "c", "major": major, "minor": minor, "access": "rwm"})


_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_SAYS = """#!/bin/sh
# SIMULATED: what the node's nvidia-smi listed of these GPUs when the container was made.
printf '%s\n' {listed}
exit {status}
"""


def listed(text: str, wanted: str) -> str:
    """Return of what `nvidia-smi -L` prints the GPUs that are asked for, with their MIG devices."""
    names, kept, is_asked = wanted.split(","), [], True
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+): .*\(UUID: (\S+)\)", line):
            is_asked = wanted == "all" or bool({match[1], match[2]} & set(names))
        if is_asked:
            kept.append(line)
    return "\n".join(kept)


def add_driver(config: dict[str, Any], bundle: Path, wanted: str, root: Path = Path("/")) -> None:
    """Mount the driver's nvidia-smi and libcuda.

    In place of the program a script is mounted that says what the node's own one lists: a container has no Python.
    """
    mounts = config["mounts"] = list(config.get("mounts") or [])
    program = root / "usr/bin/nvidia-smi"
    if program.exists():
        try:
            said = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=20)
            text, status = said.stdout, said.returncode
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ValueError(f"nvidia-container-cli: initialization error: {error}") from error
        script = bundle / "gpunode-lab-nvidia-smi"
        script.write_text(_SAYS.format(listed=shlex.quote(listed(text, wanted)), status=status))
        script.chmod(0o755)
        mounts.append(_mount(script, "/usr/bin/nvidia-smi"))
    for folder in (_LIBRARIES, "usr/lib64"):
        for library in (root / folder).glob("libcuda.so.[0-9]*.*"):
            mounts.append(_mount(library, f"/{_LIBRARIES}/{library.name}"))
            # What the hook's ldconfig makes of it.
            link = bundle / str((config.get("root") or {}).get("path") or "rootfs") / _LIBRARIES / "libcuda.so.1"
            if not link.is_symlink():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(library.name)


def _mount(source: Path, place: str) -> dict[str, Any]:
    return {"source": str(source), "destination": place, "type": "bind", "options": ["ro", "nosuid", "nodev", "bind"]}


def add_cgroup_namespace(config: dict[str, Any]) -> None:
    """Let a container see its own cgroups alone: a node that is itself a container has none of the machine's."""
    namespaces = config.setdefault("linux", {}).setdefault("namespaces", [])
    if not any(namespace.get("type") == "cgroup" for namespace in namespaces):
        namespaces.append({"type": "cgroup"})


def main(arguments: list[str]) -> int:
    """Prepare the bundle where GPUs are asked for, then become runc; return 1 if that cannot be."""
    bundle = bundle_of(arguments)
    if bundle is not None:
        file = bundle / "config.json"
        try:
            config = json.loads(file.read_text())
            add_cgroup_namespace(config)
            wanted = visible_devices(config)
            if wanted is not None:
                add_devices(config, device_paths(wanted))
                add_driver(config, bundle, wanted)
            file.write_text(json.dumps(config))
        except (OSError, ValueError) as error:
            log(f"refused: {error}")
            tell_caller(arguments, str(error))
            print(f"nvidia-container-runtime: {error}", file=sys.stderr)
            return 1
        log(f"{bundle}: NVIDIA_VISIBLE_DEVICES={wanted}")
    runc = shutil.which("runc", path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin")
    if runc is None:
        print("nvidia-container-runtime: no runc on this node: install runc or containerd.io", file=sys.stderr)
        return 1
    return os.execv(runc, [runc, *arguments])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
