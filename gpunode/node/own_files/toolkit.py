"""The udev rule that links NVIDIA's devices in /dev/char."""

from __future__ import annotations

from gpunode.base.template import rendered
from gpunode.node.machine import Machine
from gpunode.settings import Settings

LINK_RULE = "/etc/udev/rules.d/71-gpunode-nvidia-dev-char.rules"
PATHS = (LINK_RULE,)


def files(settings: Settings, machine: Machine) -> dict[str, str | None]:
    """Return the udev rule."""
    if not settings.toolkit.enabled:
        return {}
    return {LINK_RULE: rendered("nvidia-dev-char.rules") if settings.toolkit.device_links else None}
