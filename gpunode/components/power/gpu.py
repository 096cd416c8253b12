"""One GPU's power limit, clocks and ECC: what each is to be, and what it cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpunode.base.tables.reading import Row, table
from gpunode.components.power.state import APPLICATION, EVERY, GRAPHICS, LIMIT, MEMORY, Rule, rule_for
from gpunode.settings.power import PowerSettings
from gpunode.system.gpu import Gpu


@dataclass(frozen=True)
class Known(Row):
    """Hold how far the clocks of a GPU are apart, and how it says that it has application clocks no more."""

    clock_step_mhz: str
    deprecated: str


known = table(Known, "power.yaml")
ON, OFF = "Enabled", "Disabled"
# The settings' keys by the kinds of rules.
KEYS = {
    LIMIT: "power.limit",
    APPLICATION: "power.application_clocks",
    GRAPHICS: "power.locked_graphics_clocks",
    MEMORY: "power.locked_memory_clocks",
}


def pair(clocks: tuple[int, int] | None) -> str | None:
    """Return two clocks as the settings have them."""
    return None if clocks is None else f"{clocks[0]},{clocks[1]}"


def obstacles(settings: PowerSettings, every: Sequence[Rule], gpu: Gpu) -> Iterator[str]:
    """Yield what the settings ask of a GPU that it does not take: where, what is allowed, and what to do."""
    named = f"GPU {gpu.index} ({gpu.name})"
    for kind, key in KEYS.items():
        if (rule := rule_for(every, kind, gpu.name)) is not None:
            setting = f"power.limits[{rule.product!r}]" if kind == LIMIT and rule.product != EVERY else key
            yield from (f"{setting}: {named} {reason}" for reason in _reasons(rule, gpu))
    if settings.ecc is not None and gpu.ecc.current not in (ON, OFF):
        yield f"power.ecc: {named} has no ECC that can be switched ({gpu.ecc.current}); leave it out"


def _reasons(rule: Rule, gpu: Gpu) -> Iterator[str]:
    clocks, power = gpu.clocks, gpu.power
    if rule.kind == LIMIT:
        watts = float(rule.value)
        if power.limit is None:
            yield "tells no power limit, and so takes none; leave it out, or set power.limits by names of other GPUs"
        elif power.least is not None and power.most is not None and not power.least <= watts <= power.most:
            yield f"takes {power.least:g} to {power.most:g} W, and {rule.value} W is asked for; set a limit within that"
        return
    if rule.kind == APPLICATION:
        if known().deprecated.lower() in clocks.application_said.lower():
            yield (
                "has no application clocks with this driver, which deprecates them; set power.locked_graphics_clocks, "
                "and power.locked_memory_clocks, instead"
            )
            return
        if clocks.application is None:
            yield f"tells no application clocks ({clocks.application_said}), and so takes none; leave them out"
            return
        memory, graphics = map(int, rule.value.split(","))
        highest = {"memory": (memory, clocks.most_memory), "graphics": (graphics, clocks.most_graphics)}
    else:
        which = "graphics" if rule.kind == GRAPHICS else "memory"
        most = clocks.most_graphics if rule.kind == GRAPHICS else clocks.most_memory
        highest = {which: (int(rule.value.split(",")[1]), most)}
    for which, (asked, most) in highest.items():
        if most is not None and asked > most:
            yield f"has {most} MHz as its highest {which} clock, and {asked} MHz is asked for; set one up to that"
