"""Helpers and data for the tests of helm."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from gpunode.kubernetes.helm.change import ActualRelease, DesiredRelease, change
from gpunode.kubernetes.helm.commands import Commands, Helm, explained
from gpunode.kubernetes.helm.manifest import Identity, Object, differences, drifted, objects
from gpunode.kubernetes.helm.release import Release, Revision, Status
from gpunode.kubernetes.helm.session import unknown_values
from gpunode.settings import settings_from
from tests.support.messages import unnamed

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


TIMEOUT = 300


MANIFEST = """---
# Source: plugin/templates/daemonset.yaml
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: nvdp, namespace: gpu, labels: {a: b}}
spec:
  template:
    spec:
      containers:
      - name: main
        image: plugin:v1
        env: [{name: ONE, value: "1"}, {name: TWO, value: "2"}]
        resources: {limits: {cpu: 1000m, memory: 1Gi}}
      - {name: sidecar, image: plugin:v1}
      tolerations: [{key: a}, {key: b}]
---
apiVersion: v1
kind: Secret
metadata: {name: credentials}
stringData: {key: hunter2}
"""


# The same in other words: order, comments, defaults, quantities, null and empty values, a List, a date.
SAME = """
# nothing but a comment
---
apiVersion: v1
kind: List
items:
- kind: Secret
  apiVersion: v1
  stringData: {key: hunter2}
  metadata: {name: credentials, namespace: gpu, annotations: null}
- kind: DaemonSet
  apiVersion: apps/v1
  metadata: {labels: {a: b}, annotations: {}, name: nvdp}
  spec:
    template:
      spec:
        restartPolicy: Always
        dnsPolicy: ClusterFirst
        terminationGracePeriodSeconds: 30
        tolerations: [{key: b}, {key: a}]
        securityContext: {}
        containers:
        - image: plugin:v1
          terminationMessagePolicy: File
          name: sidecar
        - env: [{name: TWO, value: "2"}, {name: ONE, value: "1"}]
          name: main
          image: plugin:v1
          resources: {limits: {memory: 1024Mi, cpu: 1}, requests: {}}
"""


# --- what is done ---------------------------------------------------------------------------------------------------
OTHER = MANIFEST.replace("plugin:v1", "plugin:v0")


# --- how helm is called ---------------------------------------------------------------------------------------------
def commands(helm: str = "3.19.0", **device_plugin: Any) -> Commands:
    """Return the commands for settings."""
    kubernetes = {"enabled": True, "kubeconfig": "/etc/kubernetes/admin.conf", "context": "gpu", "timeout": 60}
    proxy = {"https": "http://proxy.example.org:3128", "no_proxy": ["10.0.0.1"]}
    found = settings_from({"kubernetes": kubernetes, "device_plugin": device_plugin, "proxy": proxy})
    return Commands(Helm("helm", helm), found.kubernetes, found.device_plugin, found.proxy)


# --- what tests/cases call ------------------------------------------------------------------------------------------
def _text(name: str) -> str:
    return {"MANIFEST": MANIFEST, "SAME": SAME, "OTHER": OTHER}.get(name, name)


def different(desired: str, actual: str, before: str = "", after: str = "", live: bool = False) -> list[str]:
    """Return how objects differ from those desired; in theirs `before` is `after`, and `live` ones may have more."""
    assert before in _text(actual)
    found = objects(_text(actual).replace(before, after, 1), "gpu")
    return [str(each) for each in (drifted if live else differences)(objects(_text(desired), "gpu"), found)]


def live(before: str = "", after: str = "") -> dict[Identity, Object]:
    """Return MANIFEST's objects as an API server has them: more fields, and what others added."""
    assert before in MANIFEST
    found: dict[Identity, Object] = {}
    for document in yaml.safe_load_all(MANIFEST.replace(before, after)):
        document["metadata"] |= {"uid": "1", "namespace": "gpu", "managedFields": [{}], "annotations": {"theirs": "1"}}
        document["status"] = {"numberReady": 1}
        if document["kind"] == "DaemonSet":
            document["spec"]["template"]["spec"]["containers"].append({"name": "injected", "image": "mesh"})
            document["spec"]["revisionHistoryLimit"] = 10
        found |= objects(yaml.safe_dump(document), "gpu")
    return found


def release(*revisions: str, age: int | None = 3600, chart: str = "nvidia-device-plugin-0.20.0") -> Release | None:
    """Return a release by `STATUS` or `STATUS: DESCRIPTION` of its revisions; None without any."""
    updated = None if age is None else NOW - timedelta(seconds=age)
    found = (each.partition(": ") for each in revisions)
    every = tuple(Revision(n, Status(status), chart, updated, text) for n, (status, _, text) in enumerate(found, 1))
    return Release(every) if every else None


def decided(
    revisions: Sequence[str],
    good: str | None = None,
    undone: str | None = None,
    by_hand: tuple[str, str] | None = None,
    desired: str = "MANIFEST",
    takes_over: bool = True,
    names: Sequence[str] = (),
    age: int | None = 3600,
    chart: str = "nvidia-device-plugin-0.20.0",
) -> list[str]:
    """Return what is done about a release, `by hand` and `refused`, and what its reasons do not name of `names`.

    good, undone: a revision's manifest; by_hand: what somebody changed in the live objects
    """
    deployed, failed = (each and _text(each) for each in (good, undone))
    seen = None if by_hand is None else live(*by_hand)
    wanted = DesiredRelease("nvidia-device-plugin", "0.20.0", "gpu", _text(desired), takes_over=takes_over)
    reading = ActualRelease(release(*revisions, age=age, chart=chart), deployed, failed, seen)
    found = change(wanted, reading, NOW, TIMEOUT)
    acts = [each.act if each.revision is None else f"{each.act} {each.revision}" for each in found.steps]
    text = " ".join((found.refused or "", *(each.reason for each in found.steps)))
    return [*acts, *["by hand"] * found.by_hand, *["refused"] * bool(found.refused), *unnamed(text, *names)]


def line(
    verb: str, helm: str = "3.19.0", of: dict[str, Any] | None = None, plugin: dict[str, Any] | None = None
) -> str:
    """Return a command line of a helm, by the name of its method and arguments `of` that, and `device_plugin`."""
    return shlex.join(getattr(commands(helm, **plugin or {}), verb)(**of or {}).words)


def unknown(values: dict[str, Any], chart: str, unlisted: Sequence[str] = (), names: Sequence[str] = ()) -> list[str]:
    """Return the values that a chart does not have, by their dotted names, and what is not named of `names`."""
    found = unknown_values(values, chart, ("nfd", "node-feature-discovery"), unlisted)
    return [*(each.split("'")[1] for each in found), *unnamed("\n".join(found), *names)]


def explanation(
    said: str, names: Sequence[str], absent: Sequence[str] = (), settings: str = "device_plugin"
) -> list[int | str]:
    """Return how many lines explain what helm said, and what they do not name of `names`, and hold of `absent`."""
    text = explained("helm upgrade", said, settings)
    assert text.startswith("helm upgrade: "), text
    return [text.count("\n") + 1, *unnamed(text, *names), *(each for each in absent if each in text)]
