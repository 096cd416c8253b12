"""What the settings of the device plugin and of its method cannot have together on one node of a cluster."""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables
from gpunode.base.versions import at_least
from gpunode.settings import chart
from gpunode.settings.chart import too_old
from gpunode.settings.cluster import BY_CHART, default_runtime, needs_runtime_class
from gpunode.settings.device_plugin import METHOD
from gpunode.settings.model import Settings
from gpunode.settings.problems import Problem, contradiction

_CDI = ("cdi-annotations", "cdi-cri")
_MPS_ASKS_SINCE = "0.20.0"
# Options of the chart that nothing else has.
_CHART_OPTIONS = {
    "values": "sets values of the chart",
    "gfd": "comes with the chart",
    "nfd": "comes with the chart",
    "config_name": "names a ConfigMap for the chart",
}
_PLUGIN_TOO_OLD = contradiction(
    "plugin-too-old", "device_plugin.version is older than {needs.minimum}, the oldest that gpunode supports "
    "({needs.source}); set a newer one", "The device plugin is older than gpunode supports.",
)  # fmt: skip
_KUBERNETES_TOO_OLD_FOR_PLUGIN = contradiction(
    "kubernetes-too-old-for-plugin", "kubernetes.version is older than the {needs.minimum} that the device plugin "
    "needs ({needs.source}); upgrade Kubernetes, or set device_plugin.method to 'none'",
    "Kubernetes is too old for the device plugin.",
)  # fmt: skip
_KUBERNETES_TOO_OLD_FOR_CDI = contradiction(
    "kubernetes-too-old-for-cdi", "device_plugin.device_list_strategy by 'cdi-cri' needs Kubernetes {needs.minimum} or "
    "newer ({needs.source}), and the cluster has {settings.kubernetes.version}; upgrade Kubernetes, or set another "
    "strategy", "Kubernetes is too old for device_plugin.device_list_strategy 'cdi-cri'.",
)  # fmt: skip
_KUBERNETES_TOO_OLD_FOR_CLASS = contradiction(
    "kubernetes-too-old-for-class", "device_plugin.runtime_class needs Kubernetes {needs.minimum} or newer "
    "({needs.source}), and the cluster has {settings.kubernetes.version}; upgrade Kubernetes, or make 'nvidia' the "
    "node's default runtime and set 'none'", "Kubernetes is too old for the device plugin's RuntimeClass.",
)  # fmt: skip
_LIST_WITHOUT_TOOLKIT = contradiction(
    "list-without-toolkit", "device_plugin.device_list_strategy needs the container toolkit, which toolkit.enabled = "
    "False leaves out; enable it, or set 'cdi-annotations' or 'cdi-cri'",
)  # fmt: skip
_LIST_BY_VARIABLE = contradiction(
    "list-by-variable", "device_plugin.device_list_strategy hands GPUs over by 'envvar', which "
    "toolkit.accept_nvidia_visible_devices_envvar_when_unprivileged = False (toolkit.preset 'shared') makes the "
    "toolkit ignore; set 'volume-mounts', 'cdi-annotations' or 'cdi-cri'",
    "device_plugin.device_list_strategy 'envvar' uses a variable that the toolkit is set to ignore.",
)  # fmt: skip
_LIST_BY_MOUNTS = contradiction(
    "list-by-mounts", "device_plugin.device_list_strategy by 'volume-mounts' needs "
    "toolkit.accept_nvidia_visible_devices_as_volume_mounts = True; set it: the toolkit ignores volume mounts by "
    "default",
)  # fmt: skip
_LIST_BY_MOUNTS_IN_CDI = contradiction(
    "list-by-mounts-in-cdi",
    "device_plugin.device_list_strategy by 'volume-mounts' has no effect in toolkit.mode 'cdi' before {since}, and "
    "toolkit.version is {settings.toolkit.version}; set 'cdi-annotations' or 'cdi-cri', or toolkit.mode = 'auto'",
    "This toolkit.version ignores device_plugin.device_list_strategy 'volume-mounts' in toolkit.mode 'cdi'.",
)
_LIST_WITHOUT_CDI = contradiction(
    "list-without-cdi", "device_plugin.device_list_strategy by CDI needs a runtime with CDI, and containerd.cdi is "
    "False; set containerd.cdi = True, or another strategy",
)  # fmt: skip
_CLASS_LEFT_TO_RUNC = contradiction(
    "class-left-to-runc", "device_plugin.runtime_class leaves the plugin's pods to {default}, the node's default "
    "runtime, which gives them no driver; set 'auto', or {of}.default_runtime to 'nvidia'",
    "device_plugin.runtime_class 'none' leaves the plugin's pods to a runtime that gives them no driver.",
)  # fmt: skip
_CLASS_WITHOUT_TOOLKIT = contradiction(
    "class-without-toolkit", "device_plugin.runtime_class names a runtime that toolkit.enabled = False leaves out; "
    "enable the toolkit, or set 'none'",
)  # fmt: skip
_INIT_ERROR_UNQUOTED = contradiction(
    "init-error-unquoted",
    "device_plugin.fail_on_init_error is written without quotes by chart {settings.device_plugin.version}, and no "
    "API server accepts that ({fault.source}); set device_plugin.version to {fault.mended} or newer, or leave it out",
    "device_plugin.fail_on_init_error is written by this chart in a form that no API server accepts.",
)
_CONFIG_WITHOUT_MAP = contradiction(
    "config-without-map",
    "sharing.config names an entry of a ConfigMap, and device_plugin.config_name names no ConfigMap; set that, too",
)
_CONFIG_TWICE = contradiction(
    "config-twice", "device_plugin.config_name sets the chart's config.name, and sharing sets config.map: the chart "
    "takes only one of the two; leave sharing.strategy and sharing.mig_strategy out, or this",
)  # fmt: skip
_OF_THE_CHART = contradiction(
    "of-the-chart", "device_plugin.{field} {why}, and device_plugin.method is {settings.device_plugin.method!r}; leave "
    "it out", "An option of NVIDIA's chart is set, and device_plugin.method does not use that chart.",
)  # fmt: skip
_MANIFEST_MPS = contradiction(
    "manifest-mps",
    "sharing.strategy by MPS needs the control daemon of NVIDIA's chart; set device_plugin.method to 'helm'",
)
_MANIFEST_CDI = contradiction(
    "manifest-cdi",
    "device_plugin.device_list_strategy by CDI needs mounts of NVIDIA's chart; set device_plugin.method to 'helm'",
)
_GPUSHARE_STRATEGY = contradiction(
    "gpushare-strategy", "sharing.strategy belongs to NVIDIA's device plugin, and with device_plugin.method 'gpushare' "
    "pods share by memory; leave sharing out",
)  # fmt: skip
_GPUSHARE_MIG = contradiction(
    "gpushare-mig", "sharing.mig_strategy offers MIG devices, which gpushare does not support; leave it out, or set "
    "another device_plugin.method",
)  # fmt: skip
_GPUSHARE_BY_VARIABLE = contradiction(
    "gpushare-by-variable", "device_plugin.method hands GPUs over by a variable, which "
    "toolkit.accept_nvidia_visible_devices_envvar_when_unprivileged = False (toolkit.preset 'shared') makes the "
    "toolkit ignore; set another method, or that to True",
    "device_plugin.method 'gpushare' uses a variable that the toolkit is set to ignore.",
)  # fmt: skip
_MPS_ALWAYS_REFUSES = contradiction(
    "mps-always-refuses", "sharing.fail_requests_greater_than_one cannot be False with sharing.strategy 'mps' before "
    "device plugin {since}, which always refuses such requests; set a newer device_plugin.version, or leave it out",
    "The device plugin is too old for sharing.fail_requests_greater_than_one = False with MPS.",
)  # fmt: skip
_OLDER = (
    "kubernetes.version is older than the {minimum} that device_plugin.method {settings.device_plugin.method!r} "
    "needs ({source}); upgrade Kubernetes, or set another method"
)
_KUBERNETES_TOO_OLD_FOR_METHOD = contradiction(
    "kubernetes-too-old-for-method", _OLDER, "Kubernetes is too old for this device_plugin.method.",
)  # fmt: skip
_OPERATOR_FINDS_NO_NODES = contradiction(
    "operator-finds-no-nodes", "device_plugin.nfd leaves the GPU Operator without the labels by which it finds GPU "
    "nodes, so it would remove their nvidia.com/gpu.present; set 'chart', or 'present' where the cluster has node "
    "feature discovery", "device_plugin.nfd leaves the GPU Operator without the labels by which it finds GPU nodes.",
)  # fmt: skip
_OPERATOR_MIG_TWICE = contradiction(
    "operator-mig-twice", "gpu_operator.mig_manager has the operator apply MIG layouts, and with {key} gpunode applies "
    "them; leave one of the two out", "gpu_operator.mig_manager and gpunode would both apply MIG layouts.",
)  # fmt: skip
_KUBERNETES_TOO_OLD_FOR_OPERATOR = contradiction(
    "kubernetes-too-old-for-operator", _OLDER, "Kubernetes is too old for the GPU Operator.",
)  # fmt: skip


