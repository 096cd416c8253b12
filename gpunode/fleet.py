"""Read every node of an inventory in one round trip each, and change nothing.

This module drives pyinfra as a library, the way its own command does, so that a node's trouble stays on that node.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyinfra_cli  # noqa: F401  (patches sockets for gevent before anything opens one)
from pyinfra.api import Config, Host, State
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.facts import get_fact
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import BaseStateCallback, StateStage
from pyinfra.context import ctx_config, ctx_host, ctx_inventory, ctx_state

from facts.base import NodeFact
from gpunode import hooks
from gpunode.inventory import foreign_names, load_inventory
from gpunode.reading import Reading, Unknown
from gpunode.settings import Settings, check_hosts

# What a fact makes of a node's answer.
T = TypeVar("T", bound=Reading)


@dataclass(frozen=True)
class Answer(Generic[T]):
    """Hold one host's settings and what it answered; `reason` says why it was not reached, or not understood.

    `reading` is None where the host was not reached, and Unknown where its answer cannot be used.
    """

    name: str
    settings: Settings
    reading: T | Unknown | None
    reason: str | None


# Told the number of hosts, and how many of them have answered or turned out not to, each time one more has.
Watch = Callable[[int, int], None]


def unwatched(hosts: int, done: int) -> None:
    """Let nobody watch."""


class _Progress:
    def __init__(self, hosts: int, watch: Watch) -> None:
        self._hosts, self._done, self._watch = hosts, 0, watch
        watch(hosts, 0)

    def step(self) -> None:
        self._done += 1
        self._watch(self._hosts, self._done)


class _ConnectErrors(BaseStateCallback):
    def __init__(self, progress: _Progress) -> None:
        self.reasons: dict[str, str] = {}
        self._progress = progress

    def host_connect_error(self, state: State, host: Host, error: Exception) -> None:  # type: ignore[override]
        self.reasons[host.name] = str(error)
        self._progress.step()


class _FactErrors(logging.Handler):
    """Collect what pyinfra logs of a fact that failed: it keeps no other record of the reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reasons: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        host = ctx_host.get()
        if host is not None:
            self.reasons[host.name] = record.getMessage()


def read(inventory_path: Path, fact: type[NodeFact[T]], watch: Watch = unwatched) -> tuple[Answer[T], ...]:
    """Return an answer per host of the inventory, each a reading of `fact`.

    Raises SettingsError before any connection, InventoryError where the inventory cannot be read.
    """
    inventory = load_inventory(inventory_path)
    settings = check_hosts({host.name: host.data.dict() for host in inventory}, foreign_names())
    hooks.install()
    return _answers(inventory, settings, fact, watch)


def _answers(
    inventory: Inventory, settings: Mapping[str, Settings], fact: type[NodeFact[T]], watch: Watch
) -> tuple[Answer[T], ...]:
    state = State(check_for_changes=False)
    state.cwd = str(Path.cwd())
    config = Config()
    ctx_state.set(state)
    ctx_inventory.set(inventory)
    ctx_config.set(config)
    state.init(inventory, config)
    progress = _Progress(len(inventory), watch)
    connect_errors, fact_errors = _ConnectErrors(progress), _FactErrors()
    state.add_callback_handler(connect_errors)
    logger = logging.getLogger("pyinfra")
    logger.addHandler(fact_errors)
    logger.propagate = False
    try:
        state.set_stage(StateStage.Connect)
        # Raised where no host is left: each has its reason in connect_errors.
        with contextlib.suppress(PyinfraError):
            connect_all(state)
        state.set_stage(StateStage.Prepare)
        readings = _readings(state, fact, progress)
        return tuple(
            _answer(host.name, settings[host.name], readings.get(host.name), connect_errors, fact_errors)
            for host in inventory
        )
    finally:
        logger.removeHandler(fact_errors)
        disconnect_all(state)


def _answer(
    name: str, settings: Settings, reading: Any, connect_errors: _ConnectErrors, fact_errors: _FactErrors
) -> Answer[Any]:
    reason = None
    if reading is None:
        reason = connect_errors.reasons.get(name, "no connection")
    elif isinstance(reading, Unknown):
        reason = fact_errors.reasons.get(name, reading.reason)
    return Answer(name, settings, reading, reason)


def _readings(state: State, fact: type[NodeFact[Any]], progress: _Progress) -> dict[str, Any]:
    def read_one(host: Host) -> Any:
        try:
            with ctx_config.use(state.config.copy()), ctx_host.use(host):
                return get_fact(state, host, fact, apply_failed_hosts=False)
        finally:
            progress.step()

    connected = [host for host in state.inventory if host.connected]
    greenlets = {host.name: state.pool.spawn(read_one, host) for host in connected}
    found: dict[str, Any] = {}
    for name, greenlet in greenlets.items():
        try:
            found[name] = greenlet.get()
        except Exception as error:
            found[name] = Unknown(f"{type(error).__name__}: {error}")
    return found
