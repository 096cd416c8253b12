"""Read every node of an inventory in one round trip each, and change nothing.

This module drives pyinfra as a library, the way its own command does, so that a node's trouble stays on that node.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

# Before anything opens a socket.
from gpunode.base import fast_import  # noqa: F401  # isort: skip
from gevent import Timeout  # type: ignore[import-untyped]
from pyinfra.api import Config, Host, State
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.facts import get_fact
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import StateStage
from pyinfra.context import ctx_config, ctx_host, ctx_inventory, ctx_state

from gpunode.base.errors import in_words
from gpunode.base.reading import Reading, Unknown
from gpunode.base.verdicts import Refusal
from gpunode.facts.base import NodeFact
from gpunode.fleet import hooks
from gpunode.fleet.access import connecting, errors
from gpunode.fleet.engine import local
from gpunode.fleet.engine.parts import expected, refuse_others
from gpunode.fleet.hooks import hosts_within_open_files
from gpunode.fleet.inventory import checked, fingerprints, limited, load_inventory
from gpunode.settings import Settings

# What a fact makes of a node's answer.
T = TypeVar("T", bound=Reading)


@dataclass(frozen=True)
class Answer(Generic[T]):
    """Hold one host's settings and what it answered; `reason` says why it was not reached, or not understood.

    `reading` is None where the host was not reached, and Unknown where its answer cannot be used. `refusal`: why the
    cluster forbids a run on it, and `no_cluster`: its cluster does not answer (gpunode/fleet/cluster.py). `lasting`: no
    later attempt reaches it, for what is wrong is on this side.
    """

    name: str
    settings: Settings
    reading: T | Unknown | None
    reason: str | None
    refusal: Refusal | None = None
    lasting: bool = False
    no_cluster: bool = False


# Seconds within which a node answers everything that is asked of it. Each command of a probe ends sooner; this is for a
# node whose shell hangs.
ANSWER_SECONDS = 120.0
# Hosts to which one process is connected, or connects, at the same time: each takes an open file and memory, and a host
# that is off its place for as long as pyinfra tries to connect.
AT_ONCE = 256
# Bytes that a process may take which reads nodes: 10,000 hosts took 210 KiB each (docs/scale.md).
_BYTES, _BYTES_OF_A_HOST = 2 << 30, 1 << 20

# Told the number of hosts, and how many of them have answered or turned out not to, each time one more has.
Watch = Callable[[int, int], None]


def unwatched(hosts: int, done: int) -> None:
    """Let nobody watch."""


def read(
    inventory_path: Path,
    fact: type[NodeFact[T]],
    watch: Watch = unwatched,
    *,
    seconds: float = ANSWER_SECONDS,
    processes: int | None = None,
    only: Collection[str] | None = None,
    limit: Collection[str] = (),
) -> tuple[Answer[T], ...]:
    """Return an answer per host of the inventory, each a reading of `fact`.

    seconds: a host that has not answered by then counts as not reached
    processes: how many read the hosts; None: by their number, and the processors that there are
    only: leave out all other hosts; these are read by this process alone
    limit: leave out the hosts that no pattern of these names (gpunode.fleet.inventory.limited)

    Raises SettingsError before any connection, InventoryError where the inventory cannot be read, LimitError where a
    pattern of `limit` names no host.
    """
    inventory = load_inventory(inventory_path)
    part, (data, settings) = expected(), checked(inventory)
    names = [name for name in limited(inventory, limit) if only is None or name in only]
    if part is not None:
        refuse_others(part, fingerprints({name: settings[name] for name in names}, data))
        processes = part.processes or processes
    done = 0

    def step() -> None:
        nonlocal done
        done += 1
        watch(len(names), done)

    watch(len(names), 0)
    many = 1 if only is not None else processes or local.count(len(names), len(os.sched_getaffinity(0)))
    if many > 1:
        rows = local.read(inventory_path, fact, names, min(many, len(names)), seconds, step)
    else:
        rows = _rows(inventory, fact, names, seconds, step)
    found = {
        name: Answer(name, settings[name], reading, reason, lasting=lasting) for name, reading, reason, lasting in rows
    }
    return tuple(found[name] for name in names)


def read_here(
    inventory_path: Path, fact: type[NodeFact[Any]], names: list[str], seconds: float, step: Callable[[], None]
) -> list[local.Row]:
    """Return a row for each of the named hosts, read by this process; a row says so where its inventory lacks one."""
    inventory = load_inventory(inventory_path)
    hosts = {host.name for host in inventory}
    actual = [name for name in names if name in hosts]
    rows = _rows(inventory, fact, actual, seconds, step) if actual else []
    for name in names:
        if name not in hosts:
            rows.append((name, None, "the inventory had no such host when it was read once more", False))
            step()
    return rows


def _rows(
    inventory: Inventory, fact: type[NodeFact[Any]], names: list[str], seconds: float, step: Callable[[], None]
) -> list[local.Row]:
    with _begun(inventory, names, max(1, min(len(names), AT_ONCE))) as state, _within_memory(len(names)):
        state.set_stage(StateStage.Prepare)
        return _answers(state, fact, seconds, step)


@contextlib.contextmanager
def _within_memory(hosts: int) -> Iterator[None]:
    """Have an allocation fail, and with it one host, before this process has taken the machine's memory.

    By RLIMIT_DATA: the commands of proxies and of @local hosts inherit the limit, and by RLIMIT_AS the addresses that
    Go, Java and CUDA reserve and never use would count.
    """
    soft, hard = before = resource.getrlimit(resource.RLIMIT_DATA)
    most = _BYTES + hosts * _BYTES_OF_A_HOST
    if any(limit != resource.RLIM_INFINITY and limit <= most for limit in before):
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextlib.contextmanager
def connected(inventory: Inventory, names: Collection[str]) -> Iterator[State]:
    """Connect to the named hosts of an inventory, those that can be reached; one inventory at a time."""
    with _begun(inventory, names) as state:
        state.set_stage(StateStage.Connect)
        # Raised where no host is left: each has its reason in its callback.
        with contextlib.suppress(PyinfraError):
            connect_all(state)
        state.set_stage(StateStage.Prepare)
        yield state


@contextlib.contextmanager
def _begun(inventory: Inventory, names: Collection[str], at_once: int | None = None) -> Iterator[State]:
    """Be ready to connect to the named hosts, and leave those that are connected at the end."""
    hooks.install()
    state = State(check_for_changes=False)
    state.cwd = str(Path.cwd())
    config = Config() if at_once is None else Config(PARALLEL=min(at_once, hosts_within_open_files(at_once)))
    ctx_state.set(state)
    ctx_inventory.set(inventory)
    ctx_config.set(config)
    desired = set(names)
    state.init(inventory, config, initial_limit=[host for host in inventory if host.name in desired])
    logger = logging.getLogger("pyinfra")
    logger.propagate = False
    # Each reason is in its host's answer.
    logger.addHandler(hooks.NOBODY)
    try:
        yield state
    finally:
        disconnect_all(state)


def _answers(state: State, fact: type[NodeFact[Any]], seconds: float, step: Callable[[], None]) -> list[local.Row]:
    """Return what each host answered, or why it did not."""

    def ask(host: Host) -> local.Row:
        with Timeout(seconds) as timeout:
            try:
                with ctx_config.use(state.config.copy()), ctx_host.use(host):
                    reading = get_fact(state, host, fact, apply_failed_hosts=False)
                if isinstance(reading, Unknown) and connecting.is_broken(host.connector):
                    return host.name, None, errors.broken("while the node was read"), False
                return host.name, reading, reading.reason if isinstance(reading, Unknown) else None, False
            except Timeout as passed:
                if passed is not timeout:
                    raise
                return host.name, None, f"no answer within {seconds:g} s", False

    def connect_and_ask(host: Host) -> local.Row:
        try:
            host.connect(raise_exceptions=True)
        except Exception as error:
            step()
            return host.name, None, errors.with_remedy(str(error)), isinstance(error, connecting.Unconnectable)
        state.activate_host(host)
        try:
            return ask(host)
        finally:
            if not is_broken_off:
                step()

    def read_one(host: Host) -> local.Row:
        try:
            return connect_and_ask(host)
        finally:
            connecting.leave(host)
            state.activated_hosts.discard(host)

    is_broken_off = False
    found = []
    try:
        greenlets = {host.name: state.pool.spawn(read_one, host) for host in state.limit_hosts}
        for name, greenlet in greenlets.items():
            try:
                found.append(greenlet.get())
            except Exception as error:
                reason = in_words(error)
                found.append((name, Unknown(reason), reason, False))
    finally:
        # Whatever ended this, nobody waits for them any more.
        is_broken_off = True
        state.pool.kill(timeout=connecting.SECONDS_TO_LEAVE)
    return found
