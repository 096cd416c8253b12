"""NVIDIA's unchanged charts of a person's own folder, and the settings that gpunode can ask of them."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from gpunode.base.versions import at_least
from gpunode.kubernetes.helm.commands import Command, Commands, helm_of, version_command
from gpunode.lab.kubernetes_programs import programs
from gpunode.settings.chart import ReleaseSettings
from gpunode.settings.model import Settings

VARIABLE = "GPUNODE_REAL_CHARTS"
PLUGIN, OPERATOR = "nvidia-device-plugin", "gpu-operator"
SKIPPED = f"NVIDIA's own charts are tried where {VARIABLE} names a folder that holds them, unpacked or packed"
# Charts ask for more than the lab's Kubernetes has, where they bring node feature discovery along.
KUBERNETES, APIS = "1.31.4", ("v1", "apps/v1", "batch/v1", "networking.k8s.io/v1", "policy/v1")


@dataclass(frozen=True)
class Chart:
    """Hold a chart: its name, its version, and where it is, a folder or a .tgz."""

    name: str
    version: str
    path: Path

    def __str__(self) -> str:
        """Return `nvidia-device-plugin-0.20.0`."""
        return f"{self.name}-{self.version}"

    def texts(self, *suffixes: str) -> dict[str, str]:
        """Return name -> text of the chart's own files with such an end; those of its subcharts are left out."""
        if self.path.is_dir():
            names = {str(path.relative_to(self.path)): path for path in self.path.rglob("*") if path.is_file()}
            chosen = {name: path for name, path in names.items() if _is_own(name) and name.endswith(suffixes)}
            return {name: path.read_text(encoding="utf-8") for name, path in chosen.items()}
        found = {}
        with tarfile.open(self.path) as packed:
            for member in packed.getmembers():
                name = member.name.partition("/")[2]
                content = packed.extractfile(member) if _is_own(name) and name.endswith(suffixes) else None
                if content is not None:
                    found[name] = content.read().decode()
        return found

    def is_at_least(self, version: str) -> bool:
        """Say whether it is that version or a newer one."""
        return at_least(self.version.removeprefix("v"), version)


def _is_own(name: str) -> bool:
    return not name.startswith("charts/")


def folder() -> Path | None:
    """Return the folder that a person gave; None where none was."""
    given = os.environ.get(VARIABLE)
    return Path(given).resolve() if given else None


@cache
def charts(name: str) -> tuple[Chart, ...]:
    """Return the folder's charts of that name, the oldest first; raise FileNotFoundError where it is no folder."""
    where = folder()
    if where is None:
        return ()
    paths = [path for path in sorted(where.iterdir()) if path.suffix == ".tgz" or (path / "Chart.yaml").exists()]
    mine = [each for each in map(_chart, paths) if each.name == name]
    return tuple(sorted(mine, key=lambda each: [int(part) for part in each.version.removeprefix("v").split(".")]))


def _chart(path: Path) -> Chart:
    content = yaml.safe_load(Chart("", "", path).texts("Chart.yaml")["Chart.yaml"])
    return Chart(str(content["name"]), str(content["version"]), path)


class ChartRefusedError(Exception):
    """Say in helm's words why a chart does not render."""


@dataclass(frozen=True)
class Renderer:
    """Render charts by one helm, as gpunode has it rendered."""

    major: int

    def render(self, settings: Settings, asked: ReleaseSettings, values: Mapping[str, Any]) -> str:
        """Return the manifest; raise ChartRefusedError."""
        program = str(programs(self.major) / "helm")
        commands = Commands(_helm(program), settings.kubernetes, asked, settings.proxy)
        done = _run(commands.template(values, KUBERNETES, APIS))
        if done.returncode:
            raise ChartRefusedError(done.stderr.strip()[-600:])
        return done.stdout


@cache
def _helm(program: str) -> Any:
    return helm_of(program, _run(Command(version_command(program), {}, 60)).stdout)


def _run(command: Command) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("HELM_", "KUBE"))}
    return subprocess.run(
        command.words, input=command.stdin or "", capture_output=True, text=True, timeout=120, check=False,
        env=environment,
    )  # fmt: skip


Choice = Mapping[str, Any]


def combinations(options: Mapping[str, Sequence[Any]], together: int) -> Iterator[dict[str, Any]]:
    """Yield choices in which every `together` options have each of their values together at least once.

    All of them at once would be some ten thousand. Chosen greedily, and alike in each run.
    """
    names = sorted(options)
    left = {
        tuple(zip(some, chosen, strict=True))
        for some in itertools.combinations(names, together)
        for chosen in itertools.product(*(range(len(options[name])) for name in some))
    }
    chance = random.Random(0)
    while left:
        # What is left must get less with each: one of it is part of every candidate.
        needed = dict(min(left))
        candidates = [
            {name: needed.get(name, chance.randrange(len(options[name]))) for name in names} for _ in range(40)
        ]
        best = max(candidates, key=lambda each: len(_covered(each, names, together) & left))
        left -= _covered(best, names, together)
        yield {name: options[name][number] for name, number in best.items()}


def _covered(chosen: Mapping[str, int], names: Sequence[str], together: int) -> set[tuple[tuple[str, int], ...]]:
    return set(itertools.combinations(((name, chosen[name]) for name in names), together))
