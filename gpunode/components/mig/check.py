"""Judge a declaration as a whole: is it valid, and can what it says be placed on a GPU?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpunode.base import tables
from gpunode.base.document import head
from gpunode.base.findings import ExitCode
from gpunode.base.messages import command_error
from gpunode.components.mig.cautions import cautions_of
from gpunode.components.mig.device_filter import NVIDIA, Match, PciId, matches
from gpunode.components.mig.goal import Judged, Verdict, judge, nearest_layouts
from gpunode.settings.mig_parted.declaration import Declaration, Entry
from gpunode.settings.mig_parted.document import Mistake

SCHEMA = 1
_DEVICE = re.compile(r"0[xX](?P<device>[0-9a-fA-F]{4})(?:10[dD][eE])?", re.ASCII)
CODES = {
    Verdict.NOT_PLACED: command_error(
        "mig.not-placed",
        "A MIG configuration does not fit on the GPU for which it is checked.",
        "The entry below the message says which profiles do not fit and why, or that no entry is for this GPU, which "
        "would stay unchanged.",
        remedy="take one of the nearest layouts that the message lists, or a published one: `gpunode mig check` with "
        "--gpu and without FILE lists them",
        exit="2",
    ),
    Verdict.UNDECIDED: command_error(
        "mig.undecided",
        "It is not known whether a MIG configuration fits on this GPU.",
        "gpunode has no table of the places for instances on this product, and NVIDIA publishes no such mixture.",
        remedy="take a published configuration (`gpunode mig check` with --gpu and without FILE lists them), or try "
        "the layout on a free GPU of this kind",
    ),
}
# Worst first: one entry that has no place decides for its configuration.
_SEVERITY = (Verdict.NOT_PLACED, Verdict.UNDECIDED, Verdict.PLACED)


@dataclass(frozen=True)
class Target:
    """Hold the GPU that a declaration is judged for: a product, and those of its device ids that are meant."""

    product: str
    device_ids: tuple[str, ...]


def target(text: str) -> Target | None:
    """Return the GPU that a product's name or `0x2330` stands for; None if no table knows it."""
    found = _DEVICE.fullmatch(text)
    for name, product in tables.mig().products.items():
        if found is not None and found["device"].upper() in product.device_ids:
            return Target(name, (found["device"].upper(),))
        if text.lower() == name.lower():
            return Target(name, product.device_ids)
    return None


