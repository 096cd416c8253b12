"""The labels of a node in the cluster, and the plugin's configuration that one of them names.

Labels are shared ground: the plugin's own programs, a GPU Operator and people set them as well. Those that gpunode set
stand in an annotation of the node; it changes and removes these alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from gpunode.base.reading import ParseError
from gpunode.base.structured_text import DOCUMENT, TextError, load_documents, load_json
from gpunode.settings import Settings
from gpunode.settings.cluster import other_plugins
from gpunode.settings.kubernetes import node_label
from gpunode.settings.other_plugins import EXPORTER
from gpunode.settings.sharing import WHOLE_GPU, SharingSettings

OURS = "gpunode/labels"
# Its annotation that names the extended resources that gpunode counts.
RESOURCES = "gpunode/extended-resources"
CONFIG = "nvidia.com/device-plugin.config"
PRESENT = "nvidia.com/gpu.present"
MPS_CAPABLE = "nvidia.com/mps.capable"
MIG_CONFIG = "nvidia.com/mig.config"
MIG_STATE = "nvidia.com/mig.config.state"
# By which a node is taken by the static manifest's DaemonSets, and by no chart's; and who is the GPU Operator's.
SERVED_BY = "gpunode/way"
GPUSHARE = "gpushare"
# What the label of each device plugin other than NVIDIA's begins with, behind which its name stands.
PLUGIN_LABEL = "gpunode/device-plugin."
# Of the nodes that have DCGM's exporter by its chart.
EXPORTER_LABEL = "gpunode/dcgm-exporter"
# Those by which DaemonSets take a node, with the values that they have there; the release's, then the manifest's. With
# another value a label selects nothing: SERVED_BY is the GPU Operator's, too.
# The exporter's pods hold the GPUs open, too.
SELECTING: Mapping[str, str] = {PRESENT: "true", MPS_CAPABLE: "true", SERVED_BY: "manifest", EXPORTER_LABEL: "true"}
# As nvidia-mig-parted's manager has them, but for `rebooting`: a layout that waits for a boot is pending here.
MIG_STATES = ("pending", "success", "failed")
_ALL = (CONFIG, PRESENT, MPS_CAPABLE, MIG_CONFIG, MIG_STATE, SERVED_BY, GPUSHARE, EXPORTER_LABEL)


def wanted_labels(settings: Settings, mig_state: str | None = None) -> dict[str, str]:
    """Return the labels that a node is to have by gpunode; `mig_state` is one of MIG_STATES, None: no label of it."""
    if mig_state is not None and mig_state not in MIG_STATES:
        raise ValueError(f"{mig_state!r} is none of {', '.join(MIG_STATES)}")
    asked = {plugin_label(name): "true" for name in other_plugins(settings)}
    return _of_gpus(settings, mig_state) | asked | settings.kubernetes.node_labels


def plugin_label(name: str) -> str:
    """Return the label of the nodes that have a device plugin other than NVIDIA's, or DCGM's exporter."""
    return EXPORTER_LABEL if name == EXPORTER else f"{PLUGIN_LABEL}{name}"


def _of_gpus(settings: Settings, mig_state: str | None = None) -> dict[str, str]:
    """Return the labels that the node has for its GPUs."""
    if settings.device_plugin.method == "none" or not settings.kubernetes.enabled:
        return {}
    return _METHODS[settings.device_plugin.method](settings) | _of_mig(settings, mig_state)


def has_mig_state(settings: Settings) -> bool:
    """Return whether a label of the node reports the state of its MIG configuration."""
    return settings.mig.config is not None and bool(_of_gpus(settings))


def _of_mig(settings: Settings, state: str | None) -> dict[str, str]:
    if settings.mig.config is None:
        return {}
    # Where the configuration is the label's, people set it, and it is not gpunode's to set.
    named = {} if settings.mig.config_from_label else {MIG_CONFIG: settings.mig.config}
    return named if state is None else {**named, MIG_STATE: state}


def _by_helm(settings: Settings) -> dict[str, str]:
    plugin, found = settings.device_plugin, {}
    if plugin.config_name is None:
        found[CONFIG] = configuration(settings.sharing).name
    elif settings.sharing.config is not None:
        found[CONFIG] = settings.sharing.config
    # The chart's own node feature discovery names GPUs as the chart looks for them, a cluster's own may do so otherwise
    # (by class and vendor is its default); beside an operator the label is the operator's.
    is_selected_by = PRESENT in (plugin.values.get("nodeSelector") or {})
    if plugin.nfd == "none" or (plugin.method == "helm" and (plugin.nfd == "present" or is_selected_by)):
        found[PRESENT] = "true"
    # GPU feature discovery sets it itself, and would take ours away.
    if settings.sharing.strategy == "mps" and not plugin.gfd:
        found[MPS_CAPABLE] = "true"
    return found


def labels_of_failed(
    settings: Settings, labels: Mapping[str, str], annotation: str | None, is_mig_known: bool = True
) -> dict[str, str]:
    """Return the labels that a node is to have by gpunode after a run that failed on it: those that it had before.

    No configuration is labelled that the run did not reach, and no label goes: pods may be at work there. What a change
    of MIG had taken off comes back. Where MIG is desired, its state is `failed`.

    + is_mig_known: whether the run could read the state of MIG; without it the labels of MIG stay the same
    """
    desired = wanted_labels(settings)
    actual = {**{name: desired.get(name, value) for name, value in SELECTING.items()}, **labels}
    kept = {name: actual[name] for name in owned(annotation) if name in actual}
    if not (_of_gpus(settings) and is_mig_known):
        return kept
    # By the settings of the inventory, where no label has been looked up.
    if settings.mig.config_from_label and labels.get(MIG_CONFIG):
        return {**kept, MIG_STATE: "failed"}
    return kept | _of_mig(settings, "failed")


# The chart's DaemonSets go where PRESENT is: a node of another method has it not.
_METHODS: Mapping[str, Callable[[Settings], dict[str, str]]] = {
    "helm": _by_helm,
    "manifest": lambda settings: {CONFIG: configuration(settings.sharing).name, SERVED_BY: "manifest"},
    "gpu-operator": lambda settings: {**_by_helm(settings), SERVED_BY: "gpu-operator"},
    "gpushare": lambda _: {GPUSHARE: "true"},
}


@dataclass(frozen=True)
class LabelChange:
    """Hold what is to be done about a node's labels.

    to_set: label -> value; to_remove: labels; ours: what the annotation is then to say, None where it is to go;
    conflicts: label -> value of somebody else's that gpunode would have otherwise, and leaves alone
    """

    to_set: Mapping[str, str]
    to_remove: tuple[str, ...]
    ours: str | None
    conflicts: Mapping[str, str]
    annotates: bool

    @property
    def is_none(self) -> bool:
        """Say whether there is nothing to do."""
        return not (self.to_set or self.to_remove or self.annotates)

    def applied_to(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return a node's labels after the change."""
        kept = {name: value for name, value in labels.items() if name not in self.to_remove}
        return {**kept, **self.to_set}


