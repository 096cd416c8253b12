"""Settings of Aliyun's gpushare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from gpunode.settings.chart import HOST
from gpunode.settings.component import AbsolutePath, Component, Sha256, matching

_Image = Annotated[
    str,
    matching(
        rf"{HOST}(/[A-Za-z0-9._~+-]+)*(:[A-Za-z0-9_][A-Za-z0-9._-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?",
        "an image such as 'registry.example.org/gpushare-plugin:v2'",
    ),
]
_Address = Annotated[
    str, matching(rf"https?://{HOST}(/[A-Za-z0-9._~+%-]+)*", "an http:// or https:// address without user or query")
]
_HostName = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._-]*", "a host's name in the inventory")]


class GpushareSettings(Component):
    """Aliyun's gpushare, by which pods ask for GPU memory (`aliyun.com/gpu-mem`): scheduler extender, device plugin,
    and a kube-scheduler that asks the extender. It counts memory and does not isolate it: a pod that takes more than
    its share takes it from the others on its GPU. Counts where `device_plugin.method` is `gpushare`; all nodes of a run
    must have the same. See docs/device-plugin.md."""

    scheduler: Literal["patch", "theirs"] = "patch"
    """`patch`: kube-scheduler's static manifest is changed on the control-plane hosts, as a transaction; `theirs`:
    somebody else makes the scheduler ask the extender (managed control planes)."""
    schedulers: list[_HostName] = Field(default_factory=list, max_length=64)
    """The control-plane hosts, by their names in the inventory. Not given: the host of `kubernetes.run_on`; required
    where that is `@local`, unless `scheduler` is `theirs`."""
    manifest: AbsolutePath = "/etc/kubernetes/manifests/kube-scheduler.yaml"
    """Path of the scheduler's static manifest there."""
    extender_image: _Image = "registry.cn-hangzhou.aliyuncs.com/acs/k8s-gpushare-schd-extender:1.11-d170d8a"
    """Image of the scheduler extender."""
    plugin_image: _Image = "registry.cn-hangzhou.aliyuncs.com/acs/k8s-gpushare-plugin:v2-1.11-aff8a23"
    """Image of the device plugin."""
    node_port: int = Field(32766, ge=1024, le=65535)
    """Port of every node by which the scheduler reaches the extender."""
    memory_unit: Literal["GiB", "MiB"] = "GiB"
    """What one of `aliyun.com/gpu-mem` is."""
    ignorable: bool = False
    """true: pods are placed without the extender where it does not answer, and may share too much."""
    inspect_url: _Address | None = None
    """Address of the kubectl plugin `kubectl-inspect-gpushare`, installed on the machine that gpunode runs on; only
    together with its `inspect_sha256`. Not given: it is not installed."""
    inspect_sha256: Sha256 | None = None
    """Its SHA-256; required with `inspect_url`."""
    inspect_path: AbsolutePath = "/usr/local/bin/kubectl-inspect-gpushare"
    """Where it is put."""

    @property
    def address(self) -> str:
        """Return the address at which the scheduler asks the extender."""
        return f"http://127.0.0.1:{self.node_port}/gpushare-scheduler"

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what cannot be asked for together."""
        if (self.inspect_url is None) != (self.inspect_sha256 is None):
            missing = "inspect_sha256" if self.inspect_sha256 is None else "inspect_url"
            yield missing, "is missing: what is fetched is checked, so that inspect_url and inspect_sha256 go together"
        if self.scheduler == "theirs" and self.schedulers:
            yield "schedulers", "says nothing with gpushare.scheduler 'theirs'; leave one of the two out"
