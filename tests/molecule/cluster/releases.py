"""One release, kept by the project's own operation and the real helm, and what the API server has of it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyinfra.context import ctx_host

from gpunode.kubernetes.device_plugin.desired_cluster import DesiredCluster, desired_cluster
from gpunode.kubernetes.helm.release import Revision, parse_history
from gpunode.operations import helm
from gpunode.settings import Settings, check_hosts
from tests.molecule.conftest import CHECKOUT
from tests.support.simulated_host import Host

CHART = CHECKOUT / "lab" / "charts" / "nvidia-device-plugin"
NAME = "nvdp"
CONFIG_MAP = f"{NAME}-nvidia-device-plugin-configs"
# As long as a release may take that is to fail; a pending one that is older was left behind.
SHORT = 15


def by(kubeconfig: Path, programs: Path, timeout: int, **more: Any) -> dict[str, object]:
    """Return settings `kubernetes`: the cluster told by the helm and kubectl in a folder, from this machine."""
    found = {"helm": str(programs / "helm"), "kubectl": str(programs / "kubectl")}
    return {"enabled": True, "kubeconfig": str(kubeconfig), **found, "timeout": timeout, **more}


@dataclass(frozen=True)
class Kept:
    """Hold what the operation did: steps as it named them, what it refused or failed with, why it did nothing."""

    steps: tuple[str, ...]
    failure: str
    noop: str


@dataclass(eq=False)
class _Host(Host):
    said: list[str] = field(default_factory=list)

    def log(self, text: str) -> None:
        self.said.append(text)


@dataclass(frozen=True)
class KeptRelease:
    """Keep a release in a namespace of its own, by one helm."""

    kubeconfig: Path
    programs: Path
    namespace: str

    def asked(self, timeout: int, plugin: dict[str, Any]) -> tuple[DesiredCluster, Settings]:
        """Return what the cluster is to get: a plugin that waits for GPUs, which these nodes need not have yet."""
        kubernetes = by(self.kubeconfig, self.programs, timeout)
        data = {"chart": str(CHART), "namespace": self.namespace, "fail_on_init_error": False, **plugin}
        found = check_hosts({"gpu-1": {"kubernetes": kubernetes, "device_plugin": data}})
        asked = desired_cluster(found)
        assert asked is not None
        return asked, found["gpu-1"]

    def keep(self, timeout: int = 120, **plugin: Any) -> Kept:
        """Run the operation, and all that it yields, as pyinfra would."""
        asked, settings = self.asked(timeout, plugin)
        host: Any = _Host({})
        ctx_host.set(host)
        try:
            # No node of this cluster has an MPS daemon.
            for command in helm.release._inner(desired=asked.release, proxy=settings.proxy, everyone={}):
                if not command.function(host.state, host, *command.args, **command.kwargs):
                    break
        finally:
            ctx_host.reset()
        return Kept(tuple(host.said), "\n".join(host.refusals), "\n".join(host.noops))

    def history(self) -> list[Revision]:
        """Return the release's revisions; none where there is no release."""
        done = self.helm("history", NAME, "--output", "json")
        return [] if "not found" in done.stderr else list(parse_history(done.stdout).revisions)

    def helm(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run helm as a person would."""
        return subprocess.run(self._words(words), capture_output=True, text=True, timeout=120, check=False)

    def cut_off(self, *words: str) -> None:
        """Run helm, and kill it as soon as the release is pending: a person's own machine went down."""
        with subprocess.Popen(self._words(words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 30
            while not self.history() or not self.history()[-1].status.is_under_way:
                assert time.monotonic() < deadline and process.poll() is None
            process.kill()

    def kubectl(self, *words: str) -> str:
        """Run kubectl in the release's namespace, and return what it printed."""
        where = ("--kubeconfig", str(self.kubeconfig), "--namespace", self.namespace)
        command = [str(self.programs / "kubectl"), *where, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout

    def live(self, kind: str, name: str) -> dict[str, Any]:
        """Return an object as the API server has it."""
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "--output", "json"))
        return found

    def _words(self, words: tuple[str, ...]) -> list[str]:
        where = ("--namespace", self.namespace, "--kubeconfig", str(self.kubeconfig))
        return [os.fspath(self.programs / "helm"), *words, *where]