def given_up(settings: Settings) -> tuple[str, ...]:
    """Return the labels that are people's to set, whoever set them before: they stay, and are gpunode's no more."""
    return (MIG_CONFIG,) if settings.mig.config_from_label else ()


def before_mig(settings: Settings, labels: Mapping[str, str], annotation: str | None, clears: bool) -> LabelChange:
    """Return what a node's labels are to say while its MIG layout changes: that this is pending.

    + clears: pods that hold its GPUs are to leave it: gpunode's labels by which DaemonSets take the node go. The
      annotation goes on naming them, so that whichever run is the next one sets them again
    """
    ours = owned(annotation)
    actual = sorted(name for name, value in SELECTING.items() if name in ours and labels.get(name) == value)
    gone = tuple(actual) if clears else ()
    theirs = MIG_STATE in labels and MIG_STATE not in ours
    tells = bool(_of_gpus(settings)) and not theirs and labels.get(MIG_STATE) != "pending"
    names = ours | {MIG_STATE} if tells else ours
    return LabelChange({MIG_STATE: "pending"} if tells else {}, gone, note(names), {}, tells and MIG_STATE not in ours)


def label_change(
    desired: Mapping[str, str],
    labels: Mapping[str, str],
    annotation: str | None,
    given_up: Collection[str] = (),
    not_known: Collection[str] = (),
) -> LabelChange:
    """Return what brings a node from its `labels` to the desired ones; `annotation` is the text of OURS there.

    A label of another program with the same value stays that program's; with another value it is a conflict. Those
    `given_up` keep their value, and the annotation no longer names them. Those `not_known` keep value and owner.
    """
    to_set, to_remove, text, conflicts = difference(
        desired, labels, owned(annotation) - frozenset(given_up), frozenset(not_known)
    )
    return LabelChange(to_set, to_remove, text, conflicts, text != annotation)


def difference(
    desired: Mapping[str, str], actual: Mapping[str, str], ours: frozenset[str], not_known: frozenset[str] = frozenset()
) -> tuple[dict[str, str], tuple[str, ...], str | None, dict[str, str]]:
    """Return what to set and to remove, the text of the annotation then, and the conflicts.

    ours: gpunode's before; not_known: those that keep value and owner
    """
    conflicts = {
        name: actual[name]
        for name, value in desired.items()
        if name in actual and actual[name] != value and name not in ours
    }
    stays = {*conflicts, *not_known}
    to_set = {name: value for name, value in desired.items() if actual.get(name) != value and name not in stays}
    kept = (ours & not_known) - desired.keys()
    to_remove = tuple(sorted(name for name in ours - kept if name in actual and name not in desired))
    text = note([*(name for name in desired if name in to_set or name in ours), *kept])
    return to_set, to_remove, text, conflicts


