"""What several tests and cases ask of MIG declarations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from gpunode.components.mig.cautions import cautions_of
from gpunode.components.mig.check import ConfigReport, check, target
from gpunode.node.preflight import Refusal, cautions, refusals
from gpunode.settings import Problem, SettingsError, settings_from
from gpunode.settings.mig_parted.declaration import Entry, parse_declaration, selected
from gpunode.settings.mig_parted.document import DeclarationError, Mistake
from tests.support.preflight import TODAY, _gpu, machine

DECLARATION = """version: v1
mig-configs:
  mixed:
    - devices: all
      mig-enabled: true
      mig-devices: {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
  too-much:
    - devices: [0, -1]
      mig-enabled: true
      mig-devices: {"3g.40gb": 2, "1g.10gb": 1}
  ampere:
    - device-filter: "0x20B010DE"
      devices: all
      mig-enabled: true
      mig-devices: {"1g.5gb": 7}
"""
ONE = "version: v1\nmig-configs:\n  a:\n  - "


def entry(text: str) -> Entry:
    """Return the one entry of a declaration."""
    return parse_declaration(ONE + text, "f").configs["a"][0]


def mistakes(content: str) -> tuple[Mistake, ...]:
    """Return what is wrong with a declaration."""
    try:
        parse_declaration(content, "f")
    except DeclarationError as error:
        return error.mistakes
    return ()


def mistakes_of_entry(text: str) -> tuple[Mistake, ...]:
    """Return what is wrong with a declaration of one entry."""
    return mistakes(ONE + text)


def oddities(text: str) -> tuple[Mistake, ...]:
    """Return what is odd in a declaration of one entry or more."""
    return cautions_of(parse_declaration(ONE + text, "f"))


def name(content: str, asked: str | None = None) -> str:
    """Return the configuration that is meant."""
    return selected(parse_declaration(content, "f"), asked)


def configuration(content: str, gpu: str) -> ConfigReport:
    """Return the verdict on configuration `a` for a GPU."""
    return check(parse_declaration(content, "f"), ["a"], target(gpu)).configs[0]


def preflight(config: str | None, devices: list[str], declaration: str | None = None) -> tuple[Refusal | Problem, ...]:
    """Return what settings or preflight say of MIG on GPUs by their device ids (2330, 2330/16C010DE), in order."""
    gpus = []
    for number, each in enumerate(devices):
        device, _, board = each.partition("/")
        gpus.append(replace(_gpu(device, f"0000:{0x1A + number:x}:00.0"), subsystem_id=board or None))
    with TemporaryDirectory() as folder:
        file = Path(folder) / "mig.yaml"
        mig = {} if config is None else {"config": config}
        if declaration is not None:
            file.write_text(declaration)
            mig["file"] = str(file)
        try:
            settings = settings_from({"mig": mig})
        except SettingsError as error:
            return tuple(error.problems)
        there = machine(gpus=tuple(gpus))
        told = [*refusals(settings, there), *cautions(settings, there, today=TODAY)]
        return tuple(each for each in told if each.component == "mig")
