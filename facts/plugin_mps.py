"""The MPS daemons of NVIDIA's device plugin, on a node of a cluster."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.mps.plugin import ROOT, parse_plugin_mps
from gpunode.components.mps.plugin import PluginMps as Reading
from gpunode.facts.base import NodeFact
from gpunode.facts.shared import SMI


class PluginMps(NodeFact[Reading]):
    """Ask each of them by its socket for its settings, servers and clients; where there is none, start no program."""

    probe = shell_text("components/mps/plugin", shared=(SMI,), ROOT=ROOT)
    parse = staticmethod(parse_plugin_mps)
