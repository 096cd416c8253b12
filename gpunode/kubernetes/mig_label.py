"""What the cluster decides before a host is changed: its MIG configuration by a label, and somebody else's cordon.

People set the label, as for nvidia-mig-parted's own manager. What follows is as if `mig.config` had named the same:
settings with it are judged whole, and all that acts or judges is given these.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpunode.base.reading import Unknown
from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import MIG_CONFIG
from gpunode.settings.cluster import node_name
from gpunode.settings.model import Settings, settings_from
from gpunode.settings.problems import SettingsError, written

_SOURCE = "kubectl get nodes"


def asks(settings: Settings) -> bool:
    """Return whether a node's MIG configuration is its label's, which has not been read yet."""
    return settings.mig.config_from_label and settings.mig.config is None


NO_NODE = RefusalMessage(
    "label-of-no-node",
    "The MIG configuration is to come from a label, and the cluster has no such node.",
    component="mig",
    reason="mig.config_from_label is True, and the cluster has no node {name}",
    source=_SOURCE,
    remedy="set kubernetes.node_name to its name in it, or let it join first, without mig.config_from_label",
)


def by_label(host: str, settings: Settings, nodes: Mapping[str, ClusterNode] | Unknown) -> Settings | Refusal | Unknown:
    """Return a host's settings with the configuration that its label names; else why it has none.

    nodes: name -> node, of the whole cluster; Unknown where it did not answer, which is then returned
    A node without the label keeps settings without configuration: its MIG is not changed.
    """
    if not asks(settings):
        return settings
    if isinstance(nodes, Unknown):
        return nodes
    name = node_name(host, settings)
    node = nodes.get(name)
    if node is None:
        return NO_NODE(name=name)
    value = node.labels.get(MIG_CONFIG)
    if not value:
        return settings
    return _named(settings, name, value)


LABEL_WRONG = RefusalMessage(
    "label-wrong",
    "The node's label names a MIG configuration that is not possible.",
    component="mig",
    reason=f"node {{name}} has the label {MIG_CONFIG}={{value}}: {{mistake}}",
    source=_SOURCE,
    remedy=f"label it with a possible configuration: kubectl label node {{name}} --overwrite {MIG_CONFIG}=NAME",
    detail="The value of the label is judged as mig.config would be.",
)


def _named(settings: Settings, name: str, value: str) -> Settings | Refusal:
    data = settings.model_dump(exclude_unset=True)
    desired = {key: each for key, each in data["mig"].items() if key != "config_from_label"}
    try:
        actual = settings_from({**data, "mig": {**desired, "config": value}})
    except SettingsError as error:
        first = error.problems[0]
        key = "" if first.key == "mig.config" else f"{first.key} = {first.value} "
        return LABEL_WRONG(name=name, value=written(value), mistake=f"{key}{first.message}")
    # The label stays what people say, and none of gpunode's.
    mig = actual.mig.model_copy(update={"config_from_label": True})
    return actual.model_copy(update={"mig": mig})


def asks_for_cordon(settings: Settings) -> bool:
    """Return whether the node's cordon must be read from the cluster before the host is changed."""
    return settings.kubernetes.drains and settings.kubernetes.drain.foreign_cordon == "skip"


FOREIGN_CORDON = RefusalMessage(
    "foreign-cordon",
    "The node was cordoned, but not by gpunode, and kubernetes.drain.foreign_cordon is 'skip'.",
    component="kubernetes",
    reason="node {name} was cordoned, not by gpunode, and kubernetes.drain.foreign_cordon is 'skip': it is not changed",
    source="kubectl get nodes",
    remedy="run again when it takes pods: `kubectl uncordon {name}`",
)


CORDON_NOT_KNOWN = RefusalMessage(
    "cordon-not-known",
    "The cluster does not answer, and kubernetes.drain.foreign_cordon is 'skip'.",
    component="kubernetes",
    reason="kubernetes.drain.foreign_cordon is 'skip', and the cluster does not report whether the node is cordoned",
    source="kubectl get nodes",
    remedy="let the cluster answer (`gpunode drift` reports why it does not), or set it to 'drain'",
)


def left_alone(host: str, settings: Settings, nodes: Mapping[str, ClusterNode] | Unknown) -> Refusal | None:
    """Return why a host is not changed; None where its node has no cordon, or one that does not keep it.

    nodes: name -> node, of the whole cluster; Unknown where it did not answer: nothing may be done then, either
    """
    if not asks_for_cordon(settings):
        return None
    if isinstance(nodes, Unknown):
        return CORDON_NOT_KNOWN()
    node = nodes.get(node_name(host, settings))
    if node is None or not node.unschedulable or node.is_held_back:
        return None
    return FOREIGN_CORDON(name=node.name)
