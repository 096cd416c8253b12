"""Is it still so? Read every node of an inventory in one round trip each, judge it, change nothing.

This module drives pyinfra as a library, the way its own command does, so that a node's trouble stays on that node.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyinfra_cli  # noqa: F401  (patches sockets for gevent before anything opens one)
from pyinfra.api import Config, Host, State
from pyinfra.api.connect import connect_all, disconnect_all
from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.facts import get_fact
from pyinfra.api.inventory import Inventory
from pyinfra.api.state import BaseStateCallback, StateStage
from pyinfra.context import ctx_config, ctx_host, ctx_inventory, ctx_state

from facts.node import Node
from gpunode import hooks
from gpunode.findings import Finding, FindingClass
from gpunode.inventory import foreign_names, load_inventory
from gpunode.node import Node as NodeReading
from gpunode.preflight import refusals
from gpunode.reading import Unknown
from gpunode.settings import Settings, check_hosts
from gpunode.verify import judge


@dataclass(frozen=True)
class NodeReport:
    """Hold one node's findings, and its reading where it answered."""

    name: str
    findings: tuple[Finding, ...]
    reading: NodeReading | None


class _ConnectErrors(BaseStateCallback):
    def __init__(self) -> None:
        self.reasons: dict[str, str] = {}

    def host_connect_error(self, state: State, host: Host, error: Exception) -> None:  # type: ignore[override]
        self.reasons[host.name] = str(error)


class _FactErrors(logging.Handler):
    """Collect what pyinfra logs of a fact that failed: it keeps no other record of the reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.reasons: dict[str, str] = {}

    def emit(self, record: logging.LogRecord) -> None:
        host = ctx_host.get()
        if host is not None:
            self.reasons[host.name] = record.getMessage()


def inspect(inventory_path: Path) -> tuple[NodeReport, ...]:
    """Return a report per host of the inventory; raise SettingsError before any connection."""
    inventory = load_inventory(inventory_path)
    settings = check_hosts({host.name: host.data.dict() for host in inventory}, foreign_names())
    hooks.install()
    return _inspected(inventory, settings)


def _inspected(inventory: Inventory, settings: Mapping[str, Settings]) -> tuple[NodeReport, ...]:
    state = State(check_for_changes=False)
    state.cwd = str(Path.cwd())
    config = Config()
    ctx_state.set(state)
    ctx_inventory.set(inventory)
    ctx_config.set(config)
    state.init(inventory, config)
    connect_errors, fact_errors = _ConnectErrors(), _FactErrors()
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
        readings = _readings(state)
        return tuple(
            _contained(host.name, settings[host.name], readings.get(host.name), connect_errors, fact_errors)
            for host in inventory
        )
    finally:
        logger.removeHandler(fact_errors)
        disconnect_all(state)


def _readings(state: State) -> dict[str, Any]:
    def read(host: Host) -> Any:
        with ctx_config.use(state.config.copy()), ctx_host.use(host):
            return get_fact(state, host, Node, apply_failed_hosts=False)

    connected = [host for host in state.inventory if host.connected]
    greenlets = {host.name: state.pool.spawn(read, host) for host in connected}
    found: dict[str, Any] = {}
    for name, greenlet in greenlets.items():
        try:
            found[name] = greenlet.get()
        except Exception as error:
            found[name] = Unknown(f"{type(error).__name__}: {error}")
    return found


def _contained(
    name: str, settings: Settings, reading: Any, connect_errors: _ConnectErrors, fact_errors: _FactErrors
) -> NodeReport:
    """Return a node's report; what cannot be judged is that node's error and no other's."""
    try:
        return _report(name, settings, reading, connect_errors, fact_errors)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}"
        finding = Finding("node", FindingClass.ERROR, "state", "cannot be judged", None, cause, "look at the node")
        return NodeReport(name, (finding,), None)


def _report(
    name: str, settings: Settings, reading: Any, connect_errors: _ConnectErrors, fact_errors: _FactErrors
) -> NodeReport:
    if reading is None:
        cause = connect_errors.reasons.get(name, "no connection")
        finding = Finding(
            "node", FindingClass.UNREACHABLE, "connection", "none", "ssh", cause, "check address, key and known hosts"
        )
        return NodeReport(name, (finding,), None)
    if isinstance(reading, Unknown):
        cause = fact_errors.reasons.get(name, reading.reason)
        finding = Finding("node", FindingClass.ERROR, "state", "unreadable", "readable", cause, "look at the node")
        return NodeReport(name, (finding,), None)
    refused = refusals(settings, reading.operating_system, reading.pci.gpus, reading.driver)
    unsupported = tuple(
        Finding(
            item.component, FindingClass.UNSUPPORTED, "preflight", None, None, item.reason, item.remedy, item.source
        )
        for item in refused
    )
    return NodeReport(name, unsupported or judge(settings, reading), reading)
