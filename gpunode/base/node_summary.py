"""What a node is, in the few words by which a fleet is told apart: for reports, beside the findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True)
class NodeSummary:
    """Hold a node's versions, and its GPUs: how many are on the bus, and how many nvidia-smi shows.

    A version that is not there is None. `gpunode` is the one whose run was the last whole one on the node.
    """

    operating_system: str
    kernel: str
    driver: str | None
    driver_flavour: str | None
    cuda: str | None
    toolkit: str | None
    gpu_models: tuple[str, ...]
    gpus_on_bus: int
    gpus: int
    gpunode: str | None

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON types."""
        return {**asdict(self), "gpu_models": list(self.gpu_models)}


def summary_from(found: Mapping[str, Any]) -> NodeSummary:
    """Return the summary of which `to_json` gave this, perhaps with more keys; raise KeyError or TypeError."""
    known = {field.name: found[field.name] for field in fields(NodeSummary)}
    return NodeSummary(**{**known, "gpu_models": tuple(found["gpu_models"])})
