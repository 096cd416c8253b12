"""The files by which DCGM's units do what the settings ask; the packages' own units stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpunode.base.template import rendered

if TYPE_CHECKING:
    from gpunode.settings import Settings
    from gpunode.settings.dcgm import ExporterSettings

ENGINE, EXPORTER = "nvidia-dcgm.service", "nvidia-dcgm-exporter.service"
ENGINE_FILE = f"/etc/systemd/system/{ENGINE}.d/50-gpunode.conf"
EXPORTER_FILE = f"/etc/systemd/system/{EXPORTER}.d/50-gpunode.conf"
FILES = {ENGINE: ENGINE_FILE, EXPORTER: EXPORTER_FILE}
PATHS = (ENGINE_FILE, EXPORTER_FILE)
# Where nv-hostengine listens by itself.
HOST_ENGINE = "127.0.0.1:5555"


def variables(desired: ExporterSettings) -> dict[str, str]:
    """Return the variables by which the exporter is told what is desired; it counts in milliseconds."""
    found = {"DCGM_EXPORTER_LISTEN": desired.listens, "DCGM_EXPORTER_INTERVAL": str(desired.interval * 1000)}
    if desired.engine == "host":
        found |= {"DCGM_REMOTE_HOSTENGINE_INFO": HOST_ENGINE, "DCGM_EXPORTER_NO_HOSTNAME": "true"}
    return found


def exporter_text(desired: ExporterSettings) -> str:
    """Return the exporter's drop-in; one that asks the host engine goes and comes with it."""
    engine = ENGINE if desired.engine == "host" else ""
    return rendered("dcgm-exporter.conf", variables=variables(desired), engine=engine)


def files(settings: Settings, machine: object) -> dict[str, str | None]:
    """Return both drop-ins, which are the same on every machine; None: gpunode runs nothing of it."""
    desired = settings.dcgm
    exporter = desired.enabled and desired.exporter.enabled
    return {
        ENGINE_FILE: rendered("dcgm.conf", health=desired.health) if desired.enabled else None,
        EXPORTER_FILE: exporter_text(desired.exporter) if exporter else None,
    }
