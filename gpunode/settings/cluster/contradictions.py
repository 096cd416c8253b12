"""What one node's settings cannot have together in a cluster: each by name, before any connection."""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base import tables
from gpunode.settings.chart import too_old
from gpunode.settings.cluster.plugin_contradictions import of_plugin, of_runtime_class
from gpunode.settings.kubernetes import LABEL_VALUE
from gpunode.settings.mig_parted.declaration import Declaration, known_names, published, selected
from gpunode.settings.mig_parted.document import DeclarationError
from gpunode.settings.model import Settings
from gpunode.settings.problems import Problem, contradiction

_LABEL_WITHOUT_CLUSTER = contradiction(
    "label-without-cluster", "mig.config_from_label takes the MIG configuration from a cluster's label, and the node "
    "is in no cluster; set kubernetes.enabled = True, or set mig.config instead",
)  # fmt: skip
_SHARING_WITHOUT_CLUSTER = contradiction(
    "sharing-without-cluster", "sharing.{first} has no effect outside a cluster; set kubernetes.enabled = True, or "
    "leave sharing out", "sharing is set for a node that is in no cluster.",
)  # fmt: skip
_MPS_WITH_MIG = contradiction(
    "mps-beside-mig", "sharing.strategy excludes mig.config {settings.mig.config!r} on the same node, since the device "
    "plugin shares only whole GPUs by MPS; leave one of the two out",
    "sharing.strategy 'mps' and mig.config exclude each other on one node.",
)  # fmt: skip
_MPS_ON_HOST = contradiction(
    "mps-on-host", "mps.enabled runs a control daemon on the host, and in a cluster the device plugin runs its own; "
    "leave mps out and set sharing.strategy to 'mps'",
)  # fmt: skip
_MIG_NO_LABEL_VALUE = contradiction(
    "mig-no-label-value", "mig.config cannot be a label's value: at most 63 letters, digits, '.', '_' or '-', with a "
    "letter or digit at both ends; rename it",
)  # fmt: skip
_MIG_WITH_GPUSHARE = contradiction(
    "mig-with-gpushare",
    "mig.config makes MIG devices, which gpushare does not support; leave it out, or set another device_plugin.method",
)
_MIG_HIDDEN = contradiction(
    "mig-hidden", "sharing.mig_strategy hides the MIG devices of mig.config {settings.mig.config!r} from pods; set "
    "'mixed', or 'single' for one profile", "sharing.mig_strategy 'none' hides the MIG devices from pods.",
)  # fmt: skip
_MIG_SEVERAL_PROFILES = contradiction(
    "mig-several-profiles", "sharing.mig_strategy needs all MIG devices to have one profile, and mig.config "
    "{settings.mig.config!r} has {several}; set 'mixed'",
    "sharing.mig_strategy 'single' needs one profile, and mig.config has several.",
)  # fmt: skip
_KUBERNETES_TOO_OLD_FOR_EXPORTER = contradiction(
    "kubernetes-too-old-for-exporter", "kubernetes.version is older than the {needs.minimum} that dcgm_exporter_chart "
    "needs ({needs.source}); upgrade Kubernetes, or leave dcgm_exporter_chart out",
    "Kubernetes is too old for DCGM's exporter.",
)  # fmt: skip


def contradictions(settings: Settings) -> Iterator[Problem]:
    """Yield what a node's settings cannot have together, where it is a node of a cluster."""
    if not settings.kubernetes.enabled:
        yield from _without_cluster(settings)
        return
    yield from _mps(settings)
    yield from _mig(settings)
    yield from of_plugin(settings)
    if settings.dcgm_exporter_chart.enabled:
        if settings.device_plugin.method == "none":
            yield from of_runtime_class(settings)
        if needs := too_old(settings.kubernetes.version, "dcgm-exporter-chart"):
            yield _KUBERNETES_TOO_OLD_FOR_EXPORTER(settings, needs=needs)


def _without_cluster(settings: Settings) -> Iterator[Problem]:
    if settings.mig.config_from_label:
        yield _LABEL_WITHOUT_CLUSTER(settings)
    if settings.sharing != type(settings.sharing).model_validate({}):
        yield _SHARING_WITHOUT_CLUSTER(settings, first=min(settings.sharing.model_fields_set))


def _mps(settings: Settings) -> Iterator[Problem]:
    by_plugin = settings.sharing.strategy == "mps"
    if by_plugin and _has_instances(settings):
        yield _MPS_WITH_MIG(settings)
    if settings.mps.enabled and settings.device_plugin.method != "none":
        yield _MPS_ON_HOST(settings)


def _mig(settings: Settings) -> Iterator[Problem]:
    sharing, name = settings.sharing, settings.mig.config
    method = settings.device_plugin.method
    if method == "none":
        return
    if name is not None and LABEL_VALUE.fullmatch(name) is None:
        yield _MIG_NO_LABEL_VALUE(settings)
    if not _has_instances(settings):
        return
    if method == "gpushare":
        yield _MIG_WITH_GPUSHARE(settings)
        return
    # The user's own ConfigMap has the strategy.
    hides = sharing.mig_strategy == "none" and settings.device_plugin.config_name is None
    if hides and sharing.strategy != "mps":
        yield _MIG_HIDDEN(settings)
    if sharing.mig_strategy == "single" and (several := _several_profiles(settings)):
        yield _MIG_SEVERAL_PROFILES(settings, several=several)


def declarations(settings: Settings) -> tuple[Declaration, ...]:
    """Return the declarations in which the node's configuration may stand: the file, else each product's."""
    try:
        if settings.mig.file is not None:
            declaration = settings.mig.declaration()
            selected(declaration, settings.mig.config)
            return (declaration,)
    except DeclarationError:
        # The settings of MIG report these mistakes.
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
    return any(entry.mig_enabled for each in declarations(settings) for entry in each.configs[name])


def _several_profiles(settings: Settings) -> str:
    """Return the profiles of a configuration that has several wherever it is published; empty where it has one."""
    name, found = settings.mig.config or "", []
    for each in declarations(settings):
        profiles = {
            profile for entry in each.configs[name] for profile, count in (entry.mig_devices or {}).items() if count
        }
        # An entry of a file may be for another product; what is published is for the whole of one.
        if len(profiles) < 2 or any(entry.device_filter for entry in each.configs[name]):
            return ""
        found.append(", ".join(sorted(profiles)))
    return found[0] if found else ""
