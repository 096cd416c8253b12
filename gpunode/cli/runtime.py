"""`gpunode runtime`: what a container runtime's configuration file would become."""

from __future__ import annotations

import difflib
from typing import IO

import click

from gpunode.base.findings import ExitCode
from gpunode.base.terminal import say
from gpunode.cli.errors import RUNTIME_REFUSED, end


@click.group()
def runtime() -> None:
    """Look at container runtimes' configuration files; nothing is changed."""


@runtime.command()
@click.option("--for", "program", required=True, type=click.Choice(["containerd", "docker"]), help="Whose file it is.")
@click.option("--version", required=True, help="The program's version, such as 1.7.24.")
@click.option("--default", default="nvidia", show_default=True, help="The default runtime: any that FILE has.")
@click.option("--systemd-cgroup/--no-systemd-cgroup", default=True, show_default=True, help="systemd's cgroup driver.")
@click.option("--nvidia/--no-nvidia", default=True, show_default=True, help="Whether there is a runtime nvidia.")
@click.option("--cdi/--no-cdi", default=None, help="Set CDI on or off; left as it is where neither is given.")
@click.option("--drop-in", "wants_drop_in", is_flag=True, help="Print containerd's drop-in instead; FILE is the root.")
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
    wants_diff: bool,
    file: IO[bytes] | None,
) -> None:
    """Print what FILE (`-`: standard input; not given: no file) would become.

    There is no --output: what is printed is that file, to the byte.

    Exits 0, or 3 with the reason where FILE is not to be edited, 64 on wrong usage.
    """
    if wants_drop_in and program != "containerd":
        raise click.UsageError("--drop-in is containerd's: docker reads one file")
    if default == "nvidia" and not nvidia:
        raise click.UsageError("--no-nvidia leaves no runtime nvidia to be the default: give --default runc")
    name = file.name if file is not None else "nothing"
    try:
        before = file.read().decode() if file is not None else None
        if program == "docker":
            after = _docker(before, version, default, systemd_cgroup, nvidia, cdi)
        else:
            after = _containerd(before, version, default, systemd_cgroup, nvidia, cdi, wants_drop_in)
    except ValueError as refusal:
        # UnicodeDecodeError is a ValueError as well: neither format may hold such bytes.
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


def _containerd(
    text: str | None, version: str, default: str, systemd_cgroup: bool, nvidia: bool, cdi: bool | None, apart: bool
) -> str:
    from gpunode.components.runtimes.containerd import drop_in, editor
    from gpunode.components.runtimes.runtime import Runtimes

    desired = Runtimes(default, systemd_cgroup, nvidia, cdi)
    if not apart:
        return editor.render(text, version, desired)
    made = drop_in.drop_in(text, version, desired)
    if not drop_in.is_imported(text, version):
        say(f'note: it counts only where the root file says `imports = ["{drop_in.PATH}"]`', err=True)
    return made


def _docker(text: str | None, version: str, default: str, systemd_cgroup: bool, nvidia: bool, cdi: bool | None) -> str:
    from gpunode.components.runtimes.docker import editor
    from gpunode.components.runtimes.runtime import Runtimes

    return editor.render(text, version, Runtimes(default, systemd_cgroup, nvidia, cdi))
