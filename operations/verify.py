"""The verdict at the end of a run, by facts read again, and the test of a node by containers."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from time import sleep
from typing import Any

from pyinfra import host
from pyinfra.context import ctx_host

from gpunode.base.comparison import RUN
from gpunode.base.findings import PENDING, Finding, totals, with_since
from gpunode.base.run_context import Slot
from gpunode.components.smoke import InContainer
from gpunode.components.smoke import Smoke as Reading
from gpunode.facts.node import Node
from gpunode.facts.packages import OutdatedServices
from gpunode.facts.toolkit import Smoke
from gpunode.fleet import hooks, run_end, shared_readings
from gpunode.node import Node as State
from gpunode.node.verdict import judge
from gpunode.operations.control_plane import unanswered
from gpunode.operations.failure import OperationRefused, fail, node_operation, read_fact
from gpunode.operations.own_files import kept
from gpunode.operations.phase import is_executing
from gpunode.packages import installed_packages
from gpunode.settings import Settings
from gpunode.system.service import seconds_until_steady


@node_operation
def containers(reload: bool) -> Iterator[Any]:
    """Start containers on the node, fail where they do not see its GPUs as they should, and remove them again.

    A dry run starts none.

    + reload: whether systemd may be reloaded while other containers run: those that were started without links in
      /dev/char lose their GPUs by it
    """
    if not is_executing():
        host.noop("containers are started when the run is executed")
        return
    reading = read_fact(Smoke, "what containers see", reload=reload)
    if reading.problems:
        raise OperationRefused("\n".join(f"smoke test: {problem}" for problem in reading.problems))
    if reading.reloaded is None:
        host.log("smoke test: other containers run and disruption.allow is nothing: systemd was not reloaded")
    for note in reading.notes:
        host.log(f"smoke test: {note}")
    host.noop(
        f"a container by {reading.by} sees {', '.join(reading.devices)}{_of_driver(reading)}; one that does not ask "
        "sees none"
    )
    yield from ()


def _of_driver(reading: Reading) -> str:
    """Return what the container that asks had of the driver, for people."""
    seen = InContainer() if reading.asking is None else reading.asking.driver
    devices = [f"MIG {profile}" for gpu in seen.gpus for profile, _ in gpu.mig]
    listed = [f"{len(seen.gpus)} GPUs", *devices] if seen.gpus else []
    lists = [f"nvidia-smi lists {', '.join(listed)}"] if listed else []
    return "".join(f"; {each} there" for each in (*lists, *(f"{file} is" for file in seen.linked[:1])))


# What a run left as it is on a host, for the record of the run; None before its verdict.
_left: Slot[tuple[Finding, ...] | None] = Slot(lambda: None)


@node_operation
def verified(settings: Settings) -> Iterator[Any]:
    """Compare what was asked with what is there; fail on a difference, report what is pending.

    A container runtime that was started in this run is looked at once more when it has had the time to end.
    """
    # Before it is carried out, a run is judged as drift judges the node: by the record of the run before.
    files = kept() if is_executing() else None
    node = read_fact(Node, "the node's state")
    if is_executing() and _waited(settings, node):
        node = read_fact(Node, "the node's state")
    no_cluster = unanswered(settings) is not None
    judged = with_since(judge(settings, node, files, no_cluster=no_cluster), dict(node.applied.waiting))
    findings = (*judged, *_outdated())
    bad = [item for item in findings if item.is_negative and item.finding_class not in PENDING]
    pending = [item for item in findings if item.finding_class in PENDING]
    if is_executing() and (current := ctx_host.get()) is not None:
        _left.set(current, tuple(pending))
        run_end.judged(current, findings)
    for item in pending:
        if item.remedy == RUN and not is_executing():
            # The run that is being shown does it.
            continue
        since = f" It has waited since {item.since}." if item.since else ""
        sides = f"{item.what} is {item.actual}, {item.desired} is to come"
        host.log(f"{item.finding_class}: {sides}.{since} Remedy: {item.remedy}")
    for item in findings:
        if item.is_caution:
            host.log(f"caution: {item.component}: {item.what}: {item.actual} ({item.cause}). Remedy: {item.remedy}")
    if bad:
        yield fail("\n".join(map(str, bad)))
        return
    host.noop(totals(findings))


def _outdated() -> tuple[Finding, ...]:
    """Return a caution about services that use replaced files, in a run that changed anything."""
    seconds = hooks.seconds_of_changes(host.state) if is_executing() else 0
    if not seconds:
        return ()
    return installed_packages.judge(host.get_fact(OutdatedServices, minutes=ceil(seconds / 60) + 1))


def left() -> tuple[Finding, ...] | None:
    """Return what this run's verdict on the host found to wait; None where there was no verdict yet."""
    current = ctx_host.get()
    return None if current is None else _left.of(current)


def _waited(settings: Settings, node: State) -> bool:
    """Wait until the daemons that were started in this run are old enough to tell; say whether they were."""
    services = {
        name: reading.service
        for name, desired, reading in (
            ("containerd", settings.containerd.enabled, node.containerd),
            ("docker", settings.docker.enabled, node.docker),
            ("crio", settings.crio.enabled, node.crio),
            ("dcgm-exporter", settings.dcgm.exporter.enabled, node.dcgm.exporter),
        )
        if desired and reading is not None
    }
    since = hooks.seconds_of_changes(host.state)
    wait = seconds_until_steady(services.values(), since)
    if not wait:
        return False
    names = " and ".join(name for name, service in services.items() if seconds_until_steady([service], since))
    host.log(f"{names} started a moment ago: looking again in {wait:.0f} s")
    sleep(wait)
    shared_readings.read_anew(ctx_host.get())
    return True
