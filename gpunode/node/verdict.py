"""Judge a node: is what was asked what is there? Pure: settings and a reading in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from gpunode.base.comparison import while_refused
from gpunode.base.decision import Decision
from gpunode.base.findings import Finding, NodeSummary
from gpunode.base.verdicts import Refusal
from gpunode.components.runtimes import unmanaged
from gpunode.kubernetes.mig_label import asks
from gpunode.node import Node
from gpunode.node.components import decisions, own_files
from gpunode.node.machine import resolved
from gpunode.settings import Settings
from gpunode.system.applied import OwnFile


def summary(node: Node) -> NodeSummary:
    """Return the summary of a node: what is loaded before what is on the disk, nvidia-smi's names before the bus'."""
    driver = node.driver
    shown = tuple(gpu.name for gpu in node.gpus.gpus)
    on_bus = tuple(gpu.name or f"{gpu.vendor}:{gpu.device_id}" for gpu in node.pci.gpus)
    return NodeSummary(
        operating_system=node.operating_system.name,
        kernel=node.operating_system.kernel,
        driver=driver.loaded_version or driver.module_version,
        driver_flavour=driver.loaded_flavour if driver.loaded_version else driver.module_flavour,
        cuda=node.cuda.default_version,
        toolkit=node.toolkit.version,
        gpu_models=tuple(dict.fromkeys(shown or on_bus)),
        gpus_on_bus=len(on_bus),
        gpus=len(shown),
        gpunode=node.applied.gpunode,
    )


def judge(
    settings: Settings,
    node: Node,
    kept: Mapping[str, OwnFile] | None = None,
    decided: Mapping[str, Decision[Any]] | None = None,
    no_cluster: bool = False,
) -> tuple[Finding, ...]:
    """Return one finding per thing that the settings ask of a node, good ones included; arguments as for `judged`."""
    return judged(settings, node, kept, decided, no_cluster)[0]


def judge_apart(
    settings: Settings,
    node: Node,
    refused: Collection[Refusal],
    unjudged: Callable[[Exception], Finding],
    no_cluster: bool = False,
) -> tuple[Finding, ...]:
    """Return what `judge` returns; a component that cannot be judged has one finding that says so.

    refused: why preflight refuses the node: what is found of it then has no remedy that begins with a run
    unjudged: makes the finding of the error that a component's judge raised
    no_cluster: as in `decisions`
    """
    decided = decisions(
        resolved(settings, node), node, lambda name, error: replace(unjudged(error), component=name), no_cluster
    )
    try:
        findings = judge(settings, node, decided=decided)
    except Exception as error:
        findings = (*(item for each in decided.values() for item in each.findings), unjudged(error))
    if not refused:
        return findings
    # Where the label's MIG configuration is refused, it is not known what MIG should be.
    left_out = "mig" if asks(settings) and any(each.component == "mig" for each in refused) else None
    return tuple(while_refused(item) for item in findings if item.component != left_out)


def judged(
    settings: Settings,
    node: Node,
    kept: Mapping[str, OwnFile] | None = None,
    decided: Mapping[str, Decision[Any]] | None = None,
    no_cluster: bool = False,
) -> tuple[tuple[Finding, ...], Decision[Any]]:
    """Return the findings, and what is to be done about gpunode's own files, which follows from the others.

    kept: the own files that the run under way keeps; None outside of one, where the node's record tells
    decided: component -> decision, where that was made already
    no_cluster: as in `decisions`
    """
    decided = decisions(resolved(settings, node), node, no_cluster=no_cluster) if decided is None else decided
    findings = [item for decision in decided.values() for item in decision.findings]
    files = own_files(settings, node, decided, kept)
    return (*findings, *files.findings, *unmanaged.findings(settings, node.unmanaged)), files
