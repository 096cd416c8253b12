"""`gpunode lab`: throwaway nodes on this machine, with simulated GPUs."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from gpunode import ROOMS
from gpunode.base.findings import ExitCode
from gpunode.base.folding import fold
from gpunode.base.messages import command_error
from gpunode.base.terminal import say
from gpunode.cli.errors import end
from gpunode.cli.output import columns, is_json, is_quiet, output_option, say_document, talk
from gpunode.cli.selection import tell_of

# Raised when a key of the document goes away or changes its meaning; a new key raises nothing.
SCHEMA = 1
_FAILED = command_error(
    "lab.failed", "The lab on this machine could not do what the command needs.",
    "The lab makes throwaway nodes with podman. A program or a node is missing, or an image could not be built.",
    remedy="do what the message says",
)  # fmt: skip
F = TypeVar("F", bound=Callable[..., Any])
_Folder = click.Path(exists=True, file_okay=False, path_type=Path)
_File = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group()
def lab() -> None:
    """Throwaway nodes on this machine: real systemd, SSH and packages; the GPUs are SIMULATED."""


def _of_a_lab(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command say which lab; turn the lab's own errors, and the file system's, into a message and exit code 1."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        if not (ROOMS / "lab").is_dir():
            end("an installed gpunode has no lab: run `gpunode lab` from a checkout", _FAILED, ExitCode.ERROR)
        from gpunode.lab.errors import LabError
        from gpunode.lab.state import given

        tell_of(lab=given(kwargs["lab_asked"]))
        try:
            command(*args, **kwargs)
        except (LabError, OSError) as error:
            end(str(error), _FAILED, ExitCode.ERROR)

    return click.option("--lab", "lab_asked", metavar="NAME", help="Which lab; else $GPUNODE_LAB, else default.")(
        wrapped
    )


def _reporter() -> Callable[[str], None]:
    started = time.monotonic()
    return lambda line: talk(f"[{time.monotonic() - started:5.1f} s] {line}")


def _output(command: F) -> F:
    return output_option("the lab's nodes (docs/output.md)", "nothing")(command)


@lab.command()
@click.option("--nodes", "count", default=2, show_default=True, metavar="N", help="How many nodes.")
@click.option("--gpu", default="h100-80gb", show_default=True, metavar="MODEL", help="Model of the simulated GPUs.")
@click.option("--gpus", default=2, show_default=True, metavar="N", help="GPUs per node; 0 is a machine without any.")
@click.option(
    "--family",
    default="apt",
    show_default=True,
    metavar="NAME",
    help="Package manager: apt; or dnf, dnf5, zypper, pacman, on Debian that says it is another distribution "
    "(SIMULATED).",
)
@click.option("--nvidia-toolkit", is_flag=True, help="NVIDIA's own container toolkit, built with Go; not SIMULATED.")
@click.option("--converged", is_flag=True, help="New nodes are copies of one that a run has made a GPU node.")
@click.option("--recreate", is_flag=True, help="Make nodes anew that have other GPUs, or come from an older image.")
@click.option("--cluster", is_flag=True, help="A real Kubernetes control plane, too; kubelets and pods are SIMULATED.")
@click.option("--cluster-programs", metavar="DIR", type=_Folder, help="Its four programs, instead of building them.")
@click.option("--kubeconfig", metavar="FILE", type=_File, help="A cluster that there is, instead of one of its own.")
@click.option("--real-kubelets", is_flag=True, help="Real kubelets on nodes that have containerd (--converged).")
@_output
@_of_a_lab
def up(
    count: int,
    gpu: str,
    gpus: int,
    family: str,
    nvidia_toolkit: bool,
    converged: bool,
    recreate: bool,
    cluster: bool,
    cluster_programs: Path | None,
    kubeconfig: Path | None,
    real_kubelets: bool,
    lab_asked: str | None,
) -> None:
    """Bring nodes up; those that are up already are kept."""
    from gpunode.lab import converged as copied
    from gpunode.lab import nodes
    from gpunode.lab.cluster import cluster as clusters
    from gpunode.lab.state import lab_name, told_command

    if converged and family != "apt":
        raise click.UsageError(f"--converged copies a node whose package manager is apt, not {family}")
    if nvidia_toolkit and family != "apt":
        raise click.UsageError(f"--nvidia-toolkit is a repository for apt, not for {family}")
    if not cluster and (cluster_programs or kubeconfig or real_kubelets):
        raise click.UsageError(
            "--cluster-programs, --kubeconfig and --real-kubelets say which cluster: give --cluster, too"
        )
    name = lab_name(lab_asked)
    report = _reporter()
    root = copied.root(report, gpu, gpus, nvidia_toolkit=nvidia_toolkit) if converged else None
    every = nodes.up(
        name, count, gpu, gpus, report, renew=recreate, family=family, root=root, nvidia_toolkit=nvidia_toolkit
    )
    nodes_are = "node is" if len(every) == 1 else "nodes are"
    report(f"lab {name}: {len(every)} {nodes_are} up; `{told_command(name, 'ssh', every[0].name)}` enters one")
    if cluster:
        found = clusters.up(name, report, cluster_programs, kubeconfig, real_kubelets=real_kubelets)
        report(f"lab {name}: its cluster is up; {clusters.how_to_reach(found)}")
    _say_lab(name)


@lab.command("list")
@output_option("the lab's nodes (docs/output.md)", "the nodes that do not run")
@_of_a_lab
def list_nodes(lab_asked: str | None) -> None:
    """List the lab's nodes."""
    from gpunode.lab.state import lab_name, told_command

    name = lab_name(lab_asked)
    rows = _rows(name)
    if is_json():
        say_document(document(name, rows))
    elif is_quiet():
        for row in rows:
            if row["state"] != "running":
                say(f"{row['name']}: {row['state']}")
    elif not rows:
        say(f"lab {name} is not up: run `{told_command(name, 'up')}`")
    else:
        say(table(rows, columns()))


