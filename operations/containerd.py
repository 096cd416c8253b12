"""containerd's runtimes, changed as one transaction: proven before the restart, put back if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from facts.containerd import Containerd
from gpunode.containerd.change import Placement, change, placed
from gpunode.containerd.drop_in import PATH as DROP_IN
from gpunode.containerd.editor import NVIDIA_RUNTIME, Runtimes
from gpunode.containerd.merged import restarts, runs_by
from gpunode.containerd.shadow import shadows, unexplained
from gpunode.containerd.state import Containerd as State
from gpunode.drain.commands import Drain
from gpunode.shell_file import script_file
from gpunode.toml_edit import ConfigurationRefused
from operations.failure import OperationRefused, known, node_operation
from operations.runtime import Program, changed, pending, ready, refuse_masked

PROGRAM = Program(
    name="containerd",
    unit="containerd.service",
    plugin="its CRI plugin",
    functions=script_file("containerd"),
)


@node_operation
def configuration(
    default_runtime: str, systemd_cgroup: bool, nvidia: bool, restart_allowed: bool, cdi: bool | None = None,
    placement: Placement = "auto", drain: Drain | None = None,
) -> Iterator[Any]:  # fmt: skip
    """Bring containerd's runtimes to what is asked, and restart it only where what it runs by differs from its files.

    + default_runtime: nvidia or runc
    + systemd_cgroup: SystemdCgroup of runc and nvidia
    + nvidia: whether there is a runtime nvidia
    + restart_allowed: if not, a node that runs containers is left as it is, with the restart pending
    + cdi: enable_cdi; None leaves it as it is
    + placement: root, drop-in, or auto: whichever is safe for the version
    + drain: how the node is emptied before a restart; None where it is not
    """
    yield from ready(PROGRAM)
    state = known(host.get_fact(Containerd), "containerd's state")
    if state.version is None:
        if host.state is not None and host.state.is_executing:
            raise OperationRefused(_missing(state))
        yield StringCommand("true")  # a forecast: the package comes with an operation before this one
        return
    asked = Runtimes(default=default_runtime, systemd_cgroup=systemd_cgroup, nvidia=nvidia, cdi=cdi)
    try:
        wanted = change(state, asked, placement)
        own_drop_in = placed(state, asked, placement) == "drop-in"
    except ConfigurationRefused as refusal:
        raise OperationRefused(f"{state.config_path}: {refusal}") from refusal
    writes = bool(wanted and wanted.files)
    if found := [*shadows(state, asked, own_drop_in)]:
        raise OperationRefused(
            f"what {state.config_path} is to say is overridden by a drop-in: {'; '.join(map(str, found))}. Mend that "
            "drop-in, or remove it (and its import, where it is one by name), then run again"
        )
    if not writes and (found := [*unexplained(state, asked)]):
        raise OperationRefused(
            f"{state.config_path} is right, but the merged configuration is not: {'; '.join(map(str, found))}. Look at "
            "its `imports` and at `containerd config dump`"
        )
    if state.active and state.cri_plugin is None and not (writes or state.stale):
        raise OperationRefused(
            "containerd runs, but `ctr plugins ls` does not tell how its CRI plugin is; nothing was changed. Look at "
            "`journalctl -u containerd` and run again"
        )
    if wanted is None:
        host.noop(f"containerd runs with default runtime {state.default_runtime}")
        return
    felt = restarts(state, wanted)
    if not restart_allowed and state.shims:
        if felt:
            pending(
                f"{state.shims} containers run and disruption.allow is nothing", "containerd's configuration changes"
            )
            return
        wanted = replace(wanted, act="nothing")
    refuse_masked(PROGRAM, state.masked)
    read = {state.config_path: state.config_text, DROP_IN: None, **{each.path: each.text for each in state.drop_ins}}
    yield from changed(
        PROGRAM, wanted, read, since=f"{state.configured_at} {state.unit_written_at}", loaded=runs_by(state),
        needs=NVIDIA_RUNTIME if nvidia else "", drain=drain if felt else None, config=state.config_path,
        binary=state.binary or "containerd",
    )  # fmt: skip


def _missing(state: State) -> str:
    if state.binary:
        return (
            f"{state.binary}, which the unit containerd.service runs, is missing; nothing was changed. Install its "
            "package again, or mend the unit"
        )
    return "containerd is not installed; set containerd.source or install it"


__all__ = ["PROGRAM", "configuration"]
