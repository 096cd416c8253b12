"""Has the node, by its settings, as many parts of GPUs as pods are to be started on it at once?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.components.mig.device_filter import Match
from gpunode.components.mig.target import chosen
from gpunode.kubernetes.device_plugin.promise import promised
from gpunode.settings import Settings
from gpunode.settings.mig_parted.document import DeclarationError
from gpunode.system.pci import PciGpu

TOO_MANY_PODS = RefusalMessage(
    "verify-too-many-pods",
    "The verification is set to more pods at once than the node's GPUs offer.",
    component="device_plugin",
    reason="verify.vector_add_pods is {desired}, and by its settings the node offers {offered}",
    source="the GPUs on the node's bus, sharing.replicas (or resources) and mig.config",
    remedy="set verify.vector_add_pods = {most} or less, or more replicas by sharing",
)


def verify_refusals(settings: Settings, gpus: Sequence[PciGpu]) -> Iterator[Refusal]:
    """Refuse more pods than the node is to offer of any resource; the cluster's verdict judges the rest."""
    desired = settings.verify.vector_add_pods
    if desired < 2 or not settings.kubernetes.enabled:
        return
    found = _promised(settings, gpus)
    # A node without GPUs has nothing to add vectors on, which is no mistake.
    if found and desired > max(found.values()):
        offered = ", ".join(f"{name}: {count}" for name, count in sorted(found.items()))
        yield TOO_MANY_PODS(desired=desired, offered=offered, most=max(found.values()))


def _promised(settings: Settings, gpus: Sequence[PciGpu]) -> Mapping[str, int] | None:
    """Return resource -> how many the node is to offer; None where its settings do not say.

    gpushare counts the memory of GPUs, which needs a driver.
    """
    plugin, sharing = settings.device_plugin, settings.sharing
    if plugin.method in ("none", "gpushare") or plugin.config_name is not None:
        return None
    if settings.mig.config is None:
        # The GPUs may have been divided by hand.
        return promised(sharing, len(gpus), {}) if sharing.mig_strategy == "none" else None
    try:
        every = tuple(chosen(settings.mig, gpus))
    except DeclarationError:
        # preflight/mig.py refuses it.
        return None
    if any(each.match is Match.MAYBE for each in every):
        return None
    devices: Counter[str] = Counter()
    for each in every:
        if each.entry is not None and each.entry.mig_enabled:
            devices.update(each.entry.mig_devices or {})
    whole = sum(each.entry is None or not each.entry.mig_enabled for each in every)
    return promised(sharing, whole, devices)
