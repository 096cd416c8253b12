"""What one node's settings cannot have together in a cluster: each by name, before any connection."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from gpunode.base import tables
from gpunode.base.tables.reading import Row, Table, table
from gpunode.base.versions import at_least
from gpunode.settings.cluster import BY_CHART, default_runtime, features, needs_runtime_class
from gpunode.settings.cluster.gpu_operator import METHOD
from gpunode.settings.mig_parted.declaration import Declaration, selected
from gpunode.settings.mig_parted.mistakes import DeclarationError
from gpunode.settings.mig_parted.published import known_names, published
from gpunode.settings.model import Settings
from gpunode.settings.problems import Problem, written

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_CDI = ("cdi-annotations", "cdi-cri")
# Options of the chart that nothing else has.
_OF_THE_CHART = {
    "values": "says values of the chart",
    "gfd": "is brought by the chart",
    "nfd": "is brought by the chart",
    "config_name": "names a ConfigMap for the chart",
}
# (key, what is wrong)
Wrong = Iterator[tuple[str, str, str]]


@dataclass(frozen=True)
class Words(Row):
    """Hold the key that is told, and what is wrong with it; {name} is what is told only where it is found so."""

    key: str
    message: str


words = table(Table[str, Words], "contradictions.yaml")  # type: ignore[type-abstract]


def _said(row: str, /, **said: Any) -> tuple[str, str, str]:
    return words()[row].key.format(**said), words()[row].message.format(**said), f"settings.{row}"


def contradictions(settings: Settings) -> Iterator[Problem]:
    """Yield what a node's settings cannot have together, where it is a node of a cluster."""
    for key, message, code in _wrong(settings):
        yield Problem(key, written(attrgetter(key)(settings)), message, code=code)


def _wrong(settings: Settings) -> Wrong:
    if not settings.kubernetes.enabled:
        yield from _without_cluster(settings)
        return
    yield from _mps(settings)
    yield from _mig(settings)
    method = settings.device_plugin.method
    if method in ("manifest", "gpushare"):
        yield from _without_chart(settings)
        yield from _runtime(settings)
    if method == METHOD:
        yield from _beside_operator(settings)
    if method in (*BY_CHART, "manifest"):
        yield from _too_old(settings)
        yield from _device_list(settings)
    if method in BY_CHART:
        yield from _runtime(settings)
        yield from _config(settings)
    if settings.dcgm_exporter_chart.enabled:
        if method == "none":
            yield from _runtime(settings)
        version, needs = settings.kubernetes.version, features.of_kubernetes()["dcgm-exporter-chart"]
        if version is not None and not at_least(version, needs.minimum):
            yield _said("kubernetes-too-old-for-exporter", needs=needs)


def _without_cluster(settings: Settings) -> Wrong:
    if settings.mig.config_from_label:
        yield _said("label-without-cluster")
    if settings.sharing != type(settings.sharing).model_validate({}):
        first = sorted(settings.sharing.model_fields_set)[0]
        yield _said("sharing-without-cluster", first=first)


def _mps(settings: Settings) -> Wrong:
    by_plugin = settings.sharing.strategy == "mps"
    if by_plugin and _has_instances(settings):
        yield _said("mps-beside-mig", settings=settings)
    if settings.mps.enabled and settings.device_plugin.method != "none":
        yield _said("mps-on-host")


def _mig(settings: Settings) -> Wrong:
    sharing, name = settings.sharing, settings.mig.config
    method = settings.device_plugin.method
    if method == "none":
        return
    if name is not None and _LABEL_VALUE.fullmatch(name) is None:
        yield _said("mig-no-label-value")
    if not _has_instances(settings):
        return
    if method == "gpushare":
        yield _said("mig-with-gpushare")
        return
    # A ConfigMap of the user's own says the strategy itself.
    hides = sharing.mig_strategy == "none" and settings.device_plugin.config_name is None
    if hides and sharing.strategy != "mps":
        yield _said("mig-hidden", name=name)
    if sharing.mig_strategy == "single" and (several := _several_profiles(settings)):
        yield _said("mig-several-profiles", name=name, several=several)


def _declared(settings: Settings) -> tuple[Declaration, ...]:
    """Return the declarations in which the node's configuration may stand: the file, else each product's."""
    try:
        if settings.mig.file is not None:
            declaration = settings.mig.declaration()
            selected(declaration, settings.mig.config)
            return (declaration,)
    except DeclarationError:
        # Said by the settings of MIG themselves.
        return ()
    name = settings.mig.config
    if name not in known_names():
        return ()
    found = (published(product) for product in tables.mig().products)
    return tuple(each for each in found if name in each.configs)


def _has_instances(settings: Settings) -> bool:
    name = settings.mig.config
    if name is None:
        return False
    return any(entry.mig_enabled for each in _declared(settings) for entry in each.configs[name])


def _several_profiles(settings: Settings) -> str:
    """Return the profiles of a configuration that has several wherever it is published; empty where it has one."""
    name, found = settings.mig.config or "", []
    for each in _declared(settings):
        profiles = {
            profile for entry in each.configs[name] for profile, count in (entry.mig_devices or {}).items() if count
        }
        # An entry of a file may be for another product; what is published is for the whole of one.
        if len(profiles) < 2 or any(entry.device_filter for entry in each.configs[name]):
            return ""
        found.append(", ".join(sorted(profiles)))
    return found[0] if found else ""


