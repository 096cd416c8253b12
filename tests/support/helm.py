"""What several tests share with unit/test_helm.py."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gpunode.kubernetes.helm.commands import Commands
from gpunode.kubernetes.helm.program import Helm
from gpunode.settings import settings_from

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
