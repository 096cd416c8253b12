"""Settings of the NVIDIA container toolkit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import model_validator

from gpunode.base import tables, versions
from gpunode.settings.component import Component, ToolkitVersion

_SHARED = {
    "accept_nvidia_visible_devices_envvar_when_unprivileged": False,
    "accept_nvidia_visible_devices_as_volume_mounts": True,
}


class ToolkitSettings(Component):
    """The NVIDIA container toolkit: nvidia-container-runtime, nvidia-ctk, libnvidia-container. Keys of its config.toml
    that no setting names stay as they are; containers that run already are not disturbed."""

    enabled: bool = True
    """false: the container toolkit is not installed."""
    version: ToolkitVersion | None = None
    """Exact upstream version, such as `1.17.8`; not given: the repository's newest."""
    channel: Literal["stable", "experimental"] = "stable"
    """Channel of NVIDIA's repository; release candidates are in `experimental` only."""
    hold: bool = False
    """Keep the toolkit's packages at what is installed: apt-mark hold and apt preferences, or dnf's versionlock;
    removed again with `False`. Another `version` still moves them."""
    migrate: bool = False
    """Where the deprecated nvidia-docker2 (or nvidia-container-runtime) is installed the node is refused; with `True`
    it is removed in the transaction that brings the toolkit. docker's daemon.json stays."""
    preset: Literal["none", "shared"] = "none"
    """`shared`: for nodes that several parties use. Unprivileged containers get no GPU by setting
    NVIDIA_VISIBLE_DEVICES, only by volume mounts (the two settings `accept_…` below are False and True). The device
    plugin's deviceListStrategy must then be volume-mounts or one of CDI's. See docs/security.md."""
    mode: Literal["auto", "legacy", "cdi", "jit-cdi"] | None = None
    """How GPUs get into containers (config.toml: nvidia-container-runtime.mode). `jit-cdi`, from 1.18 on: by CDI
    specifications that are made in memory at each start, which `auto` comes to there."""
    no_cgroups: bool | None = None
    """`True`: device cgroups are left alone, for rootless containers (config.toml: nvidia-container-cli.no-cgroups).
    Without effect in modes `cdi` and `jit-cdi`."""
    debug: bool | None = None
    """`True`: runtime and container CLI write logs at /var/log/nvidia-container-runtime.log and -toolkit.log; `False`:
    they do not."""
    accept_nvidia_visible_devices_envvar_when_unprivileged: bool | None = None
    """Whether NVIDIA_VISIBLE_DEVICES counts in an unprivileged container (config.toml:
    accept-nvidia-visible-devices-envvar-when-unprivileged; the toolkit's own default is true)."""
    accept_nvidia_visible_devices_as_volume_mounts: bool | None = None
    """Whether mounts below /var/run/nvidia-container-devices name a container's GPUs (config.toml:
    accept-nvidia-visible-devices-as-volume-mounts; the toolkit's own default is false)."""
    cdi: Literal["off", "generate"] = "off"
    """`generate`: keep a CDI specification of the loaded driver: by the toolkit's own nvidia-cdi-refresh where it has
    one (from 1.18), where nvidia-cdi-refresh.env says, else as /etc/cdi/nvidia.yaml. `off`: gpunode's own is
    removed."""
    device_links: bool = True
    """Keep a link in /dev/char for every NVIDIA device, now and by a udev rule: without them a container loses its GPUs
    at `systemctl daemon-reload` where systemd manages the cgroups."""

    @model_validator(mode="before")
    @classmethod
    def _preset(cls, data: Any) -> Any:
        """Fill in what a preset says and the settings do not."""
        if isinstance(data, dict) and data.get("preset") == "shared":
            return {**data, **{key: value for key, value in _SHARED.items() if data.get(key) is None}}
        return data

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a release candidate of the stable channel, what a preset forbids, and modes that cannot work."""
        if self.version and "-rc" in self.version and self.channel == "stable":
            yield "version", "is a release candidate, which toolkit.channel 'stable' does not carry; use 'experimental'"
        for key, value in _SHARED.items():
            if self.preset == "shared" and getattr(self, key) is not value:
                yield key, f"is the opposite of what toolkit.preset 'shared' says ({value}); leave one out"
        if self.mode == "cdi" and self.cdi == "off":
            yield "mode", "needs a CDI specification, and toolkit.cdi is 'off'; set toolkit.cdi = 'generate' with it"
        if self.mode in ("cdi", "jit-cdi") and self.no_cgroups is not None:
            yield "no_cgroups", f"has no effect in toolkit.mode {self.mode!r}; leave it out, or use mode 'legacy'"
        first = tables.toolkit().modes.get(self.mode or "")
        if first and self.version and not versions.at_least(self.version, first):
            message = f"is known from toolkit.version {first} on, and {self.version} is asked for; use 'auto' or 'cdi'"
            yield "mode", message
