"""How long does a plan for eight GPUs take? `python -m tests.bench.mig`; no node, no GPU.

Prints milliseconds, and for comparison on any machine the ratio to one yardstick measured in the same run: planning
without search, which destroys everything and creates the goal (what nvidia-mig-parted does).
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable

from gpunode.components.mig.change import Instance, Wanted, change
from gpunode.components.mig.geometry import Geometry, product_geometry
from gpunode.components.mig.placement import Impossible, feasible, fit, layout_of, place

_GPUS, _ROUNDS, _LIMIT_MS = 8, 200, 50


def _instances(geometry: Geometry, layout: dict[str, int]) -> list[Instance]:
    placed = place(geometry, layout)
    if isinstance(placed, Impossible):
        raise ValueError(placed.reason)
    compute = {spot.name: (spot.profile.slices,) for spot in geometry.spots}
    return [Instance(each, compute[each.profile], str(number)) for number, each in enumerate(placed)]


def _goal(geometry: Geometry, layout: dict[str, int]) -> list[Wanted]:
    slices = {spot.name: spot.profile.slices for spot in geometry.spots}
    return [Wanted(name, (slices[name],)) for name, count in layout.items() for _ in range(count)]


def _milliseconds(work: Callable[[], object], cold: bool) -> float:
    """Return the best of three, for what else runs on the machine is no matter of the planner's."""
    taken = []
    for _ in range(3):
        if cold:
            fit.cache_clear()
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1000)
    return min(taken)


def measure(product: str = "H100-80GB") -> dict[str, float]:
    """Return medians and the worst of many rounds, each with other layouts, drawn at random but the same every time."""
    geometry = product_geometry(product)
    if geometry is None:
        raise ValueError(f"{product} has no verified geometry")
    chance = random.Random(8)
    layouts = [layout_of(geometry, each) for each in feasible(geometry)]
    cold, warm, yardstick = [], [], []
    for _ in range(_ROUNDS):
        drawn = [(chance.choice(layouts), chance.choice(layouts)) for _ in range(_GPUS)]
        tasks = [(_instances(geometry, before), _goal(geometry, after)) for before, after in drawn]

        def plan(tasks: list[tuple[list[Instance], list[Wanted]]] = tasks) -> None:
            for there, goal in tasks:
                change(geometry, there, goal)

        def start_over(tasks: list[tuple[list[Instance], list[Wanted]]] = tasks) -> None:
            for _, goal in tasks:
                change(geometry, [], goal)

        yardstick.append(_milliseconds(start_over, cold=True))
        cold.append(_milliseconds(plan, cold=True))
        warm.append(_milliseconds(plan, cold=False))
    middle = statistics.median(cold)
    return {
        "gpus": _GPUS,
        "cold_ms": round(middle, 3),
        "cold_worst_ms": round(max(cold), 3),
        "warm_ms": round(statistics.median(warm), 3),
        "start_over_ms": round(statistics.median(yardstick), 3),
        "ratio": round(middle / statistics.median(yardstick), 2),
        "limit_ms": _LIMIT_MS,
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
