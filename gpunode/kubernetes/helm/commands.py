"""helm 3 and helm 4: the version of the program, its command lines, and what its errors mean.

No value is in them: values go by standard input, which no list of processes shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpunode.base.explanations import rules
from gpunode.base.folding import shortened
from gpunode.base.reading import ParseError
from gpunode.base.versions import parsed
from gpunode.kubernetes.helm.release import MARK
from gpunode.kubernetes.nodes.cluster_nodes import kubectl
from gpunode.settings import chart
from gpunode.settings.chart import ReleaseSettings
from gpunode.settings.kubernetes import KubernetesSettings
from gpunode.settings.repositories import ProxySettings

_FEW = 4


# Of helm 3 by --debug, of helm 4 below its error.
_NOT_READY = (
    re.compile(r"\[debug\] (?P<what>\w+) is not ready: (?P<name>\S+)\. (?P<why>.+)"),
    re.compile(r"resource (?P<what>\w+)/(?P<name>\S+) not ready\. status: (?P<why>.+)"),
)
_DEBUG = re.compile(r"\S+\.go:\d+: .*\[debug\]")
_LAST = re.compile(r"helm\.go:\d+: .*\[debug\]")


def not_ready(words: str) -> tuple[str, ...]:
    """Return what was not ready when helm gave up: `Deployment ns/name: 0 out of 1 expected pods are ready`."""
    by_debug, by_error = ([*pattern.finditer(words)] for pattern in _NOT_READY)
    # helm 3 looks again and again, each time up to the first that is not ready.
    found = by_error or by_debug[-1:]
    return tuple(dict.fromkeys(f"{each['what']} {each['name'].lstrip('/')}: {each['why'].strip()}" for each in found))


def _undebugged(words: str) -> str:
    """Return helm's words without what --debug adds: its steps, and the stack that comes behind the error."""
    lines = words.splitlines()
    end = next((number for number, line in enumerate(lines) if _LAST.match(line)), len(lines))
    return "\n".join(line for line in lines[:end] if not _DEBUG.match(line))


def explained(what: str, words: str, settings: str = "device_plugin") -> str:
    """Return what failed, helm's last words and their cause; the last line is the remedy, by a component's settings."""
    late, words = not_ready(words), _undebugged(words)
    message = f"{what}: {shortened(_told(words)) or 'helm said nothing'}"
    # What the last `Error` says counts, else all.
    text = _told(words) if re.search(r"^\s*Error", words, re.MULTILINE) else words
    found = next((told for rule in rules("helm") if (told := rule.told(text, settings=settings))), None)
    late = tuple(each for each in late if each.partition(": ")[2] not in message)
    if late:
        more = f"; and {len(late) - _FEW} more" if len(late) > _FEW else ""
        message += f"\nnot ready when helm gave up: {'; '.join(late[:_FEW])}{more}"
    return message if found is None else f"{message} ({found.cause})\n{found.remedy}"


def _told(words: str) -> str:
    """Return the last `Error` in one line, with the list that may stand below it; else the last line."""
    lines = [" ".join(line.split()) for line in words.splitlines() if line.strip()]
    last = max((number for number, line in enumerate(lines) if line.startswith("Error")), default=len(lines) - 1)
    return " ".join(lines[last:])


_PRINTED = re.compile(r"v(?P<version>(?P<major>\d{1,2})\.\d{1,3}\.\d{1,3})([-+][0-9A-Za-z.+-]*)?", re.ASCII)
# helm 4 renamed and dropped some options of helm 3; a newer one is called as helm 4.
_NEWEST = 4


class HelmError(Exception):
    """Say why this helm is of no use, and what to do."""


@dataclass(frozen=True)
class Helm:
    """Hold a helm that gpunode can work with: how it is called, and its version."""

    program: str
    version: str

    @property
    def major(self) -> int:
        """Return the major version by whose options it is called."""
        return min(int(self.version.partition(".")[0]), _NEWEST)


def version_command(program: str) -> tuple[str, ...]:
    """Return the command that prints a helm's version; it asks no cluster."""
    return (program, "version", "--template", "{{.Version}}")


def helm_of(program: str, printed: str) -> Helm:
    """Return the helm that printed its version so; raise ParseError, or HelmError where it is too old."""
    match = _PRINTED.fullmatch(printed.strip())
    if match is None:
        raise ParseError(f"no version of helm: {printed[:80]!r}")
    version, needs = match["version"], chart.known().helm["program"]
    if parsed(version) < parsed(needs.minimum):
        raise HelmError(f"{program} is helm {version}, and {needs.minimum} or newer is needed ({needs.source})")
    return Helm(program, version)


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
        if desired.chart.startswith(("/", ".")):
            # A file or folder where helm runs has a version of its own, whatever is asked: `chart` tells it.
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
