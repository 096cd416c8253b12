"""Settings of docker."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gpunode.settings.component import Component, UpstreamVersion


class DockerSettings(Component):
    """Say how docker shall run containers on a node."""

    summary: ClassVar[str] = (
        "Docker: its package and daemon.json, of which every other key is kept. Runtimes and the default one take a "
        "reload, the cgroup driver and CDI a restart, which containers survive where `live-restore` is on."
    )

    enabled: bool = Field(False, description="true: gpunode installs and configures docker.")
    source: Literal["distribution", "docker-repository", "present"] = Field(
        "distribution",
        description=(
            "Where it comes from: the distribution's `docker.io` (Debian, Ubuntu), Docker's `docker-ce`, or `present`: "
            "already there, only configured."
        ),
    )
    version: UpstreamVersion | None = Field(
        None, description="Upstream version; not given: the source's newest. Not with `source: present`."
    )
    default_runtime: Literal["nvidia", "runc"] = Field(
        "nvidia", description="Runtime of containers that name none; with `runc`, `docker run --runtime nvidia`."
    )
    systemd_cgroup: bool = Field(
        True, description="Use systemd's cgroup driver (`native.cgroupdriver=systemd`), else cgroupfs."
    )
    cdi: bool | None = Field(None, description="`features.cdi`, for docker 25.0 and later; not given: left as it is.")

    def contradictions(self) -> list[tuple[str, str]]:
        """Return a version of a package that gpunode does not install."""
        if self.source == "present" and self.version is not None:
            return [("version", "cannot be asked for with docker.source 'present'; leave one of the two out")]
        return []
