"""What one node's settings cannot have together in a cluster: each by name, before any connection."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.versions import at_least
from gpunode.settings.cluster import (
    BY_CHART,
    default_runtime,
    features,
    gpu_operator,
    needs_runtime_class,
    other_methods,
)
from gpunode.settings.mig_parted.declaration import Declaration, selected
from gpunode.settings.mig_parted.mistakes import DeclarationError
from gpunode.settings.mig_parted.published import known_names, published
from gpunode.settings.model import Settings
from gpunode.settings.problems import Problem, written

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", re.ASCII)
_CDI = ("cdi-annotations", "cdi-cri")


def contradictions(settings: Settings) -> Iterator[Problem]:
    """Yield what a node's settings cannot have together, where it is a node of a cluster."""
    if not settings.kubernetes.enabled:
        yield from _without_cluster(settings)
        return
    yield from _mps(settings)
    yield from _mig(settings)
    method = settings.device_plugin.method
    if method in ("manifest", "gpushare"):
        yield from other_methods.contradictions(settings)
        yield from _runtime(settings)
    if method == gpu_operator.METHOD:
        yield from gpu_operator.contradictions(settings)
    if method in (*BY_CHART, "manifest"):
        yield from _old_plugin(settings)
        yield from _old_kubernetes(settings)
        yield from _device_list(settings)
    if method in BY_CHART:
        yield from _runtime(settings)
        yield from _config(settings)
        yield from _unquoted(settings)


def _problem(key: str, value: object, message: str) -> Problem:
    return Problem(key, written(value), message)


def _without_cluster(settings: Settings) -> Iterator[Problem]:
    if settings.mig.config_from_label:
        message = "needs a cluster, whose label it is; set kubernetes.enabled = True, or mig.config in its place"
        yield _problem("mig.config_from_label", True, message)
    if settings.sharing != type(settings.sharing).model_validate({}):
        first = sorted(settings.sharing.model_fields_set)[0]
        message = "says nothing without kubernetes.enabled = True; set that, or leave sharing out"
        yield _problem(f"sharing.{first}", getattr(settings.sharing, first), message)


def _mps(settings: Settings) -> Iterator[Problem]:
    by_plugin = settings.sharing.strategy == "mps"
    if by_plugin and _has_instances(settings):
        message = (
            f"excludes mig.config {settings.mig.config!r} on the same node: the plugin shares whole GPUs by MPS, no "
            "MIG devices"
        )
        yield _problem("sharing.strategy", "mps", message)
    if settings.mps.enabled and settings.device_plugin.method != "none":
        message = (
            "runs a control daemon on the host, and in a cluster the device plugin runs its own; leave mps out and set "
            "sharing.strategy to 'mps'"
        )
        yield _problem("mps.enabled", True, message)


def _mig(settings: Settings) -> Iterator[Problem]:
    sharing, name = settings.sharing, settings.mig.config
    method = settings.device_plugin.method
    if method == "none":
        return
    if name is not None and _LABEL_VALUE.fullmatch(name) is None:
        yield _problem("mig.config", name, "cannot be a label's value in a cluster: it must end in a letter or digit")
    if not _has_instances(settings):
        return
    if method == "gpushare":
        message = "makes MIG devices, which gpushare does not know; leave it out, or set another device_plugin.method"
        yield _problem("mig.config", name, message)
        return
    # A ConfigMap of the user's own says the strategy itself.
    hides = sharing.mig_strategy == "none" and settings.device_plugin.config_name is None
    if hides and sharing.strategy != "mps":
        message = f"hides the MIG devices of mig.config {name!r} from pods; set 'mixed', or 'single' for one profile"
        yield _problem("sharing.mig_strategy", "none", message)
    if sharing.mig_strategy == "single" and (several := _several_profiles(settings)):
        message = f"needs all MIG devices to be of one profile, and mig.config {name!r} has {several}; set 'mixed'"
        yield _problem("sharing.mig_strategy", "single", message)


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


def _old_plugin(settings: Settings) -> Iterator[Problem]:
    version, needs = settings.device_plugin.version, features.of_plugin()
    if not needs.are_met_by(version):
        message = f"is older than the {needs.minimum} that gpunode takes ({needs.source}); set a newer one"
        yield _problem("device_plugin.version", version, message)


def _unquoted(settings: Settings) -> Iterator[Problem]:
    plugin, fault = settings.device_plugin, features.unquoted_values()["failOnInitError"]
    if plugin.fail_on_init_error is not None and fault.concerns(plugin.version):
        message = (
            f"cannot be set with chart {plugin.version}, which writes it without quotes, as no API server takes it "
            f"({fault.source}); set device_plugin.version to {fault.mended} or newer, or leave it out"
        )
        yield _problem("device_plugin.fail_on_init_error", plugin.fail_on_init_error, message)