def of_plugin(settings: Settings) -> Iterator[Problem]:
    """Yield what the device plugin's settings cannot have together, by its method."""
    method = settings.device_plugin.method
    if method in ("manifest", "gpushare"):
        yield from _without_chart(settings)
        yield from of_runtime_class(settings)
    if method == METHOD:
        yield from _with_operator(settings)
    if method in (*BY_CHART, "manifest"):
        yield from _too_old(settings)
        yield from _device_list(settings)
    if method in BY_CHART:
        yield from _requests(settings)
        yield from of_runtime_class(settings)
        yield from _config(settings)


def _too_old(settings: Settings) -> Iterator[Problem]:
    oldest = chart.known().device_plugin["oldest"]
    if not oldest.are_met_by(settings.device_plugin.version):
        yield _PLUGIN_TOO_OLD(settings, needs=oldest)
    version = settings.kubernetes.version
    if needs := too_old(version, "device-plugin"):
        yield _KUBERNETES_TOO_OLD_FOR_PLUGIN(settings, needs=needs)
        return
    if "cdi-cri" in settings.device_plugin.strategies and (needs := too_old(version, "cdi-cri")):
        yield _KUBERNETES_TOO_OLD_FOR_CDI(settings, needs=needs)
    if needs_runtime_class(settings) and (needs := too_old(version, "runtime-class")):
        yield _KUBERNETES_TOO_OLD_FOR_CLASS(settings, needs=needs)


