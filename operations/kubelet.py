"""A kubelet's configuration, changed as one transaction: proven by a kubelet that stays well, put back if it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from gpunode.base.disruption import Disruption, Drain
from gpunode.base.shell_file import script_file
from gpunode.components.kubelet.decide import Desired, decide
from gpunode.facts.cluster import Kubelet as KubeletFact
from gpunode.operations.failure import node_operation, read_fact
from gpunode.operations.keeping import digest_of_text
from gpunode.operations.runtime import to_carry_out
from gpunode.operations.script import encoded
from gpunode.operations.transaction import Transaction, refuse_failed, settled, transaction_command
from gpunode.settings.kubernetes import KubeletSettings
from gpunode.system.kubelet import NOTED

_CHANGE = Transaction("kubelet", script_file("kubelet"))


@node_operation
def configuration(settings: KubeletSettings, allowed: str, drain: Drain | None = None) -> Iterator[Any]:
    """Keep the kubelet at what is asked, in a drop-in or its file; what gpunode set and is not asked any more goes.

    + allowed: disruption.allow: where it is nothing, a kubelet with pods is not restarted
    """
    yield from settled(_CHANGE)
    state = read_fact(KubeletFact, "the kubelet's state")
    decision = decide(Desired(settings, Disruption[allowed]), state)
    if state.configuration is None and settings.asks:
        said = f"kubelet: {decision.findings[0].cause}"
        host.log(said)
    else:
        said = "the kubelet goes by what is asked" if settings.asks else "nothing of gpunode's in the kubelet's files"
    change = to_carry_out(decision, said, "the kubelet is to be restarted")
    if change is None:
        return
    files = dict(state.files or ())
    cleared, of_cleared = change.cleared or ("", "")
    refuse_failed(_CHANGE, change.target)
    if drain is not None and change.felt and state.pods:
        yield from drain("the kubelet is to admit its pods anew")
    yield transaction_command(
        _CHANGE,
        change.target,
        path=change.path,
        read=digest_of_text(files.get(change.path)) if change.path else "",
        text="-" if change.text is None else encoded(change.text),
        cleared=cleared,
        cleared_read=digest_of_text(files.get(cleared)),
        cleared_text=encoded(of_cleared),
        cpus=f"{state.root_dir.rstrip('/')}/cpu_manager_state" if change.cpu_manager else "",
        policy=change.cpu_manager or "",
        health=state.health or "",
        timeout="90",
        stays="12",
        proc="/proc",
        noted=NOTED,
        reads="\n".join(change.reads) if settings.asks else "",
    )
