"""An object as an API server stores it: without what a manifest writes in vain, and with what it leaves out.

Written beside gpunode's own comparison, not of it. tests/real/test_charts_in_a_cluster.py asks a real API server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Their keys are names of people's own, whose values are kept as they are.
_MAPS = ("annotations", "labels", "matchLabels", "nodeSelector", "data", "stringData")
_KEPT_EMPTY = ("emptyDir", "podSelector", "namespaceSelector")
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
              "imagePullPolicy": "IfNotPresent", "resources": {}}  # fmt: skip
_POD = {"dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "schedulerName": "default-scheduler",
        "securityContext": {}, "terminationGracePeriodSeconds": 30}  # fmt: skip


def stored(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of a manifest as an API server of Kubernetes' own kinds gives it back."""
    if "." in str(document["apiVersion"]).partition("/")[0] and ".k8s.io/" not in str(document["apiVersion"]):
        # Of a custom resource all is kept.
        found = dict(document)
    else:
        found = _fields(document)
    added = {"uid": "0", "resourceVersion": "1", "managedFields": [{"manager": "helm"}]}
    return {**found, "metadata": {**found["metadata"], **added}}


def _fields(value: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, item in value.items():
        kept: Any
        if name in _MAPS:
            kept = dict(item or {})
        elif isinstance(item, dict):
            kept = _fields(item)
        elif isinstance(item, list):
            kept = [_fields(each) if isinstance(each, dict) else each for each in item]
        else:
            kept = item
        if kept not in (None, "", {}, []) or name in _KEPT_EMPTY:
            found[name] = kept
    if "image" in found and "name" in found:
        return {**_CONTAINER, **found}
    if "containers" in found:
        # The account by its old name as well.
        return {**_POD, "serviceAccount": found.get("serviceAccountName", "default"), **found}
    if "hostPath" in found:
        return {**found, "hostPath": {"type": "", **found["hostPath"]}}
    if "configMap" in found:
        return {**found, "configMap": {"defaultMode": 420, **found["configMap"]}}
    if "fieldRef" in found:
        return {**found, "fieldRef": {"apiVersion": "v1", **found["fieldRef"]}}
    return found
