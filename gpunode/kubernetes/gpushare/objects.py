"""What gpushare consists of in a cluster: the scheduler extender, the device plugin, and their rights."""

from __future__ import annotations

from typing import Any

import yaml

from gpunode.base.template import rendered
from gpunode.kubernetes.nodes.labels import GPUSHARE
from gpunode.kubernetes.objects.own_objects import marked
from gpunode.settings.gpushare import GpushareSettings

NAMESPACE = "kube-system"
EXTENDER, PLUGIN = "gpushare-schd-extender", "gpushare-device-plugin"
# All workloads and pods of gpushare have it, so that one question finds them among the rest of the namespace.
APP = {"app": GPUSHARE}


def gpushare_objects(desired: GpushareSettings, runtime_class: str | None = None) -> list[dict[str, Any]]:
    """Return the objects, in the order in which they are made; `runtime_class` is for the plugin's pods."""
    names = {"namespace": NAMESPACE, "extender": EXTENDER, "plugin": PLUGIN, "runtime_class": runtime_class}
    return [marked(each, "gpushare") for each in yaml.safe_load(rendered("gpushare.yaml", desired=desired, **names))]
