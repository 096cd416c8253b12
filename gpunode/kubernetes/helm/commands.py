"""The command lines by which helm is asked and told, of helm 3 and of helm 4.

No value is in them: values go by standard input, which no list of processes shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpunode.kubernetes.helm.program import Helm
from gpunode.kubernetes.helm.release import MARK
from gpunode.kubernetes.nodes.cluster_nodes import kubectl
from gpunode.settings.chart import ReleaseSettings
from gpunode.settings.kubernetes import KubernetesSettings
from gpunode.settings.repositories import ProxySettings

# Helm's own settings from a person's environment would say otherwise than the command line does.
UNSET = (
    "HELM_NAMESPACE",
    "HELM_KUBECONTEXT",
    "HELM_KUBEAPISERVER",
    "HELM_KUBETOKEN",
    "HELM_KUBEASUSER",
    "HELM_DRIVER",
    "HELM_DEBUG",
)
# What a command takes beyond the time that helm itself may wait: fetching the chart, and a rollback.
_SPARE = 120


@dataclass(frozen=True)
class Command:
    """Hold a command: its words, what its environment has and must not have, and seconds until it is ended.

    Its standard input may hold secrets.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    seconds: int
    unset: tuple[str, ...] = UNSET
    stdin: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Commands:
    """Make the commands for one release."""

    helm: Helm
    kubernetes: KubernetesSettings
    asked: ReleaseSettings
    proxy: ProxySettings

    def listing(self) -> Command:
        """Return the question whether there is the release, in whatever state."""
        # Without --all, helm 3 leaves out what is pending; helm 4 shows all, and has no such option.
        every = ("--all",) if self.helm.major == 3 else ()
        return self._command(("list", *every, "--filter", f"^{self.asked.release}$", "--output", "json"))

    def history(self) -> Command:
        """Return the question for the release's revisions."""
        return self._command(("history", self.asked.release, "--output", "json"))

    def manifest(self, revision: int) -> Command:
        """Return the question for a revision's manifest, which may hold secrets."""
        return self._command(("get", "manifest", self.asked.release, "--revision", str(revision)))

    def values(self, revision: int) -> Command:
        """Return the question for the values that a revision was given, which may hold secrets."""
        return self._command(("get", "values", self.asked.release, "--revision", str(revision), "--output", "json"))

    def live(self, manifest: str) -> Command:
        """Return the question for the objects of a manifest as the API server has them; kubectl's, not helm's."""
        namespace = ("--namespace", self.asked.namespace)
        words = ("get", "--filename", "-", *namespace, "--ignore-not-found", "--output", "json")
        return self._kubectl(words, manifest)

    def cluster_version(self) -> Command:
        """Return the question for the cluster's version."""
        return self._kubectl(("version", "--output", "json"))

    def api_versions(self) -> Command:
        """Return the question for the cluster's APIs, one a line."""
        return self._kubectl(("api-versions",))

    def chart(self) -> Command:
        """Return the question for the chart's own name and version, as YAML."""
        return self._command(("show", "chart", *self._chart()), asks_cluster=False)

    def own_values(self) -> Command:
        """Return the question for the chart's own values, as YAML with its comments."""
        return self._command(("show", "values", *self._chart()), asks_cluster=False)

    def template(self, values: Mapping[str, Any], kubernetes: str, api_versions: Sequence[str]) -> Command:
        """Return the rendering of the chart for a cluster of that version and with these APIs, which is not asked.

        Helm alone would render for the newest Kubernetes that it knows, whatever the cluster is.
        """
        apis = (word for each in api_versions for word in ("--api-versions", each))
        words = ("template", self.asked.release, *self._chart(), "--kube-version", kubernetes, *apis)
        return self._command((*words, "--values", "-"), values, asks_cluster=False)

    def upgrade(self, values: Mapping[str, Any], by_force: bool = False) -> Command:
        """Return the installation or upgrade, which waits, and goes back where it fails.

        `by_force`: fields that others changed by hand become the release's again, which helm 4 would refuse.
        """
        rolls_back = "--atomic" if self.helm.major == 3 else "--rollback-on-failure"
        # Of a release that helm 3 applied last, helm 4 goes on by client-side apply, and refuses to force by that.
        takes_back = ("--server-side=true", "--force-conflicts") if by_force and self.helm.major == 4 else ()
        # What it waits for in vain, helm 4 names by itself; helm 3 only so.
        tells = ("--debug",) if self.helm.major == 3 else ()
        words = (
            "upgrade",
            self.asked.release,
            *self._chart(),
            "--install",
            "--create-namespace",
            "--reset-values",
            rolls_back,
            self._wait(values),
            *tells,
            *takes_back,
            "--description",
            MARK,
            *self._limits(),
            "--values",
            "-",
        )
        return self._command(words, values, waits=True)

    def rollback(self, revision: int, values: Mapping[str, Any]) -> Command:
        """Return the way back to a revision; `values` are those that are desired."""
        words = ("rollback", self.asked.release, str(revision), self._wait(values), *self._limits())
        return self._command(words, waits=True)

    def uninstall(self) -> Command:
        """Return the removal, with its history."""
        words = ("uninstall", self.asked.release, "--ignore-not-found", "--wait", "--timeout", self._timeout)
        return self._command(words, waits=True)

    def _wait(self, values: Mapping[str, Any]) -> str:
        """Return how helm waits: by itself helm 4 waits for pods of the new template, which OnDelete does not begin.

        As helm 3 does, its former way takes such a DaemonSet for ready; other objects it waits for as well.
        source: helm v4, pkg/kube/ready.go (daemonSetReady); kstatus, pkg/kstatus/status/core.go (daemonsetConditions)
        """
        stays = self.helm.major >= 4 and (values.get("updateStrategy") or {}).get("type") == "OnDelete"
        return "--wait=legacy" if stays else "--wait"

    def _kubectl(self, words: Sequence[str], stdin: str | None = None) -> Command:
        limit = ("--request-timeout", "30s")
        return Command(kubectl(self.kubernetes, *words, *limit), self.proxy.environment, _SPARE, stdin=stdin)

    @property
    def _timeout(self) -> str:
        return f"{self.kubernetes.timeout}s"

    def _limits(self) -> tuple[str, ...]:
        return "--timeout", self._timeout, "--history-max", str(self.kubernetes.history)

    def _chart(self) -> tuple[str, ...]:
        desired = self.asked
        if desired.is_local_chart:
            # It has a version of its own, whatever is asked: `chart` tells it.
            return (desired.chart,)
        found = [desired.chart, "--version", desired.version]
        if not desired.chart.startswith("oci://"):
            found += ["--repo", desired.repository]
        if desired.ca_file is not None:
            found += ["--ca-file", desired.ca_file]
        return tuple(found)

    def _command(
        self,
        words: Sequence[str],
        values: Mapping[str, Any] | None = None,
        asks_cluster: bool = True,
        waits: bool = False,
    ) -> Command:
        found = [self.helm.program, *words, "--namespace", self.asked.namespace]
        if asks_cluster and self.kubernetes.kubeconfig is not None:
            found += ["--kubeconfig", self.kubernetes.kubeconfig]
        if asks_cluster and self.kubernetes.context is not None:
            found += ["--kube-context", self.kubernetes.context]
        return Command(
            words=tuple(found),
            environment=self.proxy.environment,
            # JSON is YAML, and leaves no doubt about what is a string; but for its escapes of what is beyond 16 bits.
            stdin=None if values is None else json.dumps(values, sort_keys=True, ensure_ascii=False),
            seconds=_SPARE + (2 * self.kubernetes.timeout if waits else 0),
        )
