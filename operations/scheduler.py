"""kube-scheduler made to ask an extender: its configuration file and its static manifest, as one transaction.

The kubelet reads the manifest and starts the scheduler anew; nobody tells when. What runs is known by its command line,
since each configuration has a path of its own. Where the new one does not run and answer that it is well, the old
manifest comes back, and the old scheduler is waited for.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.base.shell_file import script_file
from gpunode.facts.scheduler import Scheduler
from gpunode.kubernetes.gpushare.configuration import FOLDER, Extender, SchedulerError
from gpunode.kubernetes.gpushare.patch import is_untouched
from gpunode.kubernetes.gpushare.state import SchedulerState, wanted
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
    if state.manifest is None:
        if extender is None:
            host.noop("there is no scheduler here")
            return
        raise OperationRefused(
            f"gpushare: {manifest} is not there: this is no control-plane host whose scheduler is a static pod; set "
            "gpushare.schedulers or gpushare.manifest, or gpushare.scheduler to 'theirs'"
        )
    if extender is None and is_untouched(state.manifest):
        # A cluster that never had gpushare may have a scheduler of any kind.
        host.noop("the scheduler asks no extender of gpunode's")
        return
    try:
        desired = wanted(state.manifest, extender, version)
    except SchedulerError as error:
        raise OperationRefused(f"gpushare: {manifest}: {error}\nnothing was changed on this host") from None
    path, text = (desired.configuration.path, desired.configuration.text) if desired.configuration else ("", "")
    written = not path or state.configurations.get(path) == _sha256(text)
    # The old one runs on for a moment after the manifest has changed; a plain one is told by its manifest alone.
    if desired.manifest == state.manifest and written and (not path or state.runs_by(path)):
        host.noop("the scheduler asks the extender" if path else "the scheduler asks no extender of gpunode's")
        return
    target = target_digest(desired.manifest, text)
    refuse_failed(_CHANGE, target)
    yield transaction_command(
        _CHANGE, target, manifest=manifest, own=FOLDER, path=path, option=f"--config={path}" if path else "",
        text=_base64(text), written=_base64(desired.manifest), manifest_read=digest_of_text(state.manifest),
        path_read=digest_as_read(state.configurations.get(path)), health=desired.health, timeout=str(timeout),
        proc="/proc", logs="/var/log/pods",
    )  # fmt: skip


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
