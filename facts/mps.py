"""The Multi-Process Service on a node: gpunode's daemons, and those of NVIDIA's device plugin in a cluster."""

from __future__ import annotations

from gpunode.base.probe import shell_text
from gpunode.components.mps import plugin, state
from gpunode.components.mps.change import APPLY, PATHS
from gpunode.components.mps.daemon import FOLDER
from gpunode.components.mps.daemon import UNITS as FILES
from gpunode.facts.base import SMI, UNITS, NodeFact

# Globs find what systemd has loaded; a name would have it loaded.
_DAEMONS = ("nvidia-mp[s].service", "nvidia-mps@*.service")


class Mps(NodeFact[state.Mps]):
    """Read the daemons of gpunode's units; whether one lives is told by its answer alone: sockets stay behind."""

    probe = shell_text(
        "components/mps/state", shared=(UNITS.of(*_DAEMONS),), FOLDER=FOLDER, FILES=" ".join((*FILES, APPLY, *PATHS))
    )
    parse = staticmethod(state.parse_mps)


class PluginMps(NodeFact[plugin.PluginMps]):
    """Read settings, servers and clients of the device plugin's daemons; start no program where there is no daemon."""

    probe = shell_text("components/mps/plugin", shared=(SMI,), ROOT=plugin.ROOT)
    parse = staticmethod(plugin.parse_plugin_mps)
