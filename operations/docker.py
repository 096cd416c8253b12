"""Change docker's daemon.json as one transaction: proven by the daemon's own answer, restored if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpunode.base.disruption import Drain
from gpunode.base.shell_file import script_file
from gpunode.components.runtimes.docker.decide import decide_configuration, judge_of
from gpunode.components.runtimes.judge import Desired
from gpunode.facts.docker import Docker
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.runtime import Program, configured, packages_of, transaction
from gpunode.operations.transaction import settled

PROGRAM = Program("docker", "`docker info`", script_file("docker"))


@node_operation
def configuration(desired: Desired, drain: Drain | None = None) -> Iterator[Any]:
    """Configure docker's runtimes; reload the daemon where that is enough, else restart it.

    A restart that `desired.allowed` forbids while containers run is reported as pending.

    + desired: by `desired_of(settings)` of gpunode/components/runtimes/docker/decide.py
    """
    yield from settled(transaction(PROGRAM))
    state = read_fact(Docker, "docker's state")
    yield from configured(
        PROGRAM,
        judge_of(desired, state),
        lambda: decide_configuration(desired, state),
        {state.config_path: state.config_text},
        drain=drain,
        config=state.config_path,
        binary=state.binary or "dockerd",
    )


def packages_now(desired: Desired) -> tuple[str | None, tuple[str, ...]]:
    """Return why docker's packages are not changed in this run, None where they are; and its missing programs."""
    return packages_of(judge_of(desired, read_fact(Docker, "docker's state")), "/usr/bin/dockerd", "/usr/sbin/dockerd")
