"""Are the GPUs divided as the MIG configuration says, and will they be after the next boot?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode.base.comparison import RUN, compared
from gpunode.base.subject import Subject
from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass
from gpunode.mig.boot import NAME
from gpunode.mig.target import Target, TargetError, held_back, instance, targets
from gpunode.node import Node
from gpunode.settings import Settings


def mig(settings: Settings, node: Node) -> Iterator[Finding]:
    """Judge mode and instances of every GPU that the configuration is for, and what brings them back at a boot."""
    if settings.mig.config is None:
        # A node that lost its label is not asked to lose its layout.
        if node.mig_boot.is_there and not settings.mig.config_from_label:
            yield compared("mig", Subject.SERVICE.of(NAME), "there", "none", False)
        return
    try:
        every = targets(settings.mig, node.pci.gpus, node.mig)
    except TargetError as error:
        item = compared("mig", Subject.MIG_TARGET, "not applied", settings.mig.config, False, cause=str(error))
        if node.driver.reboot_pending:
            item = replace(
                item, finding_class=FindingClass.REBOOT_PENDING, cause="it is applied by the driver on disk",
                remedy="boot the node, and run again", disturbs=Disturbance.reboot,
            )  # fmt: skip
        yield item
        return
    containers = node.containerd.shims + node.docker.containers
    waits = held_back(every, Disturbance[settings.disruption.allow], containers)
    for item in _as_asked(every, node):
        yield _waiting(item, containers) if waits else item


def _as_asked(every: tuple[Target, ...], node: Node) -> Iterator[Finding]:
    for target in every:
        yield _mode(target)
        yield _instances(target)
    yield from _next_boot(every, node)


def _mode(target: Target) -> Finding:
    gpu = target.gpu
    found = gpu.current if gpu.settled else f"{gpu.current}, {gpu.pending} after the next reset"
    good = (gpu.current, gpu.pending) == (target.mode, target.mode)
    what = Subject.MIG_MODE.of(str(gpu.index))
    item = compared("mig", what, found, target.mode, good, disturbs=target.disturbs)
    if target.waits:
        return replace(
            item, finding_class=FindingClass.REBOOT_PENDING, cause="the mode waits for a reset of the GPU, or a boot",
            remedy="boot the node, or run again while nothing uses the GPU", disturbs=Disturbance.reboot,
        )  # fmt: skip
    return item


def _instances(target: Target) -> Finding:
    there = " ".join(str(instance(each)) for each in target.gpu.instances or ())
    wanted = " ".join(map(str, target.instances))
    what = Subject.MIG_INSTANCES.of(str(target.gpu.index))
    good = target.change.is_nothing and not target.learns
    return compared("mig", what, there or "none", wanted or "none", good, cause=target.steps, disturbs=target.disturbs)


def _waiting(item: Finding, containers: int) -> Finding:
    if item.finding_class is not FindingClass.DRIFT:
        return item
    return replace(
        item, finding_class=FindingClass.RESTART_PENDING,
        cause=f"{item.cause or 'instances or modes are to change'}, and {containers} containers run",
        remedy="set disruption.allow to 'reset', or run when the node is drained", disturbs=Disturbance.reset,
    )  # fmt: skip


def _next_boot(every: tuple[Target, ...], node: Node) -> Iterator[Finding]:
    boot = node.mig_boot
    recorded = boot.record == tuple(each.record for each in every)
    there = "unreadable" if not boot.readable else "none" if boot.record is None else "another"
    yield compared("mig", Subject.MIG_RECORD, "this" if recorded else there, "this", recorded, remedy=RUN)
    yield compared("mig", Subject.AT_BOOT.of(NAME), "yes" if boot.enabled else "no", "yes", boot.enabled)
    if boot.failed:
        cause = f"it did not bring the layout back; see `journalctl -u {NAME}`"
        yield compared("mig", Subject.SERVICE.of(NAME), "failed", "done", False, cause=cause)