def owned(annotation: str | None) -> frozenset[str]:
    """Return the labels that an annotation says are gpunode's; none but those that gpunode may set are believed."""
    return noted(annotation, _is_ours)


def noted(annotation: str | None, may_be: Callable[[str], bool]) -> frozenset[str]:
    """Return the names that an annotation lists, as far as they `may_be` in it; none where it is no list."""
    try:
        names = load_json(annotation or "[]")
    except TextError:
        return frozenset()
    found = names if isinstance(names, list) else []
    return frozenset(name for name in found if isinstance(name, str) and may_be(name))


def note(names: Collection[str]) -> str | None:
    """Return the text of an annotation that lists these names; None: there is to be none."""
    return json.dumps(sorted(names), separators=(",", ":")) if names else None


def accepts(validator: Callable[[str], str], name: str) -> bool:
    """Say whether a validator of the settings takes a name."""
    try:
        return bool(validator(name))
    except ValueError:
        return False


def _is_ours(name: str) -> bool:
    # A person's may be of `kubernetes.node_labels`.
    return name in _ALL or name.startswith(PLUGIN_LABEL) or accepts(node_label, name)


# A node that nobody labelled gets it: whole GPUs, one pod each.
DEFAULT = "none"
_KEYS = {"time-slicing": "timeSlicing", "mps": "mps"}


@dataclass(frozen=True)
class Configuration:
    """Hold an entry of config.map: its name, which a node's label names, and its text."""

    name: str
    text: str


def configuration(sharing: SharingSettings) -> Configuration:
    """Return the plugin's configuration for a node; equal sharing, equal name."""
    content: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": sharing.mig_strategy}}
    if sharing.strategy != "none":
        content["sharing"] = {_KEYS[sharing.strategy]: _shared(sharing)}
    return Configuration(_name(sharing), yaml.safe_dump(content, sort_keys=False))


def with_entries_in_use(values: Mapping[str, Any], manifest: str, in_use: Collection[str]) -> Mapping[str, Any]:
    """Return a chart's values with those configurations of the release that nodes are still labelled for.

    A plugin whose configuration goes away before its node's label does not start, and the upgrade fails for it.

    + manifest: of the release as it is; empty where there is none
    + in_use: names that nodes' labels give
    """
    desired = values["config"].get("map")
    if desired is None:
        return values
    left = {name: f"{text.rstrip()}\n" for name, text in _entries(manifest) if name in in_use and name not in desired}
    entries = dict(sorted({**desired, **left}.items()))
    return {**values, "config": {**values["config"], "map": entries}} if left else values


def _entries(manifest: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of what a manifest's ConfigMaps hold; raise ParseError."""
    try:
        documents = load_documents(manifest, DOCUMENT)
    except TextError as error:
        raise ParseError(f"the release's manifest cannot be read as YAML{error.unquoted}") from None
    for _, each in documents:
        if isinstance(each, dict) and each.get("kind") == "ConfigMap":
            yield from ((str(name), str(text)) for name, text in (each.get("data") or {}).items())


def _shared(sharing: SharingSettings) -> dict[str, Any]:
    found: dict[str, Any] = {"renameByDefault": sharing.rename}
    if _says_how_many(sharing):
        found["failRequestsGreaterThanOne"] = sharing.fail_requests_greater_than_one
    found["resources"] = [{"name": name, "replicas": count} for name, count in sorted(sharing.replicated.items())]
    return found


def _says_how_many(sharing: SharingSettings) -> bool:
    """Return whether an entry says if a container may have several of a resource: MPS refuses that by itself."""
    refuses = sharing.fail_requests_greater_than_one
    return refuses is not None and not (sharing.strategy == "mps" and refuses)


def _name(sharing: SharingSettings) -> str:
    """Return a name for people that no two different configurations have: `mig-mixed`, `time-slicing-5-renamed`."""
    parts = [] if sharing.mig_strategy == "none" else ["mig", sharing.mig_strategy]
    if sharing.strategy != "none":
        parts.append(sharing.strategy)
        if set(sharing.replicated) == {WHOLE_GPU}:
            parts.append(str(sharing.replicated[WHOLE_GPU]))
        else:
            # Several resources do not fit into a label's value: what they are is in the entry.
            text = json.dumps(sharing.replicated, sort_keys=True)
            parts.append(hashlib.sha256(text.encode()).hexdigest()[:8])
        parts += ["renamed"] if sharing.rename else []
        if _says_how_many(sharing):
            parts.append("one-each" if sharing.fail_requests_greater_than_one else "many-each")
    return "-".join(parts) or DEFAULT
