"""Texts that would take all memory or end a process, read under a limit of memory by the code that reads such texts.

`python -m tests.support.hostile_text` prints a line of JSON for each case: its name, and what came of it.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.readings import encoded

# More than an ordinary reading takes, and less than any of these texts took.
_BYTES, _SECONDS = 1500 << 20, 60
NESTED = "[" * 100_000
DOTTED = ".".join("a" * 150_000) + " = 1\n"


def aliases() -> str:
    """Return YAML of 600 bytes that stands for 10^9 values."""
    lines = ["a: &a [x,x,x,x,x,x,x,x,x,x]"]
    lines += [
        f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    return "\n".join([*lines, "apiVersion: v1", "kind: A", "metadata: {name: a}", "systemReserved: {memory: *i}"])


def _two_nodes(fact: str, good: list[str], hostile: list[str]) -> dict[str, Any]:
    """Return node -> its reading, or why there is none, of two nodes that gpunode reads at once."""
    from gpunode.base.probe_output import END
    from gpunode.facts.node import PARTS
    from gpunode.fleet import nodes

    hosts = [
        (
            f"@fake/{name}",
            {"fake_delay": 0, "fake_delay_jitter": 0, "fake_responses": {"": {"stdout": "\n".join([*lines, END])}}},
        )
        for name, lines in (("good", good), ("hostile", hostile))
    ]
    with tempfile.TemporaryDirectory() as folder:
        inventory = Path(folder) / "inventory.py"
        inventory.write_text(f"gpu_nodes = {hosts!r}\n")
        answers = nodes.read(inventory, PARTS[fact])
    return {each.name.partition("/")[2]: each.reason or type(each.reading).__name__ for each in answers}


def _kubelet(text: str) -> dict[str, Any]:
    def lines(said: str) -> list[str]:
        return ["kubelet=Kubernetes v1.31.4", "argument=--config=/k.yaml", f"file=/k.yaml {encoded(said)}"]

    return _two_nodes("kubelet", lines("cgroupDriver: systemd\n"), lines(text))


def _containerd() -> dict[str, Any]:
    return _two_nodes("containerd", [f"merged={encoded('version = 2')}"], [f"merged={encoded(DOTTED)}"])


def _crio() -> dict[str, Any]:
    return _two_nodes("crio", [], [f"running={encoded(DOTTED)}"])


def _podman() -> dict[str, Any]:
    return _two_nodes("podman", [], [f"file=/etc/containers/containers.conf {encoded(DOTTED)}"])


def _raised(read: Callable[[], Any]) -> str:
    try:
        read()
    except Exception as error:
        return type(error).__name__
    return "read"


def _toolkit() -> str:
    from gpunode.base.toml_edit import plain

    return _raised(lambda: plain(DOTTED))


def _dnf5() -> str:
    from gpunode.packages.families import dnf5

    return _raised(lambda: dnf5.locked(DOTTED, {"nvidia-open": "1"}))


def _helm(text: str) -> str:
    from gpunode.kubernetes.helm.manifest import objects

    return _raised(lambda: objects(text, "default"))


def _history() -> int:
    from click.testing import CliRunner

    from gpunode.cli import gpunode

    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        with report.open("wb") as file:
            file.truncate(4 << 30)
        history = {"GPUNODE_HISTORY": f"{folder}/history.db"}
        return CliRunner().invoke(gpunode, ["history", "import", str(report)], env=history).exit_code


CASES: dict[str, Callable[[], Any]] = {
    "kubelet: nested": lambda: _kubelet(NESTED),
    "kubelet: aliases": lambda: _kubelet(aliases()),
    "containerd: dots": _containerd,
    "crio: dots": _crio,
    "podman: dots": _podman,
    "toolkit: dots": _toolkit,
    "dnf5: dots": _dnf5,
    "helm: nested": lambda: _helm(NESTED),
    "helm: aliases": lambda: _helm(aliases()),
    "history: large": _history,
}


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_BYTES, _BYTES))
    signal.alarm(_SECONDS)
    for name in sys.argv[1:] or CASES:
        print(json.dumps([name, CASES[name]()]), flush=True)
