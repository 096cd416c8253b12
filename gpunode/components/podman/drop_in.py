"""The file by which podman takes another runtime than its own; every other file of containers.conf stays as it is."""

from __future__ import annotations

from gpunode.base.template import rendered
from gpunode.settings import Settings

PATH = "/etc/containers/containers.conf.d/50-gpunode.conf"
PATHS = (PATH,)
# Findings about what the file does, beside which nothing is said of the file.
TOLD = ("default-runtime", "configuration-files")
# Where the toolkit's packages have it.
NVIDIA = "/usr/bin/nvidia-container-runtime"


def files(settings: Settings, machine: object) -> dict[str, str | None]:
    """Return the drop-in, which is the same on every machine."""
    if not settings.podman.enabled:
        return {}
    name = settings.podman.default_runtime
    return {PATH: rendered("containers.conf", runtime=name, nvidia=NVIDIA) if name else None}
