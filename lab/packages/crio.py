#!/usr/bin/python3
"""SIMULATED crio: reads files as CRI-O does, judges and prints what they come to, and tells by what it runs.

Stands in a node as /usr/bin/crio. Real are the order and the merging of the files, by CRI-O's sources; it starts no
container and has no socket: `status config` is the file that the daemon wrote when it started.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

VERSION = "1.31.0"
STATE = Path(os.environ.get("CRIO_STATE", "/run/crio/simulated.toml"))
LOG = Path(os.environ.get("CRIO_LOG", "/var/log/gpunode-lab.log"))
Table = dict[str, Any]


class Refused(Exception):
    """Say why CRI-O does not take a configuration."""


def log(text: str) -> None:
    """Add a line to the lab's log, if it can be written."""
    try:
        with LOG.open("a") as file:
            file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} SIMULATED crio: {text}\n")
    except OSError:
        pass


def defaults() -> Table:
    """Return what CRI-O has without files, as far as it is simulated."""
    runtimes = {"crun": {"runtime_path": "", "runtime_type": "oci"}}
    return {"runtime": {"default_runtime": "crun", "cgroup_manager": "systemd", "runtimes": runtimes}}


def merge(into: Table, new: Table, path: tuple[str, ...] = ()) -> None:
    """Merge tables key by key; a runtime's table takes the whole place of the former one."""
    for key, value in new.items():
        inner = into.get(key)
        if isinstance(value, dict) and isinstance(inner, dict) and path != ("runtime", "runtimes"):
            merge(inner, value, (*path, key))
        else:
            into[key] = value


def walk(folder: Path) -> list[Path]:
    """Return every file below a folder, whatever its name is, in the order of names within each folder."""
    found: list[Path] = []
    for path in sorted(folder.iterdir(), key=lambda each: each.name) if folder.is_dir() else ():
        found += walk(path) if path.is_dir() and not path.is_symlink() else [path]
    return found


def read(root: str, folder: str, named: bool) -> Table:
    """Return what the files come to; raise Refused.

    named: whether somebody named the root file, which has to be there then
    """
    found = defaults()
    files = [Path(root)] if root and (named or Path(root).exists()) else []
    for path in (*files, *walk(Path(folder))):
        try:
            merge(found, tomllib.loads(path.read_text()).get("crio", {}))
        except (OSError, ValueError) as error:
            raise Refused(f"update config: unable to decode configuration {path}: {error}") from error
    judge(found["runtime"])
    return found


def judge(runtime: Table) -> None:
    """Raise Refused for a default runtime that is not there; leave out others whose program is missing."""
    name, runtimes = runtime["default_runtime"], runtime["runtimes"]
    if name not in runtimes:
        raise Refused(
            f'default_runtime set to "{name}", but no runtime entry table [crio.runtime.runtimes.{name}] was found'
        )
    for each, row in list(runtimes.items()):
        path = row.get("runtime_path")
        if path and not Path(path).exists():
            if each == name:
                raise Refused(f"invalid runtime_path for runtime '{each}': stat {path}: no such file or directory")
            print(f"SIMULATED crio: runtime handler {each} is being ignored", file=sys.stderr)
            del runtimes[each]
    manager, cgroup = runtime["cgroup_manager"], runtime.get("conmon_cgroup", "")
    if manager not in ("systemd", "cgroupfs") or (manager == "cgroupfs" and cgroup not in ("", "pod")):
        raise Refused(f"cgroup manager {manager}: conmon cgroup should be 'pod' or empty, but got: '{cgroup}'")


def text(table: Table, path: str = "crio") -> str:
    """Return tables as TOML."""
    lines = [f"[{path}]"]
    lines += [f"{key} = {value_text(value)}" for key, value in table.items() if not isinstance(value, dict)]
    inner = [text(value, f"{path}.{key}") for key, value in table.items() if isinstance(value, dict)]
    return "\n".join([*lines, "", *inner])


def value_text(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def commented(found: Table) -> str:
    """Return what `crio config` prints: what is a default stands behind a `# `."""
    lines = text(found).splitlines()
    usual = set(text(defaults()).splitlines()) - {"[crio]", "[crio.runtime]"}
    example = '# [crio.runtime.runtimes.runtime-handler]\n# runtime_path = "/path/to/the/executable"\n'
    return example + "\n".join(f"# {line}" if line in usual and line else line for line in lines) + "\n"


def serve(found: Table) -> int:
    """Be the daemon: note by what it runs, tell systemd, and wait for the end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    STATE.parent.mkdir(parents=True, exist_ok=True)
    STATE.write_text(text(found))
    log(f"started with default_runtime {found['runtime']['default_runtime']}")
    if address := os.environ.get("NOTIFY_SOCKET"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.sendto(b"READY=1", "\0" + address[1:] if address.startswith("@") else address)
    signal.signal(signal.SIGHUP, lambda *_: log("SIGHUP: reads nothing anew"))
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    STATE.unlink(missing_ok=True)
    log("stopped")
    return 0


def main(arguments: list[str]) -> int:
    """Do what is asked; return 1 where CRI-O would refuse."""
    options = {"--config": "/etc/crio/crio.conf", "--config-dir": "/etc/crio/crio.conf.d"}
    named, words = False, []
    rest = iter(arguments)
    for word in rest:
        key, equals, value = word.partition("=")
        key = {"-c": "--config", "-d": "--config-dir"}.get(key, key)
        if key in options:
            options[key] = value if equals else next(rest, "")
            named = named or key == "--config"
        else:
            words.append(word)
    if words == ["--version"]:
        print(f"crio version {VERSION}\nVersion:        {VERSION}\nGitCommit:      SIMULATED by gpunode's lab")
        return 0
    try:
        found = read(options["--config"], options["--config-dir"], named)
        if words == ["config"]:
            print(commented(found), end="")
        elif words == ["status", "config"]:
            print(STATE.read_text(), end="")
        elif not words:
            return serve(found)
        else:
            raise Refused(f"SIMULATED, does not know {' '.join(words)!r}")
    except (Refused, OSError) as error:
        log(f"refused: {error}")
        print(f'level=fatal msg="{error}"', file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
