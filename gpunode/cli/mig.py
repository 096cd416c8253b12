"""`gpunode mig check`: is a MIG declaration right, and where do its instances go?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpunode.base.findings import ExitCode
from gpunode.base.folding import UNBOUND, fold_lines
from gpunode.base.messages import with_code
from gpunode.base.terminal import say
from gpunode.cli.errors import complain
from gpunode.cli.output import columns, is_json, is_quiet, output_option, say_document
from gpunode.cli.selection import tell_of

if TYPE_CHECKING:
    from gpunode.components.mig.check import EntryReport, Report, Target


@click.group()
def mig() -> None:
    """Multi-Instance GPU: declarations in the format of nvidia-mig-parted."""


@mig.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@click.option("--config", "name", metavar="NAME", help="The configuration to judge, where the file holds several.")
@click.option("--all", "wants_all", is_flag=True, help="Judge every configuration of the file.")
@click.option("--gpu", metavar="PRODUCT", help="Also judge whether it can be placed on H100-80GB, say, or 0x2330.")
@output_option("the verdict (docs/mig.md)", "the configurations that cannot be placed")
def check(file: Path | None, name: str | None, wants_all: bool, gpu: str | None) -> None:
    """Judge the MIG declaration in FILE (- is standard input); no GPU is asked.

    Without FILE, the configurations that NVIDIA publishes for the product of --gpu. Exits 0 where it is valid, and with
    --gpu can be placed; 3 where it is refused, with the path of every mistake; 2 where it cannot be placed, with the
    nearest layouts that can; 1 where nobody has verified the places of that product's instances; 64 usage.
    """
    from gpunode.components.mig.check import check as judged
    from gpunode.components.mig.check import refused_json
    from gpunode.settings.mig_parted.declaration import load_declaration, published, read_declaration, selected
    from gpunode.settings.mig_parted.document import DeclarationError

    if wants_all and name is not None:
        raise click.UsageError("give either --config NAME or --all")
    if file is None and gpu is None:
        raise click.UsageError("give FILE, or --gpu PRODUCT for the configurations that are published for it")
    tell_of(source=None if file is None else "standard input" if str(file) == "-" else str(file))
    target = None if gpu is None else _target(gpu)
    try:
        if file is not None and str(file) == "-":
            declaration = load_declaration(sys.stdin.buffer, "standard input")
        elif file is not None:
            declaration = read_declaration(file)
        elif target is not None:
            declaration = published(target.product)
        names = tuple(declaration.configs) if wants_all and declaration.configs else (selected(declaration, name),)
    except DeclarationError as error:
        if is_json():
            say_document(refused_json(error.source, error.mistakes))
        complain(str(error), error.code)
        sys.exit(ExitCode.INPUT_REFUSED)
    report = judged(declaration, names, target)
    if is_json():
        say_document(report.to_json())
    elif text := as_text(report, columns(), is_quiet()):
        say(text)
    sys.exit(report.exit_code)


def _target(text: str) -> Target:
    from gpunode.base import tables
    from gpunode.components.mig.check import target
    from gpunode.settings.mig_parted.document import shown

    found = target(text)
    if found is None:
        products = ", ".join(tables.mig().products)
        raise click.UsageError(
            f"--gpu {shown(text)}: no product with MIG that is known; use one of {products}, or 0xID"
        )
    return found


def as_text(report: Report, columns: int = UNBOUND, quiet: bool = False) -> str:
    """Return what a person reads: the verdict on each configuration, its entries with their places, and cautions.

    quiet: the configurations that cannot be placed, or of which nobody knows, alone
    """
    from gpunode.components.mig.goal import Verdict
    from gpunode.settings.mig_parted.document import word

    lines: list[str] = []
    where = f" on {report.target.product}" if report.target else ""
    for config in report.configs:
        if quiet and config.verdict in (None, Verdict.PLACED):
            continue
        said = f"{report.source}: {word(config.name)}: {config.verdict or 'valid'}{where}"
        lines.append(said if config.code is None else with_code(said, config.code))
        if report.target is not None:
            for entry in config.entries:
                lines += _entry(entry)
            if not any(entry.judged for entry in config.entries):
                lines.append("  no entry is for this GPU: it would be left as it is")
    lines += [] if quiet else [with_code(f"caution: {caution}", caution.code) for caution in report.cautions]
    return fold_lines("\n".join(lines), columns)


def _entry(report: EntryReport) -> list[str]:
    from gpunode.components.mig.device_filter import Match
    from gpunode.components.mig.placement import text

    entry, judged = report.entry, report.judged
    gpus = "every GPU" if entry.devices is None else f"GPU {', '.join(map(str, entry.devices)) or 'none'}"
    head = f"  {entry.path} ({gpus}): "
    if judged is None:
        return [head + ("a later entry counts instead" if report.overridden else "not for this GPU")]
    board = " (if it is a board with that subsystem)" if report.match is Match.MAYBE else ""
    if not entry.mig_enabled:
        return [f"{head}MIG off{board}"]
    if judged.reason is not None:
        nearest = "; ".join(text(layout) for layout in report.nearest)
        return [f"{head}{judged.verdict}{board}: {judged.reason}", f"    nearest that fit: {nearest}"]
    if judged.instances is None:
        return [f"{head}fits{board}, as published; where each instance goes is the GPU's to choose"]
    places = " ".join(_place(str(each), each.compute) for each in judged.instances)
    return [f"{head}{places or 'no instance'}{board}"]


def _place(text: str, compute: tuple[int, ...]) -> str:
    return text if len(compute) == 1 else f"{text} ({' + '.join(f'{size}c' for size in compute)})"
