"""What a cluster gets of device plugins other than NVIDIA's, and DCGM's exporter, from the settings of all hosts.

Each has a label, which the nodes bear that are to have it. What comes by a chart has a ConfigMap of gpunode's beside
it, which tells the next run of the release where the settings name it no more.
source of the RDMA plugin's configuration: Mellanox/k8s-rdma-shared-dev-plugin v1.5.3, pkg/types/types.go
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gpunode.base.reading import ParseError
from gpunode.kubernetes.dcgm_exporter import exporter
from gpunode.kubernetes.helm.manifest import live_objects
from gpunode.kubernetes.helm.release import AskedRelease
from gpunode.kubernetes.nodes.cluster_nodes import ClusterNode
from gpunode.kubernetes.nodes.labels import owned, plugin_label
from gpunode.kubernetes.objects.own_objects import from_template, is_needed, marked, method_of_plugin, way_of
from gpunode.settings import Settings
from gpunode.settings.chart import ReleaseSettings
from gpunode.settings.other_plugins import EXPORTER, RDMA, OtherPlugin
from gpunode.settings.rdma import RdmaSharedDevicePluginSettings

NAME = "gpunode-rdma-shared-device-plugin"
CONFIGURATION = "gpunode/configuration"


def configuration(desired: RdmaSharedDevicePluginSettings) -> str:
    """Return the plugin's config.json."""
    resources = [
        {
            "resourcePrefix": name.partition("/")[0],
            "resourceName": name.partition("/")[2],
            "rdmaHcaMax": each.count,
            "selectors": each.selectors,
        }
        for name, each in sorted(desired.resources.items())
    ]
    return json.dumps({"periodicUpdateInterval": desired.update_seconds, "configList": resources}, indent=2) + "\n"


def rdma_objects(desired: RdmaSharedDevicePluginSettings) -> list[dict[str, Any]]:
    """Return the objects, in the order in which they are made."""
    text = configuration(desired)
    return from_template(
        "rdma-shared-device-plugin.yaml",
        name=NAME,
        namespace=desired.namespace,
        text=text,
        annotation=CONFIGURATION,
        digest=hashlib.sha256(text.encode()).hexdigest()[:16],
        label=plugin_label(RDMA),
        image=desired.image,
    )


# Where every cluster has a namespace, before a release's own is made.
_NAMESPACE, _RECORD = "kube-system", "gpunode-release-"


def plugins(hosts: Mapping[str, Settings]) -> dict[str, OtherPlugin]:
    """Return the plugins of a manifest or a chart that nodes of these hosts are to have, by name."""
    found: dict[str, OtherPlugin] = {}
    for settings in hosts.values():
        if settings.kubernetes.enabled:
            found = {**settings.kubernetes.device_plugins, **found}
    return dict(sorted(found.items()))


def objects(hosts: Mapping[str, Settings]) -> list[dict[str, Any]]:
    """Return the objects of gpunode's own for them, in the order in which they are made."""
    found: list[dict[str, Any]] = []
    of_rdma = (each.rdma_shared_device_plugin for each in hosts.values() if each.kubernetes.enabled)
    if (desired := next((each for each in of_rdma if each.enabled), None)) is not None:
        if desired.namespace != _NAMESPACE:
            found.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": desired.namespace}})
        found += [marked(each, method_of_plugin(RDMA)) for each in rdma_objects(desired)]
    for name, plugin in plugins(hosts).items():
        of_it = [_for(name, each) for each in plugin.objects().objects] if plugin.manifest is not None else []
        found += [marked(each, method_of_plugin(name)) for each in of_it]
    found += [marked(_record(name, each.settings), method_of_plugin(name)) for name, each in releases(hosts).items()]
    return found


def _for(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of a plugin's manifest; a DaemonSet for those nodes alone that have the plugin."""
    found = copy.deepcopy(dict(document))
    if found["kind"] == "DaemonSet":
        pod = found["spec"]["template"]["spec"]
        pod["nodeSelector"] = {**(pod.get("nodeSelector") or {}), plugin_label(name): "true"}
    return found


def _record(name: str, release: ReleaseSettings) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{_RECORD}{name}", "namespace": _NAMESPACE},
        "data": {"release": release.release, "namespace": release.namespace},
    }


def releases(hosts: Mapping[str, Settings]) -> dict[str, AskedRelease]:
    """Return plugin -> the release that it is to be, of those by a chart; the exporter's is among them."""
    first = next((each for each in hosts.values() if each.kubernetes.enabled), None)
    if first is None:
        return {}
    found = {
        name: AskedRelease(first.kubernetes, each.release_of(name), each.values)
        for name, each in plugins(hosts).items()
        if each.chart is not None
    }
    of_dcgm = exporter(hosts)
    return dict(sorted((found if of_dcgm is None else {**found, EXPORTER: of_dcgm}).items()))


def kept_releases(hosts: Mapping[str, Settings]) -> set[tuple[str, str]]:
    """Return (namespace, name) of NVIDIA's own releases, which a record of another plugin's must never take away."""
    every = [each for each in hosts.values() if each.kubernetes.enabled]
    return {(own.namespace, own.release) for each in every for own in (each.device_plugin, each.gpu_operator)}


def releases_left(
    desired: Mapping[str, AskedRelease],
    owned_objects: str,
    staying: Sequence[Mapping[str, str]],
    kept: Collection[tuple[str, str]] = (),
) -> dict[str, ReleaseSettings]:
    """Return plugin -> its release of those that gpunode brought, and no node needs any more; raise ParseError.

    + desired: what `releases` says
    + owned_objects: all objects of gpunode's, as kubectl prints them
    + staying: labels of each node that keeps them in this run
    + kept: (namespace, name) of releases that gpunode has for something else, as `kept_releases` says
    """
    wanted = {(each.settings.namespace, each.settings.release) for each in desired.values()} | set(kept)
    found: dict[str, ReleaseSettings] = {}
    for identity, each in live_objects(owned_objects, "").items():
        name = identity.name.removeprefix(_RECORD)
        is_record = (identity.kind, identity.namespace) == ("ConfigMap", _NAMESPACE) and name != identity.name
        if not is_record or way_of(each.content) != method_of_plugin(name):
            continue
        release = _release(name, each.content.get("data") or {})
        is_wanted = (release.namespace, release.release) in wanted
        # One that goes by another name, or into another namespace, leaves none behind.
        if not is_wanted and (name in desired or not is_needed(each.content, staying)):
            found[name] = release
    return dict(sorted(found.items()))


def _release(name: str, data: Mapping[str, Any]) -> ReleaseSettings:
    """Return a recorded release, of which helm is asked what chart it is of; raise ParseError."""
    try:
        values = {"chart": "./none", "version": "0.0.0", "release": data["release"], "namespace": data["namespace"]}
        return OtherPlugin.model_validate(values).release_of(name)
    except (ValueError, KeyError, TypeError):
        raise ParseError(f"ConfigMap {_NAMESPACE}/{_RECORD}{name} names no release: take it away by hand") from None


def labelled(name: str, nodes: Mapping[str, ClusterNode]) -> set[str]:
    """Return the nodes that gpunode has labelled for a plugin."""
    return {each for each, node in nodes.items() if plugin_label(name) in owned(node.ours)}
