"""kube-scheduler's configuration file with the extender in it, for the version of the scheduler that is to read it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from gpunode.base import tables
from gpunode.base.versions import VersionError, row_of

RESOURCE = "aliyun.com/gpu-mem"
FOLDER = "/etc/kubernetes/gpunode"
_HEAD = "# Written by gpunode, and written over by it: what asks for it is device_plugin.method 'gpushare'.\n"
_SWITCHES = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False}


class SchedulerError(Exception):
    """Say why a scheduler cannot be made to ask the extender, and what to do."""


@dataclass(frozen=True)
class Extender:
    """Hold how the scheduler reaches the extender, and whether pods are placed without it where it does not answer."""

    address: str
    ignorable: bool = False


@dataclass(frozen=True)
class Configuration:
    """Hold the configuration file: its text, and its path, which no other text has."""

    text: str

    @property
    def path(self) -> str:
        """Return the path: what runs by it is told from what runs by an earlier one, which stays as it was."""
        return f"{FOLDER}/scheduler-{hashlib.sha256(self.text.encode()).hexdigest()[:12]}.yaml"


@cache
def table() -> Mapping[str, Any]:
    """Return scheduler.yaml."""
    return tables.content("scheduler.yaml")


def api_version(scheduler: str) -> str:
    """Return the apiVersion of the configuration file for a scheduler's version; raise SchedulerError without one."""
    rows = {row["since"]: row["api_version"] for row in table()["configuration"]}
    if found := row_of(scheduler, rows):
        return str(found)
    oldest = table()["configuration"][0]
    raise SchedulerError(
        f"kube-scheduler {scheduler} takes no configuration file that gpunode knows; {oldest['since']} or newer is "
        f"needed ({oldest['source']})"
    )


def configuration(scheduler: str, options: Mapping[str, str], extender: Extender) -> Configuration:
    """Return the file for a scheduler; raise SchedulerError.

    + scheduler: its version, such as 1.31.4
    + options: its command line, name -> value; what the file takes the place of is carried over
    """
    try:
        version = api_version(scheduler)
    except VersionError:
        raise SchedulerError(f"{scheduler[:40]!r} is no version of kube-scheduler; set kubernetes.version") from None
    excluded = sorted(name for name in options if name in table()["excluded"])
    if excluded:
        raise SchedulerError(
            f"kube-scheduler runs with --{excluded[0]}, which goes with no configuration file; take it out of its "
            "manifest, or put what it says into a configuration file of your own, with the extender in it"
        )
    content: dict[str, Any] = {"apiVersion": version, "kind": "KubeSchedulerConfiguration"}
    for name, row in table()["moved"].items():
        if name in options:
            _set(content, row["field"], _value(name, options[name], row["kind"]))
    content["extenders"] = [
        {
            "urlPrefix": extender.address,
            "filterVerb": "filter",
            "bindVerb": "bind",
            "enableHTTPS": False,
            # The extender keeps the nodes by itself: names of nodes are sent, no nodes.
            "nodeCacheCapable": True,
            # Pods that ask for none of it are placed without the extender.
            "managedResources": [{"name": RESOURCE, "ignoredByScheduler": False}],
            "ignorable": extender.ignorable,
        }
    ]
    return Configuration(_HEAD + yaml.safe_dump(content, sort_keys=False))


def _set(content: dict[str, Any], field: str, value: Any) -> None:
    *folders, last = field.split(".")
    for folder in folders:
        content = content.setdefault(folder, {})
    content[last] = value


def _value(name: str, text: str, kind: str) -> Any:
    try:
        if kind == "switch":
            return _SWITCHES[text.lower()]
        if kind == "number":
            return float(text) if "." in text else int(text)
    except (KeyError, ValueError):
        raise SchedulerError(f"kube-scheduler runs with --{name}={text[:40]!r}, which is no {kind}") from None
    return text
