"""A lab's cluster from its start to its end: control plane (or a given one), nodes, and kubelets or their stand-in."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

from gpunode.lab.cache import locked
from gpunode.lab.cluster import control_plane, real_kubelet, registration, stand_in_process
from gpunode.lab.cluster.kubectl import program, ready
from gpunode.lab.cluster.programs import node_programs, programs
from gpunode.lab.errors import LabError
from gpunode.lab.nodes import nodes
from gpunode.lab.state import lab_folder, lab_name, labs_folder, read_json, told_command, write_json

Report = Callable[[str], None]

_STATE = "cluster.json"


def up(
    lab: str,
    report: Report = lambda line: None,
    given_programs: Path | None = None,
    given: Path | None = None,
    *,
    real_kubelets: bool = False,
) -> Path:
    """Bring the cluster of a lab up whose nodes are up, and return its kubeconfig; what runs already is kept.

    + given_programs: folder with the control plane's four programs
    + given: kubeconfig of a cluster that there is, to be used instead; the lab's nodes are registered there
    + real_kubelets: whether the nodes, which have containerd, get real ones; else their kubelets are SIMULATED

    Raise LabError.
    """
    lab = lab_name(lab)
    if given is not None and given_programs is not None:
        raise LabError("--kubeconfig and --cluster-programs: a cluster that there is needs no programs; leave one out")
    if given is not None and real_kubelets:
        raise LabError(
            "--kubeconfig and --real-kubelets: real kubelets join the lab's own cluster alone; leave one out"
        )
    with locked(labs_folder() / f"{lab}.lock"):
        every = nodes(lab)
        if not every:
            raise LabError(f"lab {lab} is not up: run `{told_command(lab, 'up')}`")
        _check_same(lab, given, real_kubelets)
        if given is None:
            kubeconfig = lab_folder(lab) / "kubeconfig"
            found = programs(report, given_programs)
            control_plane.start(folder(lab), found, kubeconfig, report, real_kubelets=real_kubelets)
        else:
            kubeconfig = given.resolve()
            if not ready(kubeconfig):
                raise LabError(f"--kubeconfig {given}: no API server is ready behind it")
        state = {"kubeconfig": str(kubeconfig), "given": given is not None, "real_kubelets": real_kubelets}
        write_json(lab_folder(lab) / _STATE, state)
        folder(lab).mkdir(exist_ok=True)
        folder(lab).chmod(0o700)
        if real_kubelets:
            takes = node_programs(report, given_programs)
            for node in every:
                real_kubelet.begin(folder(lab), node, takes, kubeconfig, report)
            return kubeconfig
        port = stand_in_process.start(folder(lab), kubeconfig, lab, report)
        registration.register(kubeconfig, lab, every, port, report)
        return kubeconfig


def down(lab: str, report: Report = lambda line: None) -> None:
    """End what belongs to the lab's cluster; fine if it has none. In a given cluster, its Node objects go."""
    lab = lab_name(lab)
    state = read_json(lab_folder(lab) / _STATE)
    if not state and not folder(lab).exists():
        return
    with locked(labs_folder() / f"{lab}.lock"):
        stand_in_process.stop(folder(lab))
        real_kubelet.end_tunnels(folder(lab))
        if state.get("given"):
            try:
                registration.unregister(Path(state["kubeconfig"]), lab)
            except LabError as error:
                report(f"cluster: the lab's nodes could not be removed from it: {error}")
        control_plane.stop(folder(lab))
        shutil.rmtree(folder(lab), ignore_errors=True)
        for name in (_STATE, "kubeconfig"):
            (lab_folder(lab) / name).unlink(missing_ok=True)
        report("cluster: removed")


def folder(lab: str) -> Path:
    """Return the folder of a lab's cluster: its processes' state and logs."""
    return lab_folder(lab_name(lab)) / "cluster"


def kubeconfig_of(lab: str) -> Path | None:
    """Return the kubeconfig of a lab's cluster; None where it has none."""
    found = read_json(lab_folder(lab_name(lab)) / _STATE).get("kubeconfig")
    return None if found is None else Path(found)


def how_to_reach(kubeconfig: Path) -> str:
    """Return the command by which a person looks into the cluster."""
    return shlex.join([str(program()), "--kubeconfig", str(kubeconfig), "get", "nodes"])


def _check_same(lab: str, given: Path | None, real_kubelets: bool) -> None:
    state = read_json(lab_folder(lab) / _STATE)
    wanted = str(lab_folder(lab) / "kubeconfig") if given is None else str(given.resolve())
    if state and state["kubeconfig"] != wanted:
        raise LabError(
            f"lab {lab} has a cluster by {state['kubeconfig']} already: ask for that one, or take the lab down first "
            f"by `{told_command(lab, 'down')}`"
        )
    if state and state.get("real_kubelets", False) != real_kubelets:
        raise LabError(
            f"lab {lab} has a cluster whose kubelets are {'SIMULATED' if real_kubelets else 'real'} already: ask for "
            f"those, or take the lab down first by `{told_command(lab, 'down')}`"
        )