def _too_old(settings: Settings) -> Wrong:
    needs = features.of_plugin()
    if not needs.are_met_by(settings.device_plugin.version):
        yield _said("plugin-too-old", needs=needs)
    version, table = settings.kubernetes.version, features.of_kubernetes()
    if version is None:
        return
    needs = table["device-plugin"]
    if not at_least(version, needs.minimum):
        yield _said("kubernetes-too-old-for-plugin", needs=needs)
        return
    needs = table["cdi-cri"]
    if "cdi-cri" in settings.device_plugin.strategies and not needs.are_met_by(version):
        yield _said("kubernetes-too-old-for-cdi", needs=needs, version=version)
    needs = table["runtime-class"]
    if needs_runtime_class(settings) and not needs.are_met_by(version):
        yield _said("kubernetes-too-old-for-class", needs=needs, version=version)


def _device_list(settings: Settings) -> Wrong:
    """Yield where the method by which pods are told their GPUs is one that the node's toolkit does not take."""
    plugin, toolkit = settings.device_plugin, settings.toolkit
    if not toolkit.enabled:
        if default_runtime(settings) is not None and not all(each in _CDI for each in plugin.strategies):
            yield _said("list-without-toolkit")
        return
    by_variable = toolkit.accept_nvidia_visible_devices_envvar_when_unprivileged is not False
    if "envvar" in plugin.strategies and not by_variable:
        yield _said("list-by-variable")
    if "volume-mounts" in plugin.strategies and toolkit.accept_nvidia_visible_devices_as_volume_mounts is not True:
        yield _said("list-by-mounts")
    since, version = tables.toolkit().mounts_in_mode_cdi, toolkit.version
    older = version is not None and not at_least(version, since)
    if "volume-mounts" in plugin.strategies and toolkit.mode == "cdi" and older:
        yield _said("list-by-mounts-in-cdi", since=since, version=version)
    cdi = [each for each in plugin.strategies if each in _CDI]
    if cdi and settings.containerd.enabled and settings.containerd.cdi is False:
        yield _said("list-without-cdi", strategy=cdi[0])


def _runtime(settings: Settings) -> Wrong:
    desired = settings.device_plugin.runtime_class
    default = default_runtime(settings)
    if desired == "none" and default in ("crun", "runc"):
        of = "containerd" if settings.containerd.enabled else "crio" if settings.crio.enabled else "docker"
        yield _said("class-left-to-runc", default=default, of=of)
    if desired == "nvidia" and not settings.toolkit.enabled:
        yield _said("class-without-toolkit")


def _config(settings: Settings) -> Wrong:
    plugin, sharing = settings.device_plugin, settings.sharing
    fault = features.unquoted_values()["failOnInitError"]
    if plugin.fail_on_init_error is not None and fault.concerns(plugin.version):
        yield _said("init-error-unquoted", plugin=plugin, fault=fault)
    if plugin.config_name is None:
        if sharing.config is not None:
            yield _said("config-without-map")
        return
    if sharing.strategy != "none" or sharing.mig_strategy != "none":
        yield _said("config-twice")


def _without_chart(settings: Settings) -> Wrong:
    """Yield what the methods `manifest` and `gpushare` cannot have."""
    plugin, sharing = settings.device_plugin, settings.sharing
    method = plugin.method
    for field, why in _OF_THE_CHART.items():
        default = type(plugin).model_fields[field].get_default(call_default_factory=True)
        if getattr(plugin, field) != default:
            yield _said("of-the-chart", field=field, why=why, method=method)
    yield from _older_than_way(settings)
    if method == "manifest":
        if sharing.strategy == "mps":
            yield _said("manifest-mps")
        cdi = [each for each in plugin.strategies if each.startswith("cdi-")]
        if cdi:
            yield _said("manifest-cdi", strategy=cdi[0])
    else:
        yield from _gpushare(settings)


def _gpushare(settings: Settings) -> Wrong:
    sharing, toolkit = settings.sharing, settings.toolkit
    if sharing.strategy != "none":
        yield _said("gpushare-strategy")
    if sharing.mig_strategy != "none":
        yield _said("gpushare-mig")
    if toolkit.enabled and toolkit.accept_nvidia_visible_devices_envvar_when_unprivileged is False:
        yield _said("gpushare-by-variable")


def _older_than_way(settings: Settings) -> Wrong:
    version, method = settings.kubernetes.version, settings.device_plugin.method
    if version is None:
        return
    needs = features.of_kubernetes()["server-side-apply"]
    minimum, source = needs.minimum, needs.source
    if method == "gpushare" and settings.gpushare.scheduler == "patch":
        row = tables.content("scheduler.yaml")["configuration"][0]
        minimum, source = row["since"], row["source"]
    if not at_least(version, minimum):
        yield _said("kubernetes-too-old-for-method", minimum=minimum, method=method, source=source)


def _beside_operator(settings: Settings) -> Wrong:
    """Yield what a node cannot have together with the operator."""
    if settings.device_plugin.nfd == "none":
        yield _said("operator-finds-no-nodes")
    if settings.gpu_operator.mig_manager and (settings.mig.config is not None or settings.mig.config_from_label):
        key = "mig.config_from_label" if settings.mig.config_from_label else "mig.config"
        yield _said("operator-mig-twice", key=key)
    version, needs = settings.kubernetes.version, features.of_kubernetes()["gpu-operator"]
    if version is not None and not at_least(version, needs.minimum):
        yield _said("kubernetes-too-old-for-operator", needs=needs, method=METHOD)
