"""A node's part in an IMEX domain: its list of nodes, its service, and what the daemon says of the domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpunode.base.probe_output import cells, decoded, files, repeated, timestamp, values
from gpunode.base.reading import Reading
from gpunode.base.structured_text import TextError, load_json
from gpunode.system.service import is_masked, seconds, starts_at_boot

# What gpunode wrote last: a list that says so is gpunode's to take away. It holds addresses alone, and no comment.
RECORD = "/var/lib/gpunode/imex/nodes_config.cfg"
_SHOWN = 160


@dataclass(frozen=True)
class ImexUnit(Reading):
    """Hold the unit nvidia-imex.service. `stale`: it runs since before the list of nodes was last written."""

    active: bool
    enabled: bool
    masked: bool = False
    stale: bool = False


@dataclass(frozen=True)
class DomainNode(Reading):
    """Hold what the daemon says of one node: its address, its status (READY), and (address, status) of connections."""

    address: str
    status: str
    connections: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Domain(Reading):
    """Hold what the daemon says of its domain: its status (UP, DEGRADED, DOWN), and each node."""

    status: str
    nodes: tuple[DomainNode, ...] = ()


@dataclass(frozen=True)
class Imex(Reading):
    """Hold a node's part in an IMEX domain.

    `unit` is None where nvidia-imex is not installed. `nodes` and `record` are texts: the list that IMEX reads, and
    what gpunode last wrote there; None where they are not there. `config` has (key, value) of config.cfg. `domain` is
    None where the daemon was not asked, or did not answer in its own words, which `answer` then has. `channel0`: the
    device of channel 0 is there.
    """

    unit: ImexUnit | None = None
    nodes: str | None = None
    record: str | None = None
    config: tuple[tuple[str, str], ...] = ()
    domain: Domain | None = None
    answer: str | None = None
    channel0: bool = False


def parse_imex(lines: list[str]) -> Imex:
    """Parse the probe's lines (gpunode/components/imex/state.sh); raise ParseError where one is of another form."""
    found = values(lines)
    texts = dict(files(lines))
    record = texts.pop(RECORD, None)
    said = decoded(found, "answer")
    domain = None if said is None else _domain(said)
    config = (line.partition("=") for line in repeated(lines, "config"))
    return Imex(
        unit=_unit(found["unit"], found.get("written")) if "unit" in found else None,
        nodes=next(iter(texts.values()), None),
        record=record,
        config=tuple((key.strip(), value.strip()) for key, _, value in config),
        domain=domain,
        answer=None if domain is not None or said is None else " ".join(said.split())[:_SHOWN],
        channel0=found.get("channel0") == "yes",
    )


def _unit(line: str, written: str | None) -> ImexUnit:
    load, active, enabled, started = cells(line, 4)
    stale = bool(started) and written is not None and timestamp(written) > seconds(started)
    masked = load == "masked" or is_masked(enabled)
    return ImexUnit(active == "active", starts_at_boot(enabled), masked, stale)


def _domain(text: str) -> Domain | None:
    """Return what the JSON says; None where it is none, or of another shape: the daemon's words are then told."""
    try:
        found = load_json(text)
    except TextError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("status"), str):
        return None
    nodes = found.get("nodes", {})
    if not isinstance(nodes, dict) or not all(isinstance(node, dict) for node in nodes.values()):
        return None
    return Domain(found["status"], tuple(_node(node) for _, node in sorted(nodes.items(), key=_by_number)))


def _by_number(item: tuple[str, Any]) -> tuple[int, str]:
    # The daemon prints them in no order.
    return len(item[0]), item[0]


def _node(node: dict[str, Any]) -> DomainNode:
    every = node.get("connections")
    each = sorted(every.items(), key=_by_number) if isinstance(every, dict) else ()
    connections = tuple(
        (str(item.get("host", "")), str(item.get("status", ""))) for _, item in each if isinstance(item, dict)
    )
    return DomainNode(str(node.get("host", "")), str(node.get("status", "")), connections)
