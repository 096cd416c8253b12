"""Nodes that stop answering, or on which a command hangs, fail alone: a run on servers that hang."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpunode.fleet.access import errors
from gpunode.fleet.reports.run_end import host_end_from
from tests.support import warm
from tests.support.ssh_server import server

pytestmark = pytest.mark.pure
SECONDS = 0.4
CONFIG = f"""
from functools import partial
from gpunode.fleet import hooks
from gpunode.fleet.access import connecting, connection
connecting.keep_alive = partial(connecting.keep_alive, seconds={SECONDS})
connection._RUN_SECONDS = {10 * SECONDS}
hooks.install()
"""
DEPLOY = f"""
from pyinfra import host
from pyinfra.operations import server
from gpunode.fleet.run_end import takes_part
takes_part(host)
command, more = {{
    "silent": ("kill -STOP $SERVER; sleep 1", {{}}),
    # More than all buffers on the way hold: the run waits to write.
    "full": ("kill -STOP $SERVER; sleep 1", {{"_stdin": ["x" * 4_000_000]}}),
    "hung": ("sleep 30", {{}}),
    "limited": ("sleep 30", {{"_timeout": 1}}),
    # Without a word, for longer than three keepalives take.
    "slow": ("sleep {5 * SECONDS}", {{}}),
}}[host.name]
server.shell(name="first", commands=["true"])
server.shell(name="second", commands=[command], **more)
server.shell(name="third", commands=["true"])
"""


def test_hosts_that_hang_fail_alone_each_with_its_cause(tmp_path: Path) -> None:
    for name, text in (("config.py", CONFIG), ("deploy.py", DEPLOY)):
        (tmp_path / name).write_text(text)
    names = ("silent", "full", "hung", "limited", "slow")
    with server() as data:
        (tmp_path / "fleet.py").write_text(f"gpus = {[(name, data) for name in names]!r}\n")
        environment = {**os.environ, "GPUNODE_EVENTS": str(tmp_path / "events")}
        done = warm.run("pyinfra", "-y", "fleet.py", "deploy.py", cwd=tmp_path, env=environment, timeout=50)
    assert done.returncode == 1, done.stderr
    told = [json.loads(line) for line in (tmp_path / "events").read_text().splitlines()]
    assert sorted(each["host"] for each in told if each["kind"] == "failed") == ["full", "hung", "limited", "silent"]
    assert [each["host"] for each in told if each["kind"] == "done"].count("slow") == 3
    (ended,) = ([host_end_from(each) for each in event["hosts"]] for event in told if event["kind"] == "ended")
    codes = {end.name: errors.unreached(end.unreached).code for end in ended if end.unreached}
    codes |= {end.name: end.failure.code for end in ended if end.failure and not end.unreached}
    assert codes == {"silent": errors.SILENT.code, "full": errors.SILENT.code, "hung": errors.HUNG.code,
                     "limited": "run.operation-failed"}  # fmt: skip
