"""The static pod of kube-scheduler: what its manifest says, whoever wrote it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from gpunode.kubernetes.gpushare.configuration import SchedulerError, table

PROGRAM = "kube-scheduler"
BY_HAND = "write its lists one item a line, or set gpushare.scheduler to 'theirs' and do it by hand"
_LONGEST = 1024 * 1024
_TAG = re.compile(r":v?(\d{1,2}\.\d{1,3}\.\d{1,3})([-+_.][0-9A-Za-z.+_-]*)?(@sha256:[0-9a-f]+)?$", re.ASCII)


@dataclass(frozen=True)
class Health:
    """Hold where a scheduler answers that it is well."""

    scheme: str
    host: str
    port: int
    path: str

    @property
    def address(self) -> str:
        """Return it as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


@dataclass(frozen=True)
class SchedulerManifest:
    """Hold what a manifest says: the program's options (name -> value), the version of its image, and its health."""

    options: Mapping[str, str]
    version: str | None
    health: Health


def parse_manifest(text: str) -> SchedulerManifest:
    """Return what a manifest says; raise SchedulerError where it is none that gpunode can change."""
    container = container_of(read(text))
    found = options_of([*(container.get("command") or []), *(container.get("args") or [])])
    tag = _TAG.search(str(container.get("image") or ""))
    return SchedulerManifest(found, tag[1] if tag else None, _health(container, found))


def read(text: str) -> dict[str, Any]:
    """Return a manifest as YAML has it; raise SchedulerError where it is no Pod's."""
    if len(text) > _LONGEST:
        raise SchedulerError("the manifest of kube-scheduler is larger than 1 MiB: it is none")
    # A fact puts it in the place of what is no UTF-8.
    if "\ufffd" in text:
        raise SchedulerError("the manifest of kube-scheduler is no UTF-8; mend it first")
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f" (line {mark.line + 1})" if mark is not None else ""
        raise SchedulerError(f"the manifest of kube-scheduler is no YAML{where}; mend it first") from None
    if not isinstance(found, dict) or found.get("kind") != "Pod" or not isinstance(found.get("spec"), dict):
        raise SchedulerError("the manifest of kube-scheduler is no Pod; look at gpushare.manifest")
    return found


def container_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scheduler's container; raise SchedulerError where there is none that gpunode can change."""
    containers = document["spec"].get("containers")
    found = [each for each in containers if isinstance(each, dict)] if isinstance(containers, list) else []
    named = [each for each in found if each.get("name") == PROGRAM] or (found if len(found) == 1 else [])
    if len(named) != 1:
        raise SchedulerError(f"the manifest has no container {PROGRAM}; look at gpushare.manifest")
    for key in ("command", "args"):
        words = named[0].get(key)
        if words is not None and not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
            raise SchedulerError(f"{key} of the container {PROGRAM} is no list of words; {BY_HAND}")
    command = named[0].get("command") or []
    if not command or str(command[0]).rpartition("/")[2] != PROGRAM:
        raise SchedulerError(f"the container {PROGRAM} does not begin with that program's name; {BY_HAND}")
    return named[0]


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Return the options of a command line: name, without dashes -> value."""
    found, words = {}, list(words)
    for number, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals:
            following = words[number + 1] if number + 1 < len(words) else "-"
            value = "true" if following.startswith("-") else following
        found[name] = value
    return found


def _health(container: Mapping[str, Any], options: Mapping[str, str]) -> Health:
    row = table()["health"]
    usual = int(row["secure_port"])
    with_port = options.get("secure-port", "")
    port: Any = int(with_port) if with_port.isdecimal() else usual
    probe = (container.get("livenessProbe") or {}).get("httpGet")
    if not isinstance(probe, dict):
        return Health("https", "127.0.0.1", port, row["path"])
    desired: Any = probe.get("port", port)
    if isinstance(desired, str):
        # kubeadm names it since 1.33.
        named = [
            each for each in container.get("ports") or [] if isinstance(each, dict) and each.get("name") == desired
        ]
        desired = named[0].get("containerPort") if named else port
    return Health(
        scheme="https" if str(probe.get("scheme", "HTTP")).upper() == "HTTPS" else "http",
        host=_host(probe.get("host")),
        port=desired if isinstance(desired, int) and 0 < desired < 65536 else port,
        path=_path(probe.get("path"), row["path"]),
    )


def _host(value: Any) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"[0-9A-Za-z.:-]+", value, re.ASCII) else "127.0.0.1"


def _path(value: Any, usual: str) -> str:
    return value if isinstance(value, str) and re.fullmatch(r"/[0-9A-Za-z/._-]*", value, re.ASCII) else usual
