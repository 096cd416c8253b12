"""What helm's words mean where it fails, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LONGEST, _FEW = 300, 4


@dataclass(frozen=True)
class Explanation:
    """Hold what helm's words mean, and what to do."""

    cause: str
    remedy: str


_TABLE = tuple(
    (re.compile(pattern, re.IGNORECASE), Explanation(cause, remedy))
    for pattern, cause, remedy in (
        (
            r"^(Error|env): \S+: (No such file or directory|Permission denied)",
            "the program is not there, or may not be run",
            "install it where kubernetes.run_on says, or name its path by kubernetes.helm and kubernetes.kubectl",
        ),
        (
            r"cluster unreachable|connection refused|connection to the server .* was refused|no such host|i/o timeout",
            "no answer came from the cluster, the repository or the registry that the words name",
            "look at kubernetes.kubeconfig, {settings}.repository, and whether proxy.no_proxy names the API server",
        ),
        (
            r"x509|certificate",
            "a server's certificate is not trusted",
            "name the authority's certificates by {settings}.ca_file, or in the kubeconfig",
        ),
        (
            r"unauthorized|\b401\b|forbidden|\b403\b",
            "the cluster or the registry refuses the user",
            "look at the kubeconfig's user and his rights, or log in to the registry (helm registry login)",
        ),
        (
            r"another operation .* is in progress",
            "another helm began in between",
            "run it again; what was left behind is recovered",
        ),
        (
            r"(chart|path) .* (not found|matching .* not found)|no chart (version|name) found|\b404\b|manifest unknown",
            "there is no such chart, or not in that version",
            "look at {settings}.chart, repository and version",
        ),
        (
            r"kubeVersion|incompatible with Kubernetes",
            "the chart is not for the cluster's version of Kubernetes",
            "set a {settings}.version that is",
        ),
        (
            r"conflict",
            "fields of the objects belong to somebody else, who changed them by server-side apply",
            "see who by `kubectl get --show-managed-fields`; gpunode takes over only what was drift when it looked",
        ),
        (
            r"invalid ownership metadata|already exists",
            "an object of that name is there, and belongs to no release or to another one",
            "remove it (a plugin from a static manifest, say), or set another {settings}.release or namespace",
        ),
        (
            r"context deadline exceeded|timed out|rate limiter.*deadline|not ready\. status: InProgress",
            "the release's pods were not ready in time",
            "look at the pods' events and logs, or give them more by kubernetes.timeout",
        ),
        (
            r"no deployed releases",
            "no revision of the release is deployed",
            "run it again; what was left behind is recovered",
        ),
    )
)


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


def explanation(words: str) -> Explanation | None:
    """Return what helm's words mean; None where nobody knows. What the last `Error` says counts, else all."""
    text = _told(words) if re.search(r"^\s*Error", words, re.MULTILINE) else words
    return next((found for pattern, found in _TABLE if pattern.search(text)), None)


def explained(what: str, words: str, settings: str = "device_plugin") -> str:
    """Return one message: what failed, helm's last words, cause and remedy, which names settings of a component."""
    late, words = not_ready(words), _undebugged(words)
    message = f"{what}: {_told(words)[:_LONGEST] or 'helm said nothing'}"
    found = explanation(words)
    late = tuple(each for each in late if each.partition(": ")[2] not in message)
    if late:
        more = f"; and {len(late) - _FEW} more" if len(late) > _FEW else ""
        message += f"\nnot ready when helm gave up: {'; '.join(each[:_LONGEST] for each in late[:_FEW])}{more}"
    return message if found is None else f"{message}\n{found.cause}; {found.remedy.format(settings=settings)}"


def _told(words: str) -> str:
    """Return the last `Error` in one line, with the list that may stand below it; else the last line."""
    lines = [" ".join(line.split()) for line in words.splitlines() if line.strip()]
    last = max((number for number, line in enumerate(lines) if line.startswith("Error")), default=len(lines) - 1)
    return " ".join(lines[last:][:_FEW])
