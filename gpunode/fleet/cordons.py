"""Which nodes of an inventory's cluster gpunode still holds back: the cluster is asked once, for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gpunode.base.findings import Finding
from gpunode.base.reading import ParseError
from gpunode.fleet.control_plane import reached
from gpunode.kubernetes.drain.commands import Drain, drain_of
from gpunode.kubernetes.drain.judgement import judged, unknown
from gpunode.kubernetes.nodes.cordon import Cordon, parse_cordons
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name

# Node -> its cordon.
Cordons = Mapping[str, Cordon]


def findings(inventory: Path, hosts: Mapping[str, Settings]) -> dict[str, Finding]:
    """Return a finding for each of the hosts that is a node of the cluster and is drained; ask nothing without one."""
    drains = {host: drain for host, settings in hosts.items() if (drain := drain_of(host, settings))}
    if not drains:
        return {}
    # One inventory has one cluster; what else would be refused.
    found = _asked(inventory, next(iter(drains.values())))
    if isinstance(found, str):
        return {host: unknown(found) for host in drains}
    cordons = {host: found.get(node_name(host, hosts[host])) for host in drains}
    return {host: judged(cordon) for host, cordon in cordons.items() if cordon is not None}


def _asked(inventory: Path, drain: Drain) -> Cordons | str:
    """Return what the cluster says, or why it does not."""
    with reached(inventory, drain.commands.kubernetes) as run:
        output = run(drain.commands.every_node())
    if output.status != 0:
        return f"kubectl: {' '.join(output.err.split())[-300:]}"
    try:
        return parse_cordons(output.out)
    except ParseError as error:
        return str(error)
