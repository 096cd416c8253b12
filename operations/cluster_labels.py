"""Which hosts a run brings into their cluster, and what the cluster is told of one on which the run fails.

pyinfra asks an operation that failed nothing more, and ends the run where no host is left: so a failure is told at
once, by a callback, and by no operation behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyinfra import host
from pyinfra.api import Host, State
from pyinfra.api.state import BaseStateCallback
from pyinfra.context import ctx_host

from gpunode.base.folding import in_one_line
from gpunode.base.reading import ParseError
from gpunode.base.run_context import Slot
from gpunode.fleet.run.events import stops
from gpunode.kubernetes.device_plugin.cluster import Cluster, ClusterError
from gpunode.kubernetes.device_plugin.decide_labels import DesiredLabels
from gpunode.kubernetes.mig_label import asks_for_cordon, left_alone
from gpunode.kubernetes.nodes.labels import MIG_CONFIG, MIG_STATE, SELECTING, given_up, labels_of_failed
from gpunode.operations.control_plane import cluster_for, cluster_nodes
from gpunode.operations.phase import is_executing
from gpunode.settings import Settings
from gpunode.settings.cluster import node_name


@dataclass
class _Part:
    """Hold the settings of a host, its cluster, and how far this run is with it.

    labelled: its labels have been brought about
    changed: its labels have been changed since the run began: what was asked of all nodes may be older
    at_work: a change of its MIG layout has begun, and not reported its end
    is_mig_known: the state of MIG could be read, as far as the run came
    """

    settings: Settings
    cluster: Cluster
    labelled: bool = False
    changed: bool = False
    at_work: bool = False
    is_mig_known: bool = True


_part_of: Slot[_Part | None] = Slot(lambda: None)


class _Failures(BaseStateCallback):
    @staticmethod
    def operation_host_error(
        state: State, host: Host, op_hash: str, retry_count: int = 0, max_retries: int = 0
    ) -> None:
        """Have the node's labels say that its MIG configuration failed, until they have been brought about.

        Where none is asked for, a run that was killed may have taken labels off for an earlier one.
        """
        part = _part_of.of(host)
        if part is not None and not part.labelled and stops(state, host, op_hash):
            _tell(host, part)


def _tell(host: Host, part: _Part) -> None:
    settings = part.settings
    try:
        node = part.cluster.node(node_name(host.name, settings))
        if node is None:
            return
        kept = labels_of_failed(settings, node.labels, node.ours, part.is_mig_known)
        not_known = {} if part.is_mig_known else dict.fromkeys((MIG_CONFIG, MIG_STATE), "")
        change = DesiredLabels(node.name, kept, given_up(settings), not_known).change(node)
        if settings.mig.config is None and not SELECTING.keys() & change.to_set.keys():
            return
        if part.at_work:
            # Pods that come back would hold GPUs in the midst of it. The annotation names the labels for the next run.
            change = replace(change, to_set={name: to for name, to in change.to_set.items() if name not in SELECTING})
        if not change.is_none:
            part.cluster.label(node.name, change)
    except (ClusterError, ParseError) as error:
        # Without MIG nothing had to be told, and most likely no label is off.
        if settings.mig.config is not None:
            host.log(f"the node's labels do not tell that the run failed on it: {in_one_line(error)}")


def takes_part(settings: Settings, cluster_of: Settings) -> None:
    """Note that this run has work to do on the host, by these settings: where it fails, the cluster is told.

    + cluster_of: settings of a node of the cluster, which say where it is
    """
    if not any(isinstance(each, _Failures) for each in host.state.callback_handlers):
        host.state.add_callback_handler(_Failures())
    cluster = cluster_for(cluster_of)
    _part_of.set(ctx_host.get(), _Part(settings, cluster))


def is_taking_part() -> bool:
    """Say whether the labels of the host are brought about in this run; known once it is carried out."""
    return _part_of.of(ctx_host.get()) is not None


def _part() -> _Part | None:
    """Return the host's part in a run that is carried out; None where it has none."""
    return _part_of.of(ctx_host.get()) if is_executing() else None


def labelled() -> None:
    """Note that the host's labels have been brought about."""
    if (part := _part()) is not None:
        part.labelled = True


def labels_changed() -> None:
    """Note that a step of the run has changed the host's labels."""
    if (part := _part()) is not None:
        part.changed = True


def are_labels_changed() -> bool:
    """Say whether a step of the run has changed the host's labels."""
    part = _part_of.of(ctx_host.get())
    return part is not None and part.changed


def mig_at_work(begun: bool) -> None:
    """Note that a change of the host's MIG layout has begun, or that it has reported its end."""
    if (part := _part()) is not None:
        part.at_work = begun


def mig_not_known() -> None:
    """Note that the state of the host's MIG could not be read: the label that reports it keeps its value."""
    if (part := _part()) is not None:
        part.is_mig_known = False


def relabelled(everyone: Mapping[str, Settings]) -> frozenset[str]:
    """Return the nodes whose labels this run brings about: their hosts take part, and have not failed so far.

    While a run is prepared it is not known yet who takes part: every host that it reaches, and does not leave alone.
    """
    state = host.state
    taking = {
        each.name
        for each in state.active_hosts
        if each.name in everyone
        and state.is_host_in_limit(each)
        and (_part_of.of(each) is not None or (not is_executing() and not _is_left_alone(each, everyone)))
    }
    return frozenset(node_name(name, settings) for name, settings in everyone.items() if name in taking)


def _is_left_alone(each: Host, everyone: Mapping[str, Settings]) -> bool:
    settings = everyone[each.name]
    if not asks_for_cordon(settings):
        return False
    return left_alone(each.name, settings, cluster_nodes(settings.kubernetes, settings.proxy)) is not None
