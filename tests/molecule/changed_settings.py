"""Each setting, changed on a converged node: drift, plan and the next run name the same difference.

One node under many names, each with one setting changed: one drift, one plan, one dry run for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpunode.base.comparison import RUN
from tests.molecule.conftest import CHECKOUT, Run, command
from tests.support.changed_settings import Change

# What a run calls a component, and what findings and steps do.
_COMPONENTS = {"Packaging": "repositories", "Container toolkit": "toolkit", "Driver": "driver", "CUDA": "cuda"}
_BASE = "base"


def inventory_of(folder: Path, base: Mapping[str, Any], changes: Sequence[Change], with_base: bool = True) -> str:
    """Write an inventory of the lab's first node under the name of each change; return its path."""
    data = {change.host: {name: dict(value) for name, value in change.data.items()} for change in changes}
    if with_base:
        data = {_BASE: {}, **data}
    path = folder / "changed.py"
    inventories = CHECKOUT / "inventories"
    path.write_text(
        f"import runpy\n_node = runpy.run_path({str(inventories / 'lab.py')!r})['nodes'][0][1]\n"
        f"_group = runpy.run_path({str(inventories / 'group_data' / 'lab.py')!r}).items()\n"
        f"_data = {{**_node, **{{name: value for name, value in _group if name[0] != '_'}}, **{dict(base)!r}}}\n"
        f"_changes = {data!r}\n"
        "def _merged(one, two):\n"
        "    both = isinstance(one, dict) and isinstance(two, dict)\n"
        "    return {**one, **{key: _merged(one.get(key), value) for key, value in two.items()}} if both else two\n"
        "nodes = [(name, _merged(_data, change)) for name, change in _changes.items()]\n"
    )
    return str(path)


def differences(folder: Path, base: Mapping[str, Any], changes: Sequence[Change], together: bool = True) -> list[str]:
    """Return what is wrong with what drift, plan and run say of each change; none where they say the same.

    base: host data beside the lab's own, by which the node was converged
    together: whether all ask the node at the same time; an MPS daemon answers one after the other
    """
    if together:
        return _differences(inventory_of(folder, base, changes))
    wrong = _differences(inventory_of(folder, base, ()))
    for change in changes:
        wrong += _differences(inventory_of(folder, base, (change,), with_base=False))
    return wrong


def _differences(inventory: str) -> list[str]:
    drift, planned = command("gpunode", "drift", "--json", inventory), command("gpunode", "plan", "--json", inventory)
    run = command("pyinfra", "--dry", "--json", inventory, "deploys/gpu_node.py")
    assert run.code == 0, run.printed
    assert drift.findings, drift.printed
    wrong = []
    for host in drift.findings:
        found = {item["component"] for item in drift.findings[host] if item["class"] != "ok"}
        plan = planned.payload["hosts"][host]
        steps = {step["component"] for step in plan["steps"]} | {each["component"] for each in plan["refusals"]}
        now = {step["component"] for step in plan["steps"] if not step["pending"]}
        # Where only a person can go on, a runtime's configuration is refused, which a dry run shows as a change.
        by_hand = {
            item["component"] for item in drift.findings[host] if item["class"] == "drift" and item["remedy"] != RUN
        }
        does = _changed(run, host, tuple(f"Configure {name}" for name in by_hand))
        told = f"{host}: drift {sorted(found)}, plan {sorted(steps)}, now {sorted(now)}, run {sorted(does)}"
        if host == _BASE:
            wrong += [f"{told}: the base differs"] if found or steps or does else []
        elif plan["refusals"]:
            # What the archives offer is asked by a plan alone; a run comes upon it before it changes anything.
            wrong += [] if found and does else [told]
        elif not found or found != steps or does != now:
            wrong.append(told)
    return wrong


def _changed(run: Run, host: str, refused: tuple[str, ...]) -> set[str]:
    """Return the components of which a run would change something on a host; `refused`: how names of others begin."""
    found = set()
    for operation in run.payload["plan"]:
        title, _, name = operation["name"].partition(" | ")
        if host not in operation["hosts_with_change"] or title == "Verify" or name.startswith(refused):
            continue
        if title == "Preflight":
            found.add("refused")
        else:
            found.add("repositories" if name.startswith("Trust") else _COMPONENTS.get(title, title.lower()))
    return found
