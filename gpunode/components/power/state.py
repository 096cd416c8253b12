"""What gpunode keeps on a node of power limits and clocks: rules in a script, its unit, and which clocks were locked.

Nothing of the driver's own keeps them: nvidia-persistenced only holds a GPU open, and no module parameter sets them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import ParseError, Reading
from gpunode.base.shell_file import script_file
from gpunode.base.tables.reading import Row, table
from gpunode.base.template import rendered
from gpunode.settings.power import PowerSettings
from gpunode.system.gpu import Gpu
from gpunode.system.service import starts_at_boot


@dataclass(frozen=True)
class Lock(Reading):
    """Hold that a GPU's clocks were locked: its PCI address, graphics or memory, `lowest,highest` in MHz."""

    address: str
    kind: str
    value: str


@dataclass(frozen=True)
class Power(Reading):
    """Hold digests of gpunode's files, and what stands in them.

    `files` are (path, SHA-256), `foreign` the paths where somebody else's file stands, `rules` the lines of the script
    that tell the driver something; `enabled`: whether the unit starts at boot. `locks` are of the driver that is
    loaded: those of an earlier one are forgotten.
    """

    files: tuple[tuple[str, str], ...] = ()
    foreign: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    enabled: bool = False
    locks: tuple[Lock, ...] = ()

    @property
    def parsed_rules(self) -> tuple[Rule, ...]:
        """Return the rules that the driver is told."""
        return parsed(self.rules)

    def lock(self, address: str, kind: str) -> str | None:
        """Return at what a GPU's clocks were locked; None where they were not."""
        return next((each.value for each in self.locks if (each.address, each.kind) == (address, kind)), None)


def parse_power(lines: list[str]) -> Power:
    """Parse the probe's lines: `file=PATH DIGEST`, `foreign=PATH`, `rule=LINE`, `UnitFileState=`, `module=NUMBER`, and
    `note=` lines of what was locked, the first of which is the number of the module at that time.

    Raise ParseError for a file without a digest.
    """
    found = values(lines)
    files = [line.rpartition(" ") for line in repeated(lines, "file")]
    if any(not path or len(digest) != 64 for path, _, digest in files):
        raise ParseError("a file's line has no digest")
    return Power(
        files=tuple((path, digest) for path, _, digest in files),
        foreign=tuple(repeated(lines, "foreign")),
        rules=tuple(repeated(lines, "rule")),
        enabled=starts_at_boot(found.get("UnitFileState", "")),
        locks=_locks(list(repeated(lines, "note")), found.get("module", "")),
    )


def _locks(lines: list[str], module: str) -> tuple[Lock, ...]:
    if not lines or not module or lines[0] != f"module {module}":
        return ()
    cells = [line.split(" ") for line in lines[1:]]
    return tuple(Lock(*each) for each in cells if len(each) == 3 and each[1] in (GRAPHICS, MEMORY))


LIMIT, APPLICATION, GRAPHICS, MEMORY = "limit", "application", "graphics", "memory"
EVERY = "*"
_LINE = re.compile(r"(limit|application|graphics|memory) (\d{1,6}(?:,\d{1,6})?) (\*|[A-Za-z0-9][^'\\]{0,79})", re.ASCII)


@dataclass(frozen=True)
class Rule:
    """Hold one rule: watts of a limit, `memory,graphics` or `lowest,highest` in MHz of clocks; product: * is every."""

    kind: str
    value: str
    product: str = EVERY

    @property
    def line(self) -> str:
        """Return the rule as it stands in gpunode's script."""
        return f"{self.kind} {self.value} {self.product}"


def rules(settings: PowerSettings) -> tuple[Rule, ...]:
    """Return the rules of the settings; the first that fits a GPU counts. ECC is none: the GPU itself keeps it."""
    values = (
        (LIMIT, settings.limit),
        (APPLICATION, settings.application_clocks),
        (GRAPHICS, settings.locked_graphics_clocks),
        (MEMORY, settings.locked_memory_clocks),
    )
    by_product = (Rule(LIMIT, str(watts), product) for product, watts in sorted(settings.limits.items()))
    return (*by_product, *(Rule(kind, str(value)) for kind, value in values if value is not None))


def parsed(lines: Iterable[str]) -> tuple[Rule, ...]:
    """Return the rules in lines of gpunode's script; a line that is none, for somebody edited it, is left out."""
    return tuple(Rule(*match.groups()) for line in lines if (match := _LINE.fullmatch(line)))


def rule_for(every: Iterable[Rule], kind: str, product: str) -> Rule | None:
    """Return the rule of a kind for a GPU of that name; None where there is none."""
    return next((rule for rule in every if rule.kind == kind and rule.product in (EVERY, product)), None)


NAME = "gpunode-power.service"
UNIT = f"/etc/systemd/system/{NAME}"
SCRIPT = "/usr/local/lib/gpunode/power"
FILES = (SCRIPT, UNIT)
# Which clocks were locked since the driver was loaded, which no driver tells.
NOTE = "/run/gpunode/power"


def texts(every: Sequence[Rule]) -> dict[str, str]:
    """Return path -> text; none where there are no rules."""
    if not every:
        return {}
    lines = "\n".join(rule.line for rule in every)
    functions = script_file("power_apply").strip()
    return {
        SCRIPT: rendered("gpunode-power", rules=lines, functions=functions, note=NOTE),
        UNIT: rendered("gpunode-power.service", script=SCRIPT),
    }


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