def _device_list(settings: Settings) -> Iterator[Problem]:
    """Yield where the node's toolkit does not accept the strategy by which pods get their GPUs."""
    plugin, toolkit = settings.device_plugin, settings.toolkit
    if not toolkit.enabled:
        if default_runtime(settings) is not None and not all(each in _CDI for each in plugin.strategies):
            yield _LIST_WITHOUT_TOOLKIT(settings)
        return
    by_variable = toolkit.accept_nvidia_visible_devices_envvar_when_unprivileged is not False
    if "envvar" in plugin.strategies and not by_variable:
        yield _LIST_BY_VARIABLE(settings)
    if "volume-mounts" in plugin.strategies and toolkit.accept_nvidia_visible_devices_as_volume_mounts is not True:
        yield _LIST_BY_MOUNTS(settings)
    since, version = tables.toolkit().mounts_in_mode_cdi, toolkit.version
    older = version is not None and not at_least(version, since)
    if "volume-mounts" in plugin.strategies and toolkit.mode == "cdi" and older:
        yield _LIST_BY_MOUNTS_IN_CDI(settings, since=since)
    cdi = any(each in _CDI for each in plugin.strategies)
    if cdi and settings.containerd.enabled and settings.containerd.cdi is False:
        yield _LIST_WITHOUT_CDI(settings)