def _old_kubernetes(settings: Settings) -> Iterator[Problem]:
    version, table = settings.kubernetes.version, features.of_kubernetes()
    if version is None:
        return
    needs = table["device-plugin"]
    if not at_least(version, needs.minimum):
        message = f"is older than the {needs.minimum} that the device plugin needs ({needs.source})"
        yield _problem("kubernetes.version", version, message)
        return
    needs = table["cdi-cri"]
    if "cdi-cri" in settings.device_plugin.strategies and not needs.are_met_by(version):
        message = (
            f"by 'cdi-cri' needs Kubernetes {needs.minimum} or newer ({needs.source}), and the cluster is {version}"
        )
        yield _problem("device_plugin.device_list_strategy", settings.device_plugin.device_list_strategy, message)
    needs = table["runtime-class"]
    if needs_runtime_class(settings) and not needs.are_met_by(version):
        message = f"needs Kubernetes {needs.minimum} or newer ({needs.source}), and the cluster is {version}"
        yield _problem("device_plugin.runtime_class", settings.device_plugin.runtime_class, message)


def _device_list(settings: Settings) -> Iterator[Problem]:
    """Yield where the method by which pods are told their GPUs is one that the node's toolkit does not take."""
    plugin, toolkit, key = settings.device_plugin, settings.toolkit, "device_plugin.device_list_strategy"
    desired = plugin.device_list_strategy
    if not toolkit.enabled:
        if default_runtime(settings) is not None and not all(each in _CDI for each in plugin.strategies):
            message = "needs the container toolkit, which toolkit.enabled = False leaves out; only CDI does without"
            yield _problem(key, desired, message)
        return
    by_variable = toolkit.accept_nvidia_visible_devices_envvar_when_unprivileged is not False
    if "envvar" in plugin.strategies and not by_variable:
        message = (
            "hands GPUs over by 'envvar', which toolkit.accept_nvidia_visible_devices_envvar_when_unprivileged = False "
            "(toolkit.preset 'shared') makes the toolkit ignore; set 'volume-mounts', 'cdi-annotations' or 'cdi-cri'"
        )
        yield _problem(key, desired, message)
    if "volume-mounts" in plugin.strategies and toolkit.accept_nvidia_visible_devices_as_volume_mounts is not True:
        message = (
            "by 'volume-mounts' needs toolkit.accept_nvidia_visible_devices_as_volume_mounts = True: the toolkit's own "
            "default is to ignore them"
        )
        yield _problem(key, desired, message)
    since, version = tables.toolkit().mounts_in_mode_cdi, toolkit.version
    older = version is not None and not at_least(version, since)
    if "volume-mounts" in plugin.strategies and toolkit.mode == "cdi" and older:
        message = (
            f"by 'volume-mounts' counts for nothing in toolkit.mode 'cdi' before {since}, and toolkit.version is "
            f"{version}; set 'cdi-annotations' or 'cdi-cri', or toolkit.mode = 'auto'"
        )
        yield _problem(key, desired, message)
    cdi = [each for each in plugin.strategies if each in _CDI]
    if cdi and settings.containerd.enabled and settings.containerd.cdi is False:
        message = f"by {cdi[0]!r} needs a runtime with CDI, and containerd.cdi is False"
        yield _problem(key, desired, message)


def _runtime(settings: Settings) -> Iterator[Problem]:
    desired = settings.device_plugin.runtime_class
    default = default_runtime(settings)
    if desired == "none" and default in ("crun", "runc"):
        of = "containerd" if settings.containerd.enabled else "crio" if settings.crio.enabled else "docker"
        message = (
            f"leaves the plugin's pods to {default}, the node's default runtime, by which they see no driver; set "
            f"'auto', or {of}.default_runtime to 'nvidia'"
        )
        yield _problem("device_plugin.runtime_class", desired, message)
    if desired == "nvidia" and not settings.toolkit.enabled:
        message = "names a runtime that toolkit.enabled = False leaves out; enable the toolkit, or set 'none'"
        yield _problem("device_plugin.runtime_class", desired, message)


def _config(settings: Settings) -> Iterator[Problem]:
    plugin, sharing = settings.device_plugin, settings.sharing
    if plugin.config_name is None:
        if sharing.config is not None:
            message = "names an entry of a ConfigMap of your own, and device_plugin.config_name names none; set it, too"
            yield _problem("sharing.config", sharing.config, message)
        return
    if sharing.strategy != "none" or sharing.mig_strategy != "none":
        message = (
            "takes the plugin's configurations from a ConfigMap of your own (config.name), and sharing makes them "
            "itself (config.map), which the chart takes one of; leave sharing.strategy and mig_strategy out, or this"
        )
        yield _problem("device_plugin.config_name", plugin.config_name, message)
