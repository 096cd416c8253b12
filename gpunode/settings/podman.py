"""Settings of podman."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from gpunode.base import versions
from gpunode.base.tables.reading import Row, table
from gpunode.settings.component import Component, UpstreamVersion
from gpunode.settings.runtimes import Runtime


@dataclass(frozen=True)
class Archive(Row):
    """Hold which podman a distribution's own archive has; empty: it has none."""

    id: str
    version: str
    podman: str


@dataclass(frozen=True)
class Known(Row):
    """Hold which podman reads what: the first with CDI, and the first that reads what a toolkit writes from one on.

    `archives` are those of which that is known.
    """

    first_with_cdi: str
    first_with_gids: str
    first_toolkit_with_gids: str
    archives: tuple[Archive, ...]


known = table(Known, "podman.yaml")


class PodmanSettings(Runtime):
    """Podman, whose containers get GPUs by CDI: `podman run --device nvidia.com/gpu=all`. It has no daemon, so that
    nothing is restarted, and its containers do not count for disruption.allow."""

    component: ClassVar[str] = "podman"

    enabled: bool = False
    """true: gpunode installs and configures podman."""
    source: Literal["distribution", "present"] = "distribution"
    """The distribution's package, or `present`: already there, only configured."""
    version: UpstreamVersion | None = None
    """Upstream version; not given: the distribution's. Not with `source: present`."""
    default_runtime: Literal["nvidia", "runc", "crun"] | None = None
    """Runtime of containers that name none, in containers.conf.d/50-gpunode.conf; with `nvidia`, containers get GPUs by
    NVIDIA_VISIBLE_DEVICES, too. Where crun or runc is not there, its package is installed (not with `source: present`,
    which is refused). Not given: gpunode writes no such file."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a version of a package that gpunode does not install, or that knows no CDI."""
        yield from super().contradictions()
        first = known().first_with_cdi
        old = self.version is not None and not versions.at_least(self.version, versions.major_minor(first))
        if old and self.source != "present":
            yield "version", f"knows no CDI, by which containers get GPUs; {first} is the first that does"

    def beside(self, others: Mapping[str, Component]) -> Iterator[tuple[str, str]]:
        """Yield what podman lacks: a CDI specification, without which it has no way to a GPU."""
        toolkit = others.get("toolkit")
        if not self.enabled or toolkit is None:
            return
        if not getattr(toolkit, "enabled", False):
            yield "enabled", "needs the NVIDIA container toolkit, which toolkit.enabled = False leaves out"
        elif getattr(toolkit, "cdi", None) != "generate":
            yield "enabled", "needs a CDI specification; set toolkit.cdi = 'generate' with it"
