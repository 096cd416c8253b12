"""kube-scheduler made to ask an extender: its configuration file and its static manifest, as one transaction.

The kubelet reads the manifest and starts the scheduler anew; nobody tells when. What runs is known by its command line,
since each configuration has a path of its own. Where the new one does not run and answer that it is well, the old
manifest comes back, and the old scheduler is waited for.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.base.shell_file import script_file
from gpunode.facts.scheduler import Scheduler
from gpunode.kubernetes.gpushare.configuration import FOLDER, Extender
from gpunode.kubernetes.gpushare.decide import DesiredScheduler, decide
from gpunode.kubernetes.gpushare.state import SchedulerState
from gpunode.operations.failure import OperationRefused, node_operation, require
from gpunode.operations.keeping import digest_as_read, digest_of_text
from gpunode.operations.transaction import Transaction, refuse_failed, settled, target_digest, transaction_command

_CHANGE = Transaction("scheduler", script_file("scheduler"))


@node_operation
def extended(extender: Extender | None, manifest: str, version: str | None, timeout: int) -> Iterator[Any]:
    """Keep this host's scheduler asking an extender, or none of gpunode's.

    Call it on a control-plane host; a host without a manifest has nothing to be taken back from.

    + extender: how it is reached; None: the scheduler runs as if gpunode had never been there
    + manifest: absolute path of the scheduler's static manifest
    + version: the cluster's, where the manifest's image says none
    + timeout: seconds within which the new scheduler has to be well
    """
    yield from settled(_CHANGE)
    state: SchedulerState = require(host.get_fact(Scheduler, manifest=manifest), "the scheduler")
    decision = decide(DesiredScheduler(extender, manifest, version), state)
    if decision.refusal is not None:
        raise OperationRefused(f"{decision.refusal}; nothing was changed on this host")
    change = next((step.change for step in decision.steps), None)
    if change is None:
        said = f"the scheduler {decision.findings[0].actual}"
        host.noop("there is no scheduler here" if state.manifest is None else said)
        return
    path, text = (change.configuration.path, change.configuration.text) if change.configuration else ("", "")
    target = target_digest(change.manifest, text)
    refuse_failed(_CHANGE, target)
    yield transaction_command(
        _CHANGE,
        target,
        manifest=manifest,
        own=FOLDER,
        path=path,
        option=f"--config={path}" if path else "",
        text=_base64(text),
        written=_base64(change.manifest),
        manifest_read=digest_of_text(state.manifest),
        path_read=digest_as_read(state.configurations.get(path)),
        health=change.health,
        timeout=str(timeout),
        proc="/proc",
        logs="/var/log/pods",
    )


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
