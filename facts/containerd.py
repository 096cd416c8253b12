"""containerd: version, configuration, and what its CRI plugin reports."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache

from gpunode.base.probe import Text, shell_text
from gpunode.components.runtimes.containerd import source, state
from gpunode.facts.base import UNITS, NodeFact, host_settings


@cache
def _probe(of: source.Source) -> Text:
    values = {name.upper(): value for name, value in asdict(of).items()}
    return shell_text("components/runtimes/containerd/state", shared=(UNITS.of(of.unit),), **values)


class Containerd(NodeFact[state.Containerd]):
    """Read the binary and file of the unit containerd.unit: a node may have two containerd binaries."""

    probe = _probe(source.Source())

    @classmethod
    def of_host(cls) -> str:
        """Return the probe for the unit and the file that the host's settings name."""
        own = host_settings("containerd")
        return _probe(source.source_of(own.get("unit"), own.get("config")))

    parse = staticmethod(state.parse_containerd)
