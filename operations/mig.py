"""MIG layouts: reached by the smallest change, in one transaction; what fails brings the former layout back."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from pyinfra import host
from pyinfra.api import StringCommand

from gpunode.disturbance import Disturbance
from gpunode.drain.commands import Drain
from gpunode.facts.containerd import Containerd
from gpunode.facts.docker import Docker
from gpunode.facts.mig import Mig as MigFact
from gpunode.facts.mig_boot import MigBoot as MigBootFact
from gpunode.facts.toolkit import CDI_MARK
from gpunode.mig.boot import NAME, RECORD, SCRIPT, UNIT, MigBoot
from gpunode.mig.record import lines_of
from gpunode.mig.state import Mig
from gpunode.mig.target import Target, TargetError, held_back, targets
from gpunode.operations.drain import emptied
from gpunode.operations.driver import driver_state
from gpunode.operations.failure import OperationRefused, known, node_operation
from gpunode.operations.keeping import UNREAD, digest_as_read
from gpunode.operations.mig_in_cluster import followed, set_aside, unsettled
from gpunode.operations.mig_transaction import FUNCTIONS, TRANSACTION
from gpunode.operations.own_files import keeps, keeps_all
from gpunode.operations.reboot import FORGET, new_boot
from gpunode.operations.script import script_command
from gpunode.operations.taking_part import mig_at_work
from gpunode.operations.transaction import refuse_failed, settled, target_digest, transaction_command
from gpunode.pci import PciGpu
from gpunode.reboot import RECORD as REBOOTS
from gpunode.settings import Settings
from gpunode.settings.mig import MigSettings
from gpunode.shell_file import script_file
from gpunode.template import rendered
from gpunode.toolkit.decide import OWN_SPECIFICATION

# For what the node is booted, before the digest of what is asked.
BOOTED = "mig/"
_FORGET = script_file("mig_forget")


@node_operation
def layout(
    asked: MigSettings,
    gpus: Sequence[PciGpu],
    allowed: str,
    timeout: int = 900,
    drain: Drain | None = None,
    node_of: Settings | None = None,
) -> Iterator[Any]:
    """Bring the GPUs to the layout that is asked for, and keep it over reboots; no configuration: what does that goes.

    + asked: which configuration
    + gpus: the node's GPUs by PCI address
    + allowed: disruption.allow: what it does not allow is left as it is where containers run; at `reboot` the node is
      booted where a mode waits for that alone
    + timeout: seconds within which it must then answer from its new boot
    + drain: how the node is emptied before anything is taken from its GPUs; None where it is not
    + node_of: the host's settings where it is a node of a cluster, whose device plugin would hold its GPUs
    """
    nobody_asks = asked.config is None and not asked.config_from_label
    yield from settled(TRANSACTION, gives_up=nobody_asks, meanwhile=partial(unsettled, node_of))
    mig_at_work(False)
    boot: MigBoot = known(host.get_fact(MigBootFact), "what brings MIG back at a boot")
    if nobody_asks:
        for path in (UNIT, SCRIPT):
            keeps(path, None)
        if boot.is_there:
            yield _forget()
        else:
            host.noop("MIG is no concern of gpunode's")
        return
    if asked.config is None:
        host.noop("the node has no label nvidia.com/mig.config: MIG is left as it is")
        return
    if _is_forecast():
        yield StringCommand("true")  # the driver comes with an operation before this one
        return
    if _driverless() and driver_state().reboot_pending:
        host.noop("MIG waits for the boot into the driver on disk")
        return
    wanted = _targets(asked, gpus)
    if (boot.booted_for or "").startswith(BOOTED) and not any(each.waits for each in wanted):
        # It helped, and the run that asked for it did not live to see that.
        yield script_command(FORGET, record=REBOOTS)
    done = yield from _change(wanted, asked, allowed, boot, drain, node_of)
    # Where instances may stand is known of some GPUs only when their mode is on: they take a second transaction.
    if any(each.learns for each in wanted):
        wanted = _targets(asked, gpus, done)
        if not any(each.learns for each in wanted):
            boot = known(host.get_fact(MigBootFact), "what brings MIG back at a boot")
            then = yield from _change(wanted, asked, allowed, boot, drain, node_of)
            done = "; ".join(filter(None, (done, then)))
    if allowed == "reboot" and any(each.waits for each in _targets(asked, gpus, done)):
        yield from new_boot(f"{BOOTED}{target_digest(*(each.goal for each in wanted))[:16]}", timeout, drain=drain)
        if waiting := [each for each in _targets(asked, gpus, f"{done}; a boot") if not each.is_reached]:
            said = "; ".join(f"GPU {each.gpu.index}: {each.steps}" for each in waiting)
            raise OperationRefused(
                f"mig: the node has rebooted, and still there is to do: {said}. It is not rebooted for that again; see "
                f"`journalctl -u {NAME}` on it"
            )
        yield script_command(FORGET, record=REBOOTS)


def _change(
    wanted: Sequence[Target], asked: MigSettings, allowed: str, boot: MigBoot, drain: Drain | None,
    node_of: Settings | None,
) -> Generator[Any, Any, str]:  # fmt: skip
    """Yield the transaction that is needed, return what it did to GPUs; tell why where there is none, or it waits."""
    ahead = [each for each in wanted if not each.is_reached]
    files, text = _files(), "\n".join(each.record for each in wanted)
    if lines_of(text) is None:
        raise OperationRefused(f"mig: a GPU gives a name that is none: {text[:200]!r}; nothing was changed")
    keeps_all(files, dict(boot.files))
    if not ahead and _comes_back(boot, files, text):
        host.noop(f"MIG: {len(wanted)} GPU(s) as asked")
        return ""
    said = "; ".join(f"GPU {each.gpu.index}: {each.steps}" for each in ahead)
    # Nobody asks for them where it is all the same.
    containers = 0 if Disturbance[allowed] >= Disturbance.reset else _containers()
    if held_back(ahead, Disturbance[allowed], containers):
        host.noop(f"reset pending: containers run, and disruption.allow is {allowed} ({said})")
        host.log(f"reset pending: {said}, but containers run and disruption.allow is {allowed}")
        return ""
    keeps_all(files)
    there = dict(boot.files)
    target = target_digest(*(each.goal for each in wanted), *asked.stop_units, allowed)
    refuse_failed(TRANSACTION, target)
    if ahead:
        host.log(said)
    takes = any(each.disturbs >= Disturbance.reset for each in ahead)
    if takes:
        yield from emptied(drain, f"the GPUs are to be divided anew: {said}")
    if ahead:
        yield from set_aside(node_of, takes)
    yield from followed(transaction_command(
        TRANSACTION, target,
        goal="\n".join(each.record for each in ahead),
        rest="\n".join(each.record for each in wanted if each not in ahead),
        layout=text, stop_units=" ".join(asked.stop_units), reset="" if containers else "yes",
        boot="yes" if allowed == "reboot" else "", unit_path=UNIT, script_path=SCRIPT, record_path=RECORD,
        unit_read=digest_as_read(there.get(UNIT)), script_read=digest_as_read(there.get(SCRIPT)),
        record_read=digest_as_read(boot.record_digest) if boot.readable else UNREAD,
        name_of_unit=NAME, unit_text=_encoded(files[UNIT]), script_text=_encoded(files[SCRIPT]),
        cdi=OWN_SPECIFICATION, mark=CDI_MARK,
    ))  # fmt: skip
    return said


def _comes_back(boot: MigBoot, files: Mapping[str, str], text: str) -> bool:
    """Say whether the layout comes back at a boot."""
    ours = dict(boot.files) == {path: _digest(content) for path, content in files.items()}
    return ours and boot.record == tuple(text.splitlines()) and boot.enabled and not boot.failed


def _targets(asked: MigSettings, gpus: Sequence[PciGpu], done: str = "") -> tuple[Target, ...]:
    """Return the targets by the GPUs as they are now; done: what this run has done to them before."""
    state: Mig = known(host.get_fact(MigFact), "the state of MIG")
    try:
        return targets(asked, gpus, state)
    except TargetError as error:
        if not done:
            raise OperationRefused(f"mig: {error}; nothing was changed") from None
        raise OperationRefused(
            f"mig: {error}. What this run has done before stays as it is ({done}). Where a layout has no place, ask "
            "for one by `nvidia-smi mig -lgipp` on the node, or for MIG off there, and run again"
        ) from None


def _is_forecast() -> bool:
    """Say whether this is the plan of a run in which the driver is still to come."""
    if host.state is not None and host.state.is_executing:
        return False
    return _driverless()


def _driverless() -> bool:
    state = host.get_fact(MigFact)
    return isinstance(state, Mig) and state.status in ("absent", "no driver", "no library", "mismatch")


def _containers() -> int:
    containerd = known(host.get_fact(Containerd), "containerd's state")
    docker = known(host.get_fact(Docker), "docker's state")
    return int(containerd.shims + docker.containers)


def _files() -> Mapping[str, str]:
    """Return path -> text of what brings the layout back at a boot."""
    return {
        UNIT: rendered("gpunode-mig-layout.service", script=SCRIPT, record=RECORD),
        SCRIPT: rendered(
            "gpunode-mig-layout", functions=FUNCTIONS, name=NAME, cdi=OWN_SPECIFICATION, mark=shlex.quote(CDI_MARK)
        ),
    }


def _forget() -> StringCommand:
    return script_command(_FORGET, name=NAME, unit=UNIT, script=SCRIPT, record=RECORD)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


__all__ = ["layout"]
