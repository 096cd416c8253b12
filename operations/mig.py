"""MIG layouts: reached by the smallest change, in one transaction; what fails brings the former layout back."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.base.decision import Decision, target_digest
from gpunode.base.disruption import Disruption, Drain
from gpunode.base.reading import Unknown
from gpunode.base.shell_file import script_file
from gpunode.components.mig.boot import FUNCTIONS, NAME, RECORD, SCRIPT, UNIT, MigBoot, desired_files
from gpunode.components.mig.decide import MODE, Actual, Desired, MigChange, decide
from gpunode.components.mig.state import Mig
from gpunode.components.runtimes.runtime import CDI_MARK, OWN_SPECIFICATION
from gpunode.facts.gpu import Mig as MigFact
from gpunode.facts.gpu import MigBoot as MigBootFact
from gpunode.kubernetes.device_plugin.promise import mig_state
from gpunode.operations.cluster_labels import mig_at_work, mig_not_known
from gpunode.operations.control_plane import containers, unanswered, wait_without_cluster
from gpunode.operations.driver import driver_state
from gpunode.operations.failure import OperationRefused, WaitsForCluster, node_operation, read_fact
from gpunode.operations.keeping import UNREAD, digest_as_read
from gpunode.operations.mig_in_cluster import followed, refuse_held, set_aside, unsettled
from gpunode.operations.own_files import keeps, keeps_all
from gpunode.operations.reboot import FORGET, new_boot
from gpunode.operations.script import encoded, script_command
from gpunode.operations.transaction import Transaction, refuse_failed, settled, transaction_command
from gpunode.settings import Settings
from gpunode.settings.mig import MigSettings
from gpunode.system.pci import PciGpu
from gpunode.system.running_boot import RECORD as REBOOTS

# For what the node is booted, before the digest of what is asked.
# Brings a node's GPUs from one layout to another, and back where that fails.
# nvidia-smi names the reason last. The script of the boot stays as earlier versions wrote it to the nodes.
TRANSACTION = Transaction("mig", f"{FUNCTIONS.replace('cut -c 1-160', 'cut -c 1-2000')}\n{script_file('mig')}")
BOOTED = "mig/"
_FORGET = script_file("mig_forget")


@node_operation
def layout(
    settings: MigSettings,
    gpus: Sequence[PciGpu],
    allowed: str,
    timeout: int = 900,
    drain: Drain | None = None,
    node_of: Settings | None = None,
) -> Iterator[Any]:
    """Bring the GPUs to the layout that is asked for, and keep it over reboots; no configuration: what does that goes.

    + gpus: the node's GPUs by PCI address
    + allowed: disruption.allow: what it does not allow is left as it is where containers run; at `reboot` the node is
      booted where a mode waits for that alone
    + timeout: seconds within which it must then answer from its new boot
    + node_of: the host's settings where it is a node of a cluster, whose device plugin would hold its GPUs
    """
    nobody_asks = settings.config is None and not settings.config_from_label
    yield from settled(TRANSACTION, gives_up=nobody_asks, meanwhile=partial(unsettled, node_of))
    mig_at_work(False)
    boot = _boot()
    desired = Desired(settings, tuple(gpus), Disruption[allowed], node_of is not None)
    if nobody_asks:
        for path in (UNIT, SCRIPT):
            keeps(path, None)
        if decide(desired, Actual(Mig("absent"), boot)).steps:
            yield script_command(_FORGET, name=NAME, unit=UNIT, script=SCRIPT, record=RECORD)
        else:
            host.noop("MIG is no concern of gpunode's")
        return
    if settings.config is None:
        if unanswered(node_of) is not None:
            raise WaitsForCluster("the MIG configuration of the node's label waits for the cluster")
        host.noop("the node has no label nvidia.com/mig.config: MIG is left as it is")
        return
    decision = _decided(desired)
    change = _change(decision)
    if decision.steps and change is None:
        if host.state is None or not host.state.is_executing:
            yield StringCommand("true")  # the driver comes with an operation before this one
        else:
            host.noop("MIG waits for the boot into the driver on disk")
        return
    if (boot.booted_for or "").startswith(BOOTED) and not (change is not None and change.waits):
        # It helped, and the run that asked for it did not live to see that.
        yield script_command(FORGET, record=REBOOTS)
    done = yield from _carried_out(decision, desired, drain, node_of)
    # Where instances may stand is known of some GPUs only when their mode is on: they take a second transaction.
    if change is not None and change.learns:
        decision = _decided(desired, done)
        change = _change(decision)
        if change is None or not change.learns:
            then = yield from _carried_out(decision, desired, drain, node_of)
            done = "; ".join(filter(None, (done, then)))
    if allowed != "reboot":
        return
    change = _change(_decided(desired, done))
    if change is not None and change.waits:
        yield from new_boot(f"{BOOTED}{target_digest(*change.goals)[:16]}", timeout, drain=drain)
        change = _change(_decided(desired, f"{done}; a boot"))
        if change is not None and change.said:
            raise OperationRefused(
                f"mig: the node has rebooted, and still there is to do: {change.said}. It is not rebooted for that "
                f"again. Remedy: see `journalctl -u {NAME}` on it"
            )
        yield script_command(FORGET, record=REBOOTS)


def _decided(desired: Desired, done: str = "") -> Decision[MigChange]:
    """Decide by the node as it is now; done: what this run has done to its GPUs before."""
    executing = host.state is not None and host.state.is_executing
    actual = Actual(read_fact(MigFact, "the state of MIG"), _boot(), driver_comes=not executing)
    decision = decide(desired, actual)
    # Asked only where it makes a difference.
    if decision.refusal is not None:
        decision = decide(desired, replace(actual, reboot_pending=driver_state().reboot_pending))
    elif _change(decision) is not None and desired.allowed < Disruption.reset:
        decision = decide(desired, replace(actual, containers=containers()))
    if decision.refusal is None:
        return decision
    if isinstance(mig_state(desired.settings, desired.gpus, actual.mig), Unknown):
        mig_not_known()
    if not done:
        raise OperationRefused(f"mig: nothing was changed: {decision.refusal}")
    raise OperationRefused(
        f"mig: {decision.refusal}. What this run has done before stays as it is ({done}). Remedy: where a layout has "
        "no place, ask for one by `nvidia-smi mig -lgipp` on the node, or for MIG off there, and run again"
    )


def _change(decision: Decision[MigChange]) -> MigChange | None:
    return decision.steps[0].change if decision.steps else None


def _carried_out(
    decision: Decision[MigChange], desired: Desired, drain: Drain | None, node_of: Settings | None
) -> Generator[Any, Any, str]:
    """Yield the transaction that is needed, return what it did to GPUs; tell why where there is none, or it waits."""
    boot, files, change = _boot(), desired_files(), _change(decision)
    digests = dict(boot.files)
    keeps_all(files, digests)
    if change is None:
        gpus = sum(item.code == MODE.code for item in decision.findings)
        host.noop(f"MIG: {gpus} GPU(s) as desired")
        return ""
    if waits := decision.steps[0].waits:
        host.noop(f"reset pending: {waits} ({change.said})")
        host.log(f"reset pending: {change.said}, but {waits}")
        return ""
    keeps_all(files)
    refuse_failed(TRANSACTION, change.target)
    if change.said:
        host.log(change.said)
    if change.takes:
        wait_without_cluster(node_of, "a change of the MIG layout")
        refuse_held(node_of, change.containers, drain is not None)
    if change.takes and drain is not None:
        yield from drain(f"the GPUs are to be divided anew: {change.said}")
    if change.goal:
        yield from set_aside(node_of, change.takes)
    yield from followed(
        transaction_command(
            TRANSACTION,
            change.target,
            goal=change.goal,
            rest=change.rest,
            layout=change.layout or "",
            stop_units=" ".join(desired.settings.stop_units),
            reset="yes" if change.resets else "",
            boot="yes" if desired.allowed is Disruption.reboot else "",
            unit_path=UNIT,
            script_path=SCRIPT,
            record_path=RECORD,
            unit_read=digest_as_read(digests.get(UNIT)),
            script_read=digest_as_read(digests.get(SCRIPT)),
            record_read=digest_as_read(boot.record_digest) if boot.readable else UNREAD,
            name_of_unit=NAME,
            unit_text=encoded(files[UNIT]),
            script_text=encoded(files[SCRIPT]),
            cdi=OWN_SPECIFICATION,
            mark=CDI_MARK,
        )
    )
    return change.said


def _boot() -> MigBoot:
    return read_fact(MigBootFact, "what brings MIG back at a boot")
