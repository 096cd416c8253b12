"""NVIDIA's unchanged charts of dcgm-exporter render what settings ask, by helm 3 and 4; a stored release is as desired.

    GPUNODE_REAL_CHARTS=/folder/with/charts make test-real

The folder holds charts of dcgm-exporter, 4.0.1 to 4.8.2.
"""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import yaml

from gpunode.kubernetes.dcgm_exporter import exporter
from gpunode.kubernetes.helm.manifest import differences, drifted, live_objects, objects
from gpunode.kubernetes.nodes.labels import EXPORTER_LABEL
from gpunode.lab.kubernetes_programs import WHEELS
from gpunode.settings import SettingsError, check_hosts
from tests.real.charts import SKIPPED, Chart, Renderer, charts, folder
from tests.support.stored_object import stored

if folder() is None:
    pytest.skip(SKIPPED, allow_module_level=True)

pytestmark = pytest.mark.real

NAME, SPACE = "dcgm-exporter", "dcgm-exporter"
EVERY = charts(NAME)
TAKEN = [each for each in EVERY if each.is_at_least("4.0")]
RENDERERS = tuple(map(Renderer, sorted(WHEELS)))
# Option -> what it may be: engine, service monitor, the nodes' default runtime.
_CHOICES = tuple(itertools.product(("embedded", "host"), (False, True), ("nvidia", "runc")))


def _data(chart: Chart, engine: str = "embedded", monitor: bool = False, runtime: str = "nvidia") -> dict[str, Any]:
    asked = {"chart": str(chart.path), "version": chart.version, "engine": engine, "service_monitor": monitor}
    return {
        "kubernetes": {"enabled": True},
        "device_plugin": {"method": "none"},
        "containerd": {"default_runtime": runtime},
        "dcgm": {"enabled": engine == "host"},
        "dcgm_exporter_chart": {"enabled": True, "port": 9500, "interval": 5, **asked},
    }


@pytest.mark.parametrize("chart", TAKEN, ids=str)
def test_the_exporter_s_chart_renders_every_choice_and_a_stored_release_is_as_desired(chart: Chart) -> None:
    for engine, monitor, runtime in _CHOICES:
        settings = check_hosts({"gpu-1": _data(chart, engine, monitor, runtime)})
        asked = exporter(settings)
        assert asked is not None
        first, *others = (each.render(settings["gpu-1"], asked.settings, asked.values) for each in RENDERERS)
        for other in others:
            assert differences(objects(first, SPACE), objects(other, SPACE)) == ()
        found = [each for each in yaml.safe_load_all(first) if each]
        _carries(found, engine, monitor, runtime)
        text = json.dumps({"kind": "List", "items": [stored(each) for each in found]})
        assert drifted(objects(first, SPACE), live_objects(text, SPACE)) == ()


def _carries(found: list[dict[str, Any]], engine: str, monitor: bool, runtime: str) -> None:
    """Assert that the manifest has what the settings ask."""
    assert any(each["kind"] == "ServiceMonitor" for each in found) == monitor
    (service,) = (each["spec"] for each in found if each["kind"] == "Service")
    assert [each["port"] for each in service["ports"]] == [9500]
    (daemon,) = (each for each in found if each["kind"] == "DaemonSet")
    pod = daemon["spec"]["template"]["spec"]
    assert daemon["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == "100%"
    assert pod["nodeSelector"] == {EXPORTER_LABEL: "true"}
    assert "nvidia.com/gpu" in [each["key"] for each in pod["tolerations"]]
    assert bool(pod.get("hostNetwork")) == (engine == "host")
    assert pod.get("runtimeClassName") == ("nvidia" if runtime == "runc" else None)
    (container,) = pod["containers"]
    variables = {each["name"]: each.get("value") for each in container["env"]}
    assert (variables["DCGM_EXPORTER_LISTEN"], variables["DCGM_EXPORTER_INTERVAL"]) == (":9500", "5000")
    assert variables.get("DCGM_REMOTE_HOSTENGINE_INFO") == ("127.0.0.1:5555" if engine == "host" else None)
    # What runs is found by its image, whoever brought it.
    assert container["image"].startswith("nvcr.io/nvidia/k8s/dcgm-exporter:")


@pytest.mark.parametrize("chart", [each for each in EVERY if each not in TAKEN], ids=str)
def test_an_older_chart_of_the_exporter_is_refused_before_helm_is_asked(chart: Chart) -> None:
    with pytest.raises(SettingsError, match=r"dcgm_exporter_chart\.version"):
        check_hosts({"gpu-1": _data(chart)})