@dataclass(frozen=True)
class EntryReport:
    """Hold one entry and, where there is a GPU to judge it for, the verdict.

    `match` says whether the entry is for that GPU; `overridden` that a later entry takes all GPUs that it is for.
    """

    entry: Entry
    match: Match | None = None
    overridden: bool = False
    judged: Judged | None = None
    nearest: tuple[Mapping[str, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as docs/mig.md describes it."""
        judged, entry = self.judged, self.entry
        verdict = judged.verdict.value if judged else None
        if self.match is not None and judged is None:
            verdict = "overridden" if self.overridden else "not for this GPU"
        places = None
        if judged is not None and judged.instances is not None:
            places = [
                {
                    "profile": each.placement.profile,
                    "start": each.placement.start,
                    "size": each.placement.size,
                    "compute_instances": list(each.compute),
                }
                for each in judged.instances
            ]
        return {
            "path": entry.path,
            "device_filter": list(entry.device_filter),
            "devices": "all" if entry.devices is None else list(entry.devices),
            "mig_enabled": entry.mig_enabled,
            "mig_devices": None if entry.mig_devices is None else dict(entry.mig_devices),
            "verdict": verdict,
            "for_subsystem_only": self.match is Match.MAYBE,
            "placements": places,
            "create": None if places is None else [f"{each['profile']}:{each['start']}" for each in places],
            "reason": judged.reason if judged else None,
            "nearest": [dict(layout) for layout in self.nearest],
        }


@dataclass(frozen=True)
class ConfigReport:
    """Hold one configuration; `verdict` is None where there was no GPU to judge it for."""

    name: str
    entries: tuple[EntryReport, ...]

    @property
    def verdict(self) -> Verdict | None:
        """Return the worst verdict of its entries; a GPU for which there is no entry gets nothing placed."""
        if any(each.match is None for each in self.entries):
            return None
        found = [each.judged.verdict for each in self.entries if each.judged]
        return next((verdict for verdict in _SEVERITY if verdict in found), Verdict.NOT_PLACED)

    @property
    def code(self) -> str | None:
        """Return what `gpunode explain` knows the verdict by; None where it is good, or there is none."""
        return CODES.get(self.verdict) if self.verdict else None


@dataclass(frozen=True)
class Report:
    """Hold what is to be said of a declaration's chosen configurations."""

    source: str
    target: Target | None
    configs: tuple[ConfigReport, ...]
    cautions: tuple[Mistake, ...]

    @property
    def verdict(self) -> Verdict | None:
        """Return the worst verdict of the configurations; None where there was no GPU to judge them for."""
        found = [config.verdict for config in self.configs]
        return next((verdict for verdict in _SEVERITY if verdict in found), None)

    @property
    def exit_code(self) -> ExitCode:
        """Return 0 where all of it is valid (and placed), 2 where a layout has no place, 1 where nobody knows."""
        codes = {Verdict.NOT_PLACED: ExitCode.NEGATIVE, Verdict.UNDECIDED: ExitCode.ERROR}
        return codes.get(self.verdict, ExitCode.GOOD) if self.verdict else ExitCode.GOOD

    def to_json(self) -> dict[str, Any]:
        """Return it as docs/mig.md describes it."""
        gpu = {"product": self.target.product, "device_ids": list(self.target.device_ids)} if self.target else None
        configs = {
            config.name: {
                "verdict": config.verdict.value if config.verdict else "valid",
                "code": config.code,
                "entries": [each.to_json() for each in config.entries],
            }
            for config in self.configs
        }
        verdicts = Counter(config["verdict"] for config in configs.values())
        return {
            **head(SCHEMA, {"configs": dict(verdicts)}, self.exit_code, {"source": self.source}),
            "verdict": self.verdict.value if self.verdict else "valid",
            "gpu": gpu,
            "configs": configs,
            "cautions": [each.to_json() for each in self.cautions],
            "mistakes": [],
        }


def refused_json(source: str, mistakes: Iterable[Mistake]) -> dict[str, Any]:
    """Return the JSON of a declaration that is refused, of the same shape."""
    refused: dict[str, Any] = {"verdict": "refused", "mistakes": [mistake.to_json() for mistake in mistakes]}
    refused["exit_code"] = int(ExitCode.INPUT_REFUSED)
    return {**Report(source, None, (), ()).to_json(), **refused}


def check(declaration: Declaration, names: Iterable[str], gpu: Target | None) -> Report:
    """Return the report on the configurations of those names."""
    chosen = replace(declaration, configs={name: declaration.configs[name] for name in names})
    configs = tuple(ConfigReport(name, _entries(entries, gpu)) for name, entries in chosen.configs.items())
    return Report(declaration.source, gpu, configs, cautions_of(chosen))


def _entries(entries: tuple[Entry, ...], gpu: Target | None) -> tuple[EntryReport, ...]:
    if gpu is None:
        return tuple(EntryReport(entry) for entry in entries)
    found: list[EntryReport] = []
    # From the last: for a GPU with two entries the later one counts.
    whole = False
    for entry in reversed(entries):
        every = [matches(entry.device_filter, PciId(int(device, 16), NVIDIA)) for device in gpu.device_ids]
        match = next((match for match in (Match.YES, Match.MAYBE) if match in every), Match.NO)
        if match is Match.NO or whole:
            found.append(EntryReport(entry, match, overridden=match is not Match.NO))
            continue
        whole = entry.devices is None and all(each is Match.YES for each in every)
        found.append(_judged(entry, match, gpu))
    return tuple(reversed(found))


def _judged(entry: Entry, match: Match, gpu: Target) -> EntryReport:
    devices = entry.mig_devices or {}
    judged = judge(gpu.product, devices) if entry.mig_enabled else Judged(Verdict.PLACED)
    fits = judged.verdict is Verdict.PLACED
    return EntryReport(entry, match, judged=judged, nearest=() if fits else nearest_layouts(gpu.product, devices))
