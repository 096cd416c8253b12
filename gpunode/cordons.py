"""Which nodes of an inventory's cluster gpunode still holds back: the cluster is asked once, for all of them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from facts.base import NodeFact
from gpunode import fleet
from gpunode.device_plugin.rollout import node_name
from gpunode.drain.commands import Drain, drain_of
from gpunode.drain.cordon import Cordon, parse_cordons
from gpunode.drain.judgement import judged, unknown
from gpunode.findings import Finding
from gpunode.helm.commands import Command
from gpunode.reading import ParseError, Reading, Unknown
from gpunode.settings import Settings
from gpunode.settings.kubernetes import LOCAL
from operations.control_plane import here


@dataclass(frozen=True)
class Cordons(Reading):
    """Hold the cordon of every node of a cluster, by name."""

    nodes: Mapping[str, Cordon]


def findings(inventory: Path, hosts: Mapping[str, Settings]) -> dict[str, Finding]:
    """Return a finding for each of the hosts that is a node of the cluster and is drained; ask nothing without one."""
    drains = {host: drain for host, settings in hosts.items() if (drain := drain_of(host, settings))}
    if not drains:
        return {}
    # One inventory has one cluster; what else would be refused.
    found = _asked(inventory, next(iter(drains.values())))
    if isinstance(found, str):
        return {host: unknown(found) for host in drains}
    cordons = {host: found.nodes.get(node_name(host, hosts[host])) for host in drains}
    return {host: judged(cordon) for host, cordon in cordons.items() if cordon is not None}


def _asked(inventory: Path, drain: Drain) -> Cordons | str:
    """Return what the cluster says, or why it does not."""
    command = drain.commands.every_node()
    run_on = drain.commands.kubernetes.run_on
    if run_on != LOCAL:
        return _over_ssh(inventory, run_on, command)
    output = here(command)
    if output.status != 0:
        return f"kubectl: {' '.join(output.err.split())[-300:]}"
    try:
        return Cordons(parse_cordons(output.out))
    except ParseError as error:
        return str(error)


def _over_ssh(inventory: Path, name: str, command: Command) -> Cordons | str:
    environment = [f"{key}={value}" for key, value in command.environment.items()]

    class ClusterCordons(NodeFact[Cordons]):
        """Read the nodes of a cluster where kubectl runs."""

        probe = shlex.join(["env", *environment, *command.words])
        parse = staticmethod(lambda lines: Cordons(parse_cordons("\n".join(lines))))

    (answer,) = fleet.read(inventory, ClusterCordons, only=[name])
    if isinstance(answer.reading, Unknown) or answer.reading is None:
        return f"{name} (kubernetes.run_on): {answer.reason}"
    return answer.reading
