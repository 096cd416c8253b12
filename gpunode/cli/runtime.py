"""`gpunode runtime`: what a container runtime's configuration file would become."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

import click

from gpunode.base.findings import ExitCode
from gpunode.base.terminal import say
from gpunode.cli.errors import RUNTIME_REFUSED, end

if TYPE_CHECKING:
    from gpunode.components.runtimes.runtime import Runtimes

_PROGRAMS = ["containerd", "crio", "docker"]


@click.group()
def runtime() -> None:
    """Look at container runtimes' configuration files; nothing is changed."""


@runtime.command()
@click.option("--for", "program", required=True, type=click.Choice(_PROGRAMS), help="The program that reads FILE.")
@click.option("--version", required=True, help="The program's version, such as 1.7.24.")
@click.option("--default", default="nvidia", show_default=True, help="The default runtime: any that FILE has.")
@click.option("--systemd-cgroup/--no-systemd-cgroup", default=True, show_default=True, help="systemd's cgroup driver.")
@click.option("--nvidia/--no-nvidia", default=True, show_default=True, help="Add the runtime nvidia, or remove it.")
@click.option("--cdi/--no-cdi", default=None, help="Set CDI on or off; left as it is where neither is given.")
@click.option("--drop-in", "wants_drop_in", is_flag=True, help="Print containerd's drop-in instead; FILE is the root.")
@click.option("--with", "others", multiple=True, type=click.File("rb"), help="Another file that CRI-O reads, in order.")
@click.option("--diff", "wants_diff", is_flag=True, help="Print the difference as a unified diff.")
@click.argument("file", type=click.File("rb"), required=False)
def render(
    program: str,
    version: str,
    default: str,
    systemd_cgroup: bool,
    nvidia: bool,
    cdi: bool | None,
    wants_drop_in: bool,
    others: Sequence[IO[bytes]],
    wants_diff: bool,
    file: IO[bytes] | None,
) -> None:
    """Print what FILE (`-`: standard input; not given: no file) would become; CRI-O's is its drop-in 99-nvidia.toml.

    There is no --output: what is printed is that file, to the byte.

    Exits 0, or 3 with the reason where FILE is not to be edited, 64 on wrong usage.
    """
    from gpunode.components.runtimes.runtime import Runtimes

    if wants_drop_in and program != "containerd":
        raise click.UsageError(f"--drop-in is containerd's, not {program}'s")
    if program == "crio" and cdi is not None:
        raise click.UsageError("CRI-O always has CDI on: leave --cdi and --no-cdi out")
    if others and program != "crio":
        raise click.UsageError("--with is CRI-O's: of other programs only FILE decides")
    if default == "nvidia" and not nvidia:
        raise click.UsageError("--no-nvidia leaves no runtime nvidia to be the default: give --default runc")
    name = file.name if file is not None else "nothing"
    desired = Runtimes(default, systemd_cgroup, nvidia, cdi)
    try:
        before = file.read().decode() if file is not None else None
        if program == "crio":
            after = _crio(before, version, desired, {each.name: each.read().decode() for each in others})
        elif program == "docker":
            from gpunode.components.runtimes.docker import editor

            after = editor.render(before, version, desired)
        else:
            after = _containerd(before, version, desired, wants_drop_in)
    except ValueError as refusal:
        # UnicodeDecodeError is a ValueError too: no such file may hold these bytes.
        end(f"{name}: refused: {refusal}", RUNTIME_REFUSED, ExitCode.INPUT_REFUSED)
    from gpunode.node.preflight.newer import newer_caution

    if (caution := newer_caution(program, version, program)) is not None:
        say(f"caution: {caution}", err=True)
    if wants_diff:
        old = "" if wants_drop_in else before or ""
        lines = difflib.unified_diff(
            old.splitlines(keepends=True), after.splitlines(keepends=True), name, f"{name} (gpunode)"
        )
        after = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    click.echo(after, nl=False)


def _containerd(text: str | None, version: str, desired: Runtimes, apart: bool) -> str:
    from gpunode.components.runtimes.containerd import drop_in, editor

    if not apart:
        return editor.render(text, version, desired)
    made = drop_in.drop_in(text, version, desired)
    if not drop_in.is_imported(text, version):
        say(f'note: it counts only where the root file says `imports = ["{drop_in.PATH}"]`', err=True)
    return made


def _crio(text: str | None, version: str, desired: Runtimes, others: dict[str, str]) -> str:
    """Return CRI-O's drop-in; others: path -> text of the files that CRI-O reads besides it."""
    from gpunode.base.versions import at_least, major_minor
    from gpunode.components.runtimes.crio import editor, state
    from gpunode.settings.runtimes import first_crio_with_cdi

    if not at_least(major_minor(version), major_minor(first := first_crio_with_cdi())):
        raise ValueError(f"CRI-O {version} has no CDI. Remedy: install {first} or newer")
    return editor.render(text, state.merged(others, next(iter(others), "")), desired)
