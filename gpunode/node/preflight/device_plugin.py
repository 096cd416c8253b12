"""Does the device plugin serve the desired MIG devices, and as many GPUs as are to be verified?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpunode.base.verdicts import Refusal, RefusalMessage
from gpunode.components.mig.device_filter import Match
from gpunode.components.mig.target import chosen
from gpunode.kubernetes.device_plugin.mig_resources import Divided, Registered
from gpunode.kubernetes.device_plugin.promise import promised
from gpunode.node.preflight.mig import has_no_mig
from gpunode.settings import Settings
from gpunode.settings.mig_parted.document import DeclarationError, parse_profile
from gpunode.system.pci import PciGpu

TOO_MANY_PODS = RefusalMessage(
    "verify-too-many-pods",
    "The verification is set to more pods at once than the node's GPUs offer.",
    component="device_plugin",
    reason="verify.vector_add_pods is {desired}, and by its settings the node offers {offered}",
    source="the GPUs on the node's bus, sharing.replicas (or resources) and mig.config",
    remedy="set verify.vector_add_pods = {most} or less, or more replicas by sharing",
)


PLUGIN_ENDS = RefusalMessage(
    "device-plugin-ends",
    "The device plugin would end on the node with the desired MIG devices, and offer none of its GPUs.",
    component="device_plugin",
    reason="device plugin {version} would end on the node, and offer no GPU: {reason}",
    source="k8s-device-plugin, internal/rm/device_map.go and rm.go, v0.15.0 to v0.20.0",
    remedy="set sharing.mig_strategy = 'mixed', or another mig.config: devices with all compute slices of their GPU "
    "instance (3g.40gb, not 1c.3g.40gb), and for 'single' of one profile on every GPU",
)


def plugin_refusals(settings: Settings, gpus: Sequence[PciGpu]) -> Iterator[Refusal]:
    """Refuse MIG devices with which the device plugin ends: the node would offer nothing."""
    promise = _promised(settings, gpus) if settings.kubernetes.enabled else None
    if promise is not None and promise.ends is not None:
        yield PLUGIN_ENDS(version=settings.device_plugin.program_version, reason=promise.ends)


def verify_refusals(settings: Settings, gpus: Sequence[PciGpu]) -> Iterator[Refusal]:
    """Refuse more pods than the node is to offer of any resource; the cluster's verdict judges the rest."""
    desired = settings.verify.vector_add_pods
    if desired < 2 or not settings.kubernetes.enabled:
        return
    promise = _promised(settings, gpus)
    found = {} if promise is None else promise.resources
    # A node without GPUs has nothing to add vectors on, which is no mistake.
    if found and desired > max(found.values()):
        offered = ", ".join(f"{name}: {count}" for name, count in sorted(found.items()))
        yield TOO_MANY_PODS(desired=desired, offered=offered, most=max(found.values()))


def _promised(settings: Settings, gpus: Sequence[PciGpu]) -> Registered | None:
    """Return what the node is to offer; None where its settings do not say.

    gpushare counts the memory of GPUs, which needs a driver.
    """
    plugin, sharing = settings.device_plugin, settings.sharing
    if plugin.method in ("none", "gpushare") or plugin.config_name is not None:
        return None
    if sharing.mig_strategy == "none":
        return promised(sharing, Divided(len(gpus), len(gpus)), plugin.program_version)
    if settings.mig.config is None:
        # The GPUs may have been divided by hand.
        return None
    try:
        every = tuple(chosen(settings.mig, gpus))
    except DeclarationError:
        # preflight/mig.py refuses it.
        return None
    if any(each.match is Match.MAYBE for each in every):
        return None
    devices: Counter[tuple[str, str]] = Counter()
    whole = empty = 0
    for each in every:
        if each.entry is None and not has_no_mig(each.gpu):
            # It stays as it is, which may be divided by hand.
            return None
        # `devices: all` leaves out a GPU without MIG.
        if each.entry is None or not each.entry.mig_enabled or has_no_mig(each.gpu):
            whole += 1
            continue
        counts = {profile: count for profile, count in (each.entry.mig_devices or {}).items() if count}
        empty += not counts
        for profile, count in counts.items():
            # A file may have 3c.3g.40gb for 3g.40gb.
            devices[each.gpu.device_id.upper(), str(parse_profile(profile))] += count
    return promised(sharing, Divided(len(every), whole, empty, devices), plugin.program_version)