def _rows(name: str) -> list[dict[str, Any]]:
    """Return what is told of each node of a lab."""
    from gpunode.lab import nodes
    from gpunode.lab.vm import machine

    every = nodes.nodes(name)
    # podman shows a container only to its owner.
    states = nodes.states(name) if every and os.geteuid() == 0 else dict.fromkeys((node.name for node in every), "?")
    if machine.is_running(name):
        states[machine.NAME] = "running"
    told = ("name", "address", "gpus", "gpu", "family", "container")
    return [{name: getattr(node, name) for name in told} | {"state": states.get(node.name, "gone")} for node in every]


def table(rows: Sequence[Mapping[str, Any]], columns: int) -> str:
    """Return the nodes as a table; where a row does not fit, each node as a line of its own with its fields."""
    told = [
        {
            "NODE": str(row["name"]),
            "ADDRESS": str(row["address"]),
            "STATE": str(row["state"]),
            "GPUS (SIMULATED)": f"{row['gpus']} × {row['gpu']}",
            "CONTAINER": str(row["container"]),
        }
        for row in rows
    ]
    widths = {head: max([len(head), *(len(row[head]) for row in told)]) for head in told[0]}
    if sum(widths.values()) + len(widths) - 1 <= columns:
        lines = [dict(zip(widths, widths, strict=True)), *told]
        return "\n".join(" ".join(f"{row[head]:<{widths[head]}}" for head in widths).rstrip() for row in lines)
    folded = (
        fold(f"{name}: {', '.join(f'{head.lower()} {text}' for head, text in row.items())}", columns, "  ")
        for name, row in ((row.pop("NODE"), row) for row in told)
    )
    return "\n".join(folded)


def document(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what --output json prints of a lab."""
    from gpunode.base.document import head

    counts: dict[str, int] = {}
    for row in rows:
        counts[row["state"]] = counts.get(row["state"], 0) + 1
    return {**head(SCHEMA, {"nodes": counts}, ExitCode.GOOD, {"lab": name}), "nodes": list(rows)}


def _say_lab(name: str) -> None:
    if is_json():
        say_document(document(name, _rows(name)))


@lab.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--user", default="root", show_default=True, help="root, or operator (sudo without password).")
@click.argument("node")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@_of_a_lab
def ssh(node: str, command: tuple[str, ...], user: str, lab_asked: str | None) -> None:
    """Enter NODE over SSH, or run COMMAND there; the exit code, and all that is printed, is the command's.

    There is no --output: what ssh prints stays as it is.
    """
    from gpunode.lab import access, nodes
    from gpunode.lab.state import lab_folder, lab_name

    name = lab_name(lab_asked)
    found = nodes.node(name, node)
    line = access.ssh_command(lab_folder(name), found.address, user, found.port)
    os.execvp(line[0], [*line, *command])


@lab.command()
@_output
@_of_a_lab
def down(lab_asked: str | None) -> None:
    """Remove the lab's nodes and cluster, or its virtual machine, and their keys; fine if there is none."""
    from gpunode.lab import nodes
    from gpunode.lab.cluster import cluster as clusters
    from gpunode.lab.state import lab_name
    from gpunode.lab.vm import machine

    name, report = lab_name(lab_asked), _reporter()
    clusters.down(name, report)
    if not machine.down(name, report):
        nodes.down(name, report)
    _say_lab(name)


@lab.group()
def vm() -> None:
    """A virtual machine with a kernel of its own, emulated and so slow; its GPUs and their modules are SIMULATED."""


@vm.command("up")
@_output
@_of_a_lab
def vm_up(lab_asked: str | None) -> None:
    """Bring a virtual machine up as a lab of its own; `gpunode lab down` ends it."""
    from gpunode.lab.state import lab_name, told_command
    from gpunode.lab.vm import machine

    name = lab_name(lab_asked)
    report = _reporter()
    found = machine.up(name, report)
    enters = told_command(name, "ssh", found.name)
    report(f"lab {name}: {found.name} is up, with kernel {found.kernels[0]}; `{enters}` enters it")
    _say_lab(name)
