"""A release that a cluster is to have, whichever component's settings ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpunode.settings.chart import ReleaseSettings
from gpunode.settings.kubernetes import KubernetesSettings


@dataclass(frozen=True)
class AskedRelease:
    """Hold where the cluster is, what the release is of, and the chart's values."""

    kubernetes: KubernetesSettings
    settings: ReleaseSettings
    values: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Return its namespace and name, for people."""
        return f"{self.settings.namespace}/{self.settings.release}"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            "release": self.settings.release,
            "namespace": self.settings.namespace,
            "chart": self.settings.chart,
            "version": self.settings.version,
            "values": self.values,
        }
