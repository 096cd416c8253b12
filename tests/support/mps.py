"""Helpers and data for the tests of mps."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, replace
from typing import Any

from pyinfra.context import ctx_host

from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding, FindingClass, NodeReport
from gpunode.components.mps.change import APPLY, PATHS, actual_digests, desired_files
from gpunode.components.mps.daemon import UNITS, Daemon, control_text, daemons
from gpunode.components.mps.state import Mps, MpsDaemon
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.gpu import Mps as MpsFact
from gpunode.facts.node import Node as NodeFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.fleet.rollout.choice import left_out
from gpunode.node.components import decisions
from gpunode.node.plan import PlannedStep, plan
from gpunode.node.verdict import judge
from gpunode.operations import mps as operation
from gpunode.operations.verify import verified
from gpunode.settings import settings_from
from gpunode.settings.sharing import MpsSettings
from gpunode.system.gpu import Gpu, Gpus, MigMode
from gpunode.system.pci import PciGpu, PciGpus
from gpunode.system.transaction import Journal
from tests.support.simulated_host import Host, commands
from tests.support.verify import GOOD

H100 = PciGpu("0000:1a:00.0", "2330", "GH100 [H100 SXM5 80GB]", "hopper")


ROW = Gpu(
    0, "GPU-1", "NVIDIA H100", "0000:1a:00.0", "580.95.05", 81559, MigMode("Disabled", "Disabled"),
    "Exclusive_Process", "Enabled",
)  # fmt: skip


PROGRAM = "/usr/bin/nvidia-cuda-mps-control"


def asked(**more: Any) -> MpsSettings:
    return settings_from({"mps": {"enabled": True, **more}}).mps


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def running(daemon: Daemon, **more: Any) -> MpsDaemon:
    readings = tuple((item.question, item.answer) for item in daemon.controls)
    digest = digest_of(control_text(daemon.controls))
    found = MpsDaemon(daemon.unit, True, True, True, False, digest, readings, 0, 0, exclusive=True)
    return replace(found, **more)


def settled(settings: MpsSettings, gpus: int = 1, **more: Any) -> Mps:
    """Return a node on which all is as desired, but for what `more` says of every daemon."""
    wanted = daemons(settings, range(gpus))
    files = {path: digest_of(text) for path, text in desired_files(wanted, settings, PROGRAM).items()}
    ours = tuple((path, digest) for path, digest in files.items() if path in (*UNITS, APPLY, *PATHS))
    return Mps(PROGRAM, ours, tuple(running(daemon, **more) for daemon in wanted))


def run(host: Host, state: Mps, settings: MpsSettings, gpus: int = 1, allowed: bool = True, **row: Any) -> list[str]:
    rows = tuple(replace(ROW, index=index, **row) for index in range(gpus))
    journal = Journal(None, None, None, False)
    host.readings |= {MpsFact: state, GpusFact: Gpus("ok", 0, None, rows), TransactionJournal: journal}
    wanted = daemons(settings, range(gpus)) if settings.enabled else ()
    found = []
    for command in operation.daemons._inner(desired=wanted, settings=settings, restart_allowed=allowed):
        stdin = getattr(command, "connector_arguments", {}).get("_stdin")
        found.append(base64.b64decode(stdin[0]).decode() if stdin else str(command))
    return found


@dataclass(frozen=True)
class Outcome:
    """Hold what drift, plan, rollout, verdict and a run say of MPS on a node.

    told: variable -> value of what the transaction is given, and the paths that it writes; fails: the verdict does.
    """

    bad: tuple[Finding, ...]
    steps: tuple[PlannedStep, ...]
    leaves_out: FindingClass | None
    fails: bool
    told: dict[str, str] | None
    noop: str | None
    refusal: str | None


def outcome(
    wants: dict[str, Any] | None,
    had: dict[str, Any] | None = None,
    gpus: int = 1,
    allow: str = "restart",
    each: dict[str, Any] | None = None,
    first: dict[str, Any] | None = None,
    second: dict[str, Any] | None = None,
    files: dict[str, str | None] | None = None,
    state: dict[str, Any] | None = None,
    row: dict[str, Any] | None = None,
    more: dict[str, Any] | None = None,
) -> Outcome:
    """Return what is said of a node where a run by `had` was the last one, and that differs so from what it left.

    each, first, second: daemons; files: path -> digest, None where it is gone; row: of GPUs; more: other settings.
    """
    asks = {"driver": {"version": "580.95.05"}, "disruption": {"allow": allow}, **(more or {})}
    settings = settings_from({**asks, "mps": {"enabled": wants is not None, **(wants or {})}})
    there = settled(asked(**had), gpus, **(each or {})) if had is not None else Mps(PROGRAM)
    own = zip(there.daemons, [first or {}, second or {}], strict=False)
    changed = {path: digest for path, digest in {**dict(there.files), **(files or {})}.items() if digest is not None}
    there = replace(there, daemons=tuple(replace(one, **change) for one, change in own))
    there = replace(there, files=tuple(changed.items()), **(state or {}))
    rows = tuple(replace(ROW, index=index, **(row or {})) for index in range(gpus))
    known = Gpus("ok", 0, None, rows)
    node = replace(
        GOOD, mps=there, gpus=known, pci=PciGpus((H100,) * gpus), containerd=replace(GOOD.containerd, shims=3)
    )
    nothing = Journal(None, None, None, False)
    readings: dict[type, Any] = {MpsFact: there, GpusFact: known, TransactionJournal: nothing, NodeFact: node}
    host, verdict = Host(readings), Host(readings)
    desired = daemons(settings.mps, range(gpus)) if settings.mps.enabled else ()
    with ctx_host.use(host):
        made = commands(
            operation.daemons, host, desired=desired, settings=settings.mps, restart_allowed=allow != "nothing"
        )
    with ctx_host.use(verdict):
        commands(verified, verdict, settings=settings)
    report = NodeReport("gpu-1", judge(settings, node))
    left = left_out(report, everyone=False, allowed=Disruption[allow])
    return Outcome(
        tuple(item for item in decisions(settings, node)["mps"].findings if item.finding_class is not FindingClass.OK),
        tuple(step for step in plan(settings, node).steps if step.component == "mps"),
        None if left is None else left.finding_class, bool(verdict.refusals), _told(made, there),
        "".join(host.noops) or None, "".join(host.refusals) or None,
    )  # fmt: skip


def _told(made: list[str], there: Mps) -> dict[str, str] | None:
    if not made:
        return None
    script = base64.b64decode(made[-1].rpartition("<<< ")[2]).decode()
    names = ("read", "removed", "written", "gone", "restart", "told", "modes", "mode")
    found = {name: re.search(rf"^{name}=('[^']*'|\S*)$", script, re.M) for name in names}
    told = {name: match[1].strip("'") for name, match in found.items() if match}
    for path, digest in actual_digests(there).items():
        if set(digest) != {"0"}:
            told["read"] = told["read"].replace(f"{path} {digest}", f"{path} as-it-is")
    return {**told, "written": " ".join(line.split()[0] for line in told["written"].splitlines())}
