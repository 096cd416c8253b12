"""An error on one host is reported with its cause, in preparation and in execution, and the others go on.

pyinfra itself runs, on its @fake hosts: no node, no network.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import warm

DEPLOY = """
from collections.abc import Iterator
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

import gpunode.deploys.component
from gpunode.deploys.component import component
from gpunode.facts.base import NodeFact, probe_command
from gpunode.operations.failure import node_operation, read_fact

HOW = {how!r}

# Preflight has its own tests, and a @fake host is no GPU node.
gpunode.deploys.component.accepted = lambda: True


class Broken(NodeFact):
    parse = staticmethod(lambda lines: 1 / 0)

    def command(self):
        return probe_command("true")


def breaks(when: str) -> bool:
    return host.name == "@fake/bad" and HOW == when


@node_operation
def step() -> Iterator[Any]:
    executing = host.state.is_executing
    if breaks("operation raises in preparation") or (executing and breaks("operation raises in execution")):
        raise KeyError("broken on purpose")
    if breaks("fact cannot be parsed"):
        read_fact(Broken, "the broken thing")
    if breaks("fact gets no answer in execution") and executing:
        read_fact(Broken, "the silent thing")
    yield StringCommand("touch", "/acted")
    if breaks("operation raises after a command") and executing:
        raise OSError("broken after a command")


@node_operation
def later() -> Iterator[Any]:
    yield StringCommand("touch", "/later")


@component("Body")
def body() -> None:
    if breaks("deploy raises"):
        raise LookupError("broken deploy")
    step(name="Step")
    later(name="Later")


body()
"""

# How a host fails, and what is said of it.
FAILURES = {
    "operation raises in preparation": "'broken on purpose'",
    "operation raises in execution": "'broken on purpose'",
    "operation raises after a command": "broken after a command",
    "fact cannot be parsed": "the broken thing is unknown",
    "fact gets no answer in execution": "the silent thing is unknown",
    "deploy raises": "broken deploy",
}


def converge(folder: Path, how: str) -> subprocess.CompletedProcess[str]:
    (folder / "deploy.py").write_text(DEPLOY.replace("{how!r}", repr(how)))
    answers = {"gpunode:end": {"stdout": "x=1\ngpunode:end"}} if how == "fact cannot be parsed" else {}
    hosts = [("@fake/good", {}), ("@fake/bad", {"fake_responses": answers}), ("@fake/other", {})]
    (folder / "inventory.py").write_text(f"hosts = {hosts!r}\n")
    (folder / "config.py").write_text("")
    files = [str(folder / name) for name in ("config.py", "inventory.py", "deploy.py")]
    return warm.run("pyinfra", "-y", "--json", "--config", *files, env={**os.environ, "NO_COLOR": "1"})


@pytest.mark.pure
@pytest.mark.parametrize("how", FAILURES)
def test_the_host_is_reported_with_its_cause_and_the_others_go_on(how: str, tmp_path: Path) -> None:
    run = converge(tmp_path, how)
    printed = run.stdout + run.stderr
    assert "Traceback" not in printed and "internal exception" not in printed, printed
    results = json.loads(run.stdout)["results"]
    assert FAILURES[how] in run.stderr, printed
    assert run.returncode == 1
    assert results["failed_hosts"] == ["@fake/bad"]
    operations = {row["name"].split(" | ")[-1]: row for row in results["operations"]}
    assert (
        sorted(operations["Step"]["success"]) == sorted(operations["Later"]["success"]) == ["@fake/good", "@fake/other"]
    )