def _requests(settings: Settings) -> Iterator[Problem]:
    # source: k8s-device-plugin v0.20.0, api/config/v1/config.go and internal/rm/rm.go (ValidateRequest)
    asks = at_least(settings.device_plugin.program_version, _MPS_ASKS_SINCE)
    sharing = settings.sharing
    if sharing.strategy == "mps" and sharing.fail_requests_greater_than_one is False and not asks:
        yield _MPS_ALWAYS_REFUSES(settings, since=_MPS_ASKS_SINCE)


def of_runtime_class(settings: Settings) -> Iterator[Problem]:
    """Yield what is wrong with the runtime of the pods that gpunode brings to the cluster."""
    desired = settings.device_plugin.runtime_class
    default = default_runtime(settings)
    if desired == "none" and default not in (None, "nvidia"):
        of = "containerd" if settings.containerd.enabled else "crio" if settings.crio.enabled else "docker"
        yield _CLASS_LEFT_TO_RUNC(settings, default=default, of=of)
    if desired == "nvidia" and not settings.toolkit.enabled:
        yield _CLASS_WITHOUT_TOOLKIT(settings)


def _config(settings: Settings) -> Iterator[Problem]:
    plugin, sharing = settings.device_plugin, settings.sharing
    fault = chart.known().unquoted_values["failOnInitError"]
    if plugin.fail_on_init_error is not None and fault.concerns(plugin.version):
        yield _INIT_ERROR_UNQUOTED(settings, fault=fault)
    if plugin.config_name is None:
        if sharing.config is not None:
            yield _CONFIG_WITHOUT_MAP(settings)
        return
    if sharing.strategy != "none" or sharing.mig_strategy != "none":
        yield _CONFIG_TWICE(settings)


def _without_chart(settings: Settings) -> Iterator[Problem]:
    """Yield what the methods `manifest` and `gpushare` cannot have."""
    plugin, sharing = settings.device_plugin, settings.sharing
    method = plugin.method
    for field, why in _CHART_OPTIONS.items():
        default = type(plugin).model_fields[field].get_default(call_default_factory=True)
        if getattr(plugin, field) != default:
            yield _OF_THE_CHART(settings, field=field, why=why)
    yield from _too_old_for_method(settings)
    if method == "manifest":
        if sharing.strategy == "mps":
            yield _MANIFEST_MPS(settings)
        if any(each in _CDI for each in plugin.strategies):
            yield _MANIFEST_CDI(settings)
    else:
        yield from _gpushare(settings)


def _gpushare(settings: Settings) -> Iterator[Problem]:
    sharing, toolkit = settings.sharing, settings.toolkit
    if sharing.strategy != "none":
        yield _GPUSHARE_STRATEGY(settings)
    if sharing.mig_strategy != "none":
        yield _GPUSHARE_MIG(settings)
    if toolkit.enabled and toolkit.accept_nvidia_visible_devices_envvar_when_unprivileged is False:
        yield _GPUSHARE_BY_VARIABLE(settings)


def _too_old_for_method(settings: Settings) -> Iterator[Problem]:
    needs = chart.of_kubernetes()["server-side-apply"]
    if settings.device_plugin.method == "gpushare" and settings.gpushare.scheduler == "patch":
        row = tables.content("scheduler.yaml")["configuration"][0]
        needs = chart.Needs(row["since"], row["source"])
    if settings.kubernetes.version is not None and not needs.are_met_by(settings.kubernetes.version):
        yield _KUBERNETES_TOO_OLD_FOR_METHOD(settings, minimum=needs.minimum, source=needs.source)


def _with_operator(settings: Settings) -> Iterator[Problem]:
    """Yield what a node cannot have together with the operator."""
    if settings.device_plugin.nfd == "none":
        yield _OPERATOR_FINDS_NO_NODES(settings)
    if settings.gpu_operator.mig_manager and (settings.mig.config is not None or settings.mig.config_from_label):
        key = "mig.config_from_label" if settings.mig.config_from_label else "mig.config"
        yield _OPERATOR_MIG_TWICE(settings, key=key)
    if needs := too_old(settings.kubernetes.version, "gpu-operator"):
        yield _KUBERNETES_TOO_OLD_FOR_OPERATOR(settings, minimum=needs.minimum, source=needs.source)
