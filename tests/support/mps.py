"""What several tests share with unit/test_mps.py."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from typing import Any

from gpunode.components.mps import Daemon, Mps, MpsDaemon, control_text, daemons
from gpunode.components.mps.daemon import UNITS
from gpunode.components.mps.environment import PATHS
from gpunode.components.mps.files import APPLY, desired_files
from gpunode.facts.gpu import Gpus as GpusFact
from gpunode.facts.mps import Mps as MpsFact
from gpunode.facts.transaction import TransactionJournal
from gpunode.operations import mps as operation
from gpunode.settings import settings_from
from gpunode.settings.mps import MpsSettings
from gpunode.system.gpu import Gpu, Gpus, MigMode
from gpunode.system.pci import PciGpu
from gpunode.system.transaction import Journal
from tests.support.simulated_host import Host

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
