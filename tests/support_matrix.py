"""The first table of docs/support.md: system × component × how it was run, of the systems that gpunode provisions.

What ran, and how real it was, is what the scenarios say (shows.yml); which system their nodes are, what was resolved
by live lists or by records of them, and what ran with a GPU, systems.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from gpunode.base import tables

SYSTEMS = Path(__file__).with_name("systems.yaml")
# What is about a machine, and so may differ by its system; a cluster's components are in the table by family.
COLUMNS = (
    "repositories and keys", "driver from NVIDIA's repository", "driver from the distribution", "driver by runfile",
    "upgrade and change of branch", "rollback", "removal", "next boot", "CUDA toolkit", "container toolkit",
    "containerd", "docker", "MIG", "MPS", "drift",
)  # fmt: skip
# From least to most. `resolved` is told where nothing better is.
KINDS = ("resolved", "fixtures", "metadata", "programs", "hardware")
_OF_LEVEL = {"simulated": "fixtures", "real": "programs"}
NOTHING = "–"


def seen(rows: Iterable[Any], table: Mapping[str, Any]) -> dict[str, dict[str, set[str]]]:
    """Return system -> component -> kinds, of all systems that gpunode provisions.

    rows: what the scenarios show (support.Shown); table: systems.yaml
    """
    found: dict[str, dict[str, set[str]]] = {row.name: {} for row in tables.distributions()}

    def add(system: str, component: str, kind: str) -> None:
        found[system].setdefault(component, set()).add(kind)

    for row in rows:
        add(table["families"][row.family]["system"], row.component, _OF_LEVEL[row.level])
    for component, told in table["resolved"].items():
        for distribution in tables.distributions():
            if distribution.repository in told["repositories"]:
                add(distribution.name, component, "resolved")
    for kind in ("metadata", "hardware"):
        for system, components in table[kind].items():
            for component in components:
                add(system, component, kind)
    return found


def matrix(rows: Iterable[Any], table: Mapping[str, Any]) -> str:
    """Return the table in Markdown; systems of which the same is known share a line."""
    simulated = {each["system"] for each in table["families"].values() if each.get("simulated")}
    lines: dict[tuple[str, ...], list[str]] = {}
    for system, components in seen(rows, table).items():
        cells = tuple(_cell(components.get(component, set()), system in simulated) for component in COLUMNS)
        name = f"{system} (SIMULATED on Debian)" if system in simulated else system
        lines.setdefault(cells, []).append(name)
    head = [f"| system | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    return "\n".join((*head, *(f"| {', '.join(names)} | {' | '.join(cells)} |" for cells, names in lines.items())))


def _cell(kinds: set[str], is_simulated: bool) -> str:
    # No SIMULATED system has run on hardware: that was a real one.
    said = {"hardware": "hardware (a real one)"} if is_simulated else {}
    better = [said.get(kind, kind) for kind in KINDS[1:] if kind in kinds]
    return ", ".join(better) or ("resolved" if kinds else NOTHING)


def systems() -> dict[str, Any]:
    """Return systems.yaml."""
    read: dict[str, Any] = yaml.safe_load(SYSTEMS.read_text(encoding="utf-8"))
    return read
