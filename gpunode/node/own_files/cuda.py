"""The script that puts CUDA on the PATH."""

from __future__ import annotations

from gpunode.base.template import rendered
from gpunode.node.machine import Machine
from gpunode.settings import Settings

PROFILE = "/etc/profile.d/cuda.sh"
# The package of that name brings a script of its own, which an upgrade of it brings again.
ARCH_PROFILE = "/etc/profile.d/gpunode-cuda.sh"
PATHS = (PROFILE, ARCH_PROFILE)


def profile_path(settings: Settings) -> str:
    """Return where the script stands; the settings are those of `resolve_for_os`."""
    return ARCH_PROFILE if settings.cuda.source == "distribution" else PROFILE


def files(settings: Settings, machine: Machine) -> dict[str, str | None]:
    """Return the profile script."""
    if not settings.cuda.enabled:
        return {}
    return {profile_path(settings): rendered("cuda.sh") if settings.cuda.profile else None}
