"""A helm release in a cluster: read, compared, and changed by helm where helm runs.

Helm is the transaction here: it waits, goes back where it fails, and what it leaves behind when it is cut off the next
run recovers (gpunode/helm/change.py).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from pyinfra import host
from pyinfra.api import FunctionCommand, Host, QuoteString, State, StringCommand

from gpunode.device_plugin.rollout import Rollout
from gpunode.helm.change import ReleaseChange, change
from gpunode.helm.commands import Command, Commands
from gpunode.helm.program import HelmError, helm_of, version_command
from gpunode.helm.session import Output, Run, Session
from gpunode.reading import ParseError
from gpunode.settings.proxy import ProxySettings
from operations.failure import OperationRefused, node_operation

LOCAL = "@local"


@node_operation
def release(rollout: Rollout, proxy: ProxySettings) -> Iterator[Any]:
    """Keep a release at its chart and values; a release that is as asked gets no new revision.

    Call it for one host: the one that `kubernetes.run_on` names, or any where that is this machine.

    + rollout: what the cluster is to get
    + proxy: for charts and registries; its no_proxy must name the API server
    """
    try:
        session = _session(rollout, proxy)
        version, apis = session.cluster()
        wanted = session.wanted(rollout.values, version, apis)
        found = change(wanted, session.reading(), datetime.now(UTC), rollout.kubernetes.timeout)
    except (HelmError, ParseError) as error:
        raise OperationRefused(f"{error}\nnothing was changed in the cluster") from None
    name = f"release {rollout.plugin.namespace}/{rollout.plugin.release}"
    if not found.steps:
        if found.refused is not None:
            raise OperationRefused(f"{name}: {found.refused}")
        host.noop(f"{name}: {wanted.chart} {wanted.version} as asked")
        return
    for step in found.steps:
        host.log(f"{name}: {step.act}{f' to revision {step.revision}' if step.revision else ''}: {step.reason}")
    yield FunctionCommand(_carry_out, [session, found, rollout], {})


def _carry_out(state: State, host: Host, session: Session, found: ReleaseChange, rollout: Rollout) -> bool:
    try:
        session.carry_out(found, rollout.values)
    except HelmError as error:
        for line in str(error).splitlines():
            host.log_styled(line, fg="red")
        return False
    return True


def _session(rollout: Rollout, proxy: ProxySettings) -> Session:
    runs: Run = _here if rollout.kubernetes.run_on == LOCAL else _there
    printed = runs(Command(version_command(rollout.kubernetes.helm), proxy.environment, 60))
    if printed.status != 0:
        raise HelmError(
            f"{rollout.kubernetes.helm} does not run on {rollout.kubernetes.run_on}: install helm there, or name its "
            "path by kubernetes.helm"
        )
    helm = helm_of(rollout.kubernetes.helm, printed.out)
    return Session(Commands(helm, rollout.kubernetes, rollout.plugin, proxy), runs)


def _here(command: Command) -> Output:
    """Run a command on this machine."""
    environment = {name: value for name, value in os.environ.items() if name not in command.unset}
    try:
        done = subprocess.run(
            command.words, input=command.stdin or "", capture_output=True, text=True, timeout=command.seconds,
            check=False, env={**environment, **command.environment},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Output(124, "", f"Error: timed out after {command.seconds} s")
    except OSError as error:
        return Output(127, "", f"Error: {command.words[0]}: {error.strerror}")
    return Output(done.returncode, done.stdout, done.stderr)


def _there(command: Command) -> Output:
    """Run a command on the current host."""
    unset = (QuoteString(f"--unset={name}") for name in command.unset)
    environment = (QuoteString(f"{name}={value}") for name, value in command.environment.items())
    words = (QuoteString(word) for word in command.words)
    text = StringCommand("env", *unset, *environment, *words)
    well, output = host.run_shell_command(text, _stdin=[command.stdin or ""], _timeout=command.seconds)
    return Output(0 if well else 1, output.stdout, output.stderr)
