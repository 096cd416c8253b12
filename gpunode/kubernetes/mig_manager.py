"""The GPU Operator's MIG manager on a node: what it says of its work by the node's label, and in its log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from gpunode.base.findings import Finding
from gpunode.base.reading import ParseError
from gpunode.kubernetes.nodes.cluster_nodes import kubectl
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.kubernetes.nodes.labels import MIG_CONFIG, MIG_STATE
from gpunode.settings import Settings
from gpunode.settings.gpu_operator import METHOD

# Of the manager's pods, and of the nodes that they go to: those whose GPUs the operator knows to have MIG.
# source: gpu-operator, assets/state-mig-manager/0600_daemonset.yaml, controllers/state_manager.go
_SELECTOR = "app=nvidia-mig-manager"
_GOES_TO = ("nvidia.com/gpu.deploy.mig-manager", "true")
_DONE, _FAILED = "success", "failed"

_SEE_LOG = (
    f"see `kubectl --namespace {{namespace}} logs --selector {_SELECTOR}`, correct what it reports, and set the label "
    f"{MIG_CONFIG} again"
)
MIG_MANAGER = cluster_finding(
    "the operator's MIG manager on",
    "The GPU Operator's MIG manager has not done what the node's label asks for.",
    "The label nvidia.com/mig.config.state has its progress: pending and rebooting while it works, failed where "
    "it gave up. The log of its pod has the reason, such as a GPU in use.",
    name="mig-manager",
    remedies=(_SEE_LOG,),
)


def judge_mig_manager(settings: Settings, labels: Mapping[str, str]) -> Iterator[Finding]:
    """Yield whether the manager has done what the node's label asks of it.

    Nothing where nobody asks for the manager, or it does not go to the node.

    It says `pending` and `rebooting` while it is at work, and begins again when the label changes.
    source: nvidia/mig-parted, deployments/container/reconfigure-mig.sh

    + labels: the node's
    """
    if settings.device_plugin.method != METHOD or not settings.gpu_operator.mig_manager:
        return
    if MIG_CONFIG not in labels or _GOES_TO not in labels.items():
        return
    state, namespace = labels.get(MIG_STATE), settings.gpu_operator.namespace
    item = MIG_MANAGER.compared(
        state,
        _DONE,
        state == _DONE,
        of=labels[MIG_CONFIG],
        remedy=_SEE_LOG.format(namespace=namespace),
    )
    yield replace(item, by_person=True) if state == _FAILED else item


def is_about(finding: Finding) -> bool:
    """Say whether a finding is the manager's."""
    return finding.code == MIG_MANAGER.code


def asking_pods(settings: Settings, node: str) -> tuple[str, ...]:
    """Return the question for the manager's pods on a node."""
    where = ("--namespace", settings.gpu_operator.namespace, "--selector", _SELECTOR)
    by_node = ("--field-selector", f"spec.nodeName={node}")
    return kubectl(settings.kubernetes, "get", "pods", *where, *by_node, "--output", "json")


def parse_pods(answer: str) -> tuple[str, ...]:
    """Return the pods' names; raise ParseError where kubectl did not list any kind of thing."""
    try:
        return tuple(item["metadata"]["name"] for item in json.loads(answer)["items"])
    except (ValueError, KeyError, TypeError) as error:
        raise ParseError(f"kubectl listed no pods: {answer[:100]!r}") from error
