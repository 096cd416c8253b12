"""NVIDIA's unchanged charts render what gpunode's settings ask, by helm 3 and 4, and a stored release is as desired.

    GPUNODE_REAL_CHARTS=/folder/with/charts make test-real

The folder holds charts of the device plugin, 0.14 to 0.20, and of the GPU Operator, 24.9 to 26.7; unpacked or .tgz.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpunode.kubernetes.helm.manifest import Difference, Identity, Object, differences, drifted, live_objects, objects
from gpunode.kubernetes.helm.release import AskedRelease
from gpunode.kubernetes.helm.session import unknown_values
from gpunode.kubernetes.nodes.labels import PRESENT
from gpunode.lab.kubernetes_programs import WHEELS
from gpunode.settings import SettingsError
from gpunode.settings.chart import known, merged
from gpunode.settings.model import Settings
from tests.real.chart_choices import (
    OLDEST,
    OPERATOR_CHOICES,
    PLUGIN_CHOICES,
    PLUGIN_OPTIONS,
    UNQUOTED,
    operator_release,
    plugin_choices,
    plugin_release,
    settings_of,
)
from tests.real.charts import OPERATOR, PLUGIN, SKIPPED, Chart, ChartRefusedError, Choice, Renderer, charts, folder
from tests.support.stored_object import stored

if folder() is None:
    pytest.skip(SKIPPED, allow_module_level=True)

pytestmark = pytest.mark.real

TAKEN = [each for each in charts(PLUGIN) if each.is_at_least(OLDEST)]
LAB_CHART = Path(__file__).resolve().parents[2] / "lab" / "charts" / PLUGIN
RENDERERS = tuple(map(Renderer, sorted(WHEELS)))
Rendered = list[dict[str, Any]]


def _each(
    choices: Sequence[Choice], asked: Callable[[Choice], tuple[Settings, AskedRelease]]
) -> Iterator[tuple[Choice, Settings, AskedRelease, str]]:
    """Yield each choice with its settings, its release and its manifest, which both helms must render alike."""

    def one(choice: Choice) -> tuple[Choice, Settings, AskedRelease, str]:
        settings, release = asked(choice)
        first, *others = (each.render(settings, release.settings, release.values) for each in RENDERERS)
        where = release.settings.namespace
        for other in others:
            assert differences(objects(first, where), objects(other, where)) == (), choice
        return choice, settings, release, first

    # helm is a process of its own each time, and most of this test's time.
    with ThreadPoolExecutor(4) as pool:
        yield from pool.map(one, choices)


def _documents(manifest: str) -> Rendered:
    return [each for each in yaml.safe_load_all(manifest) if each]


def _differs_when_stored(manifest: str, namespace: str) -> tuple[Difference, ...]:
    """Return what gpunode says was changed by hand of objects that are as the API server stored them."""
    text = json.dumps({"kind": "List", "items": [stored(each) for each in _documents(manifest)]})
    wanted = objects(manifest, namespace)
    live = live_objects(text, namespace)
    assert wanted.keys() <= live.keys()
    return drifted(wanted, live)


@pytest.mark.parametrize("chart", TAKEN, ids=str)
def test_the_plugin_s_chart_renders_every_three_settings_together_and_a_stored_release_is_as_desired(
    chart: Chart,
) -> None:
    seen: Counter[str] = Counter()
    for choice, settings, release, manifest in _each(plugin_choices(chart), partial(plugin_release, chart=chart)):
        _carries(settings, release.values, _documents(manifest))
        assert _differs_when_stored(manifest, settings.device_plugin.namespace) == (), choice
        seen.update(name for name, part in choice.items() if part)
    refused = {UNQUOTED[0]} if chart.version in UNQUOTED[1] else set()
    assert seen.keys() == PLUGIN_OPTIONS.keys() - refused


@pytest.mark.parametrize("chart", [each for each in charts(PLUGIN) if not each.is_at_least(OLDEST)], ids=str)
def test_an_older_chart_of_the_plugin_is_refused_before_helm_is_asked(chart: Chart) -> None:
    with pytest.raises(SettingsError, match=f"older than the {OLDEST}"):
        settings_of(chart, {})


@pytest.mark.parametrize("chart", [each for each in charts(PLUGIN) if each.version in UNQUOTED[1]], ids=str)
def test_a_value_that_the_chart_makes_no_text_of_is_refused(chart: Chart) -> None:
    settings, release = plugin_release({}, chart)
    manifest = RENDERERS[0].render(settings, release.settings, {**release.values, "failOnInitError": False})
    pods = (each["spec"]["template"]["spec"] for each in _documents(manifest) if each["kind"] == "DaemonSet")
    assert False in (_variables(pod, pod["containers"][-1]["name"]).get("FAIL_ON_INIT_ERROR") for pod in pods)
    with pytest.raises(SettingsError, match="fail_on_init_error"):
        settings_of(chart, {}, device_plugin={"fail_on_init_error": False})


def _carries(settings: Settings, values: Mapping[str, Any], found: Rendered) -> None:
    """Assert that the manifest of the plugin's chart has what the settings ask."""
    plugin, sharing = settings.device_plugin, settings.sharing
    mine = {each["metadata"]["name"]: each for each in found if _is_plugins(each, plugin.release)}
    assert max(map(len, mine)) <= 63
    whole = f"{plugin.release}-{PLUGIN}"
    assert (f"{whole}-gpu-feature-discovery" in mine) == plugin.gfd
    by_nfd = [each["kind"] for each in found if "node-feature-discovery" in each["metadata"]["name"]]
    assert ("DaemonSet" in by_nfd) == (plugin.nfd == "chart"), by_nfd
    pods = {name: each["spec"]["template"]["spec"] for name, each in mine.items() if each["kind"] == "DaemonSet"}
    assert len(pods) == 2 + plugin.gfd
    variables = _variables(pods[whole], "nvidia-device-plugin-ctr")
    for name, wanted in (
        ("DEVICE_LIST_STRATEGY", plugin.device_list_strategy),
        ("DEVICE_ID_STRATEGY", plugin.device_id_strategy),
        ("FAIL_ON_INIT_ERROR", plugin.fail_on_init_error),
        ("PASS_DEVICE_SPECS", plugin.pass_device_specs),
        ("NVIDIA_DRIVER_ROOT", plugin.driver_root),
        # Each node's own, by its configuration.
        ("MIG_STRATEGY", None),
    ):
        said = str(wanted).lower() if isinstance(wanted, bool) else wanted
        assert variables.get(name) == said, name
    rights = _container(pods[whole], "nvidia-device-plugin-ctr")["securityContext"]
    assert bool(rights.get("privileged")) == bool(plugin.pass_device_specs)
    wanted_class = "nvidia" if values.get("runtimeClassName") else None
    containers = [each for pod in pods.values() for each in (*(pod.get("initContainers") or ()), *pod["containers"])]
    images = {each["image"] for each in containers}
    assert len(images) == 1
    if plugin.image is not None:
        assert images == {f"{plugin.image}:{plugin.image_tag}"}
    configurations = plugin.config_name or f"{whole}-configs"
    for name, pod in pods.items():
        assert pod.get("runtimeClassName") == wanted_class, name
        (volume,) = (each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each)
        assert volume == configurations, name
        terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert PRESENT in [expression["key"] for term in terms for expression in term["matchExpressions"]], name
    named = [each for each in found if each["metadata"]["name"] == configurations]
    maps = [each["data"] for each in named if each["kind"] == "ConfigMap"]
    if plugin.config_name is not None:
        assert maps == []
        return
    (entries,) = maps
    contents = {name: yaml.safe_load(text) for name, text in entries.items()}
    assert contents == {name: yaml.safe_load(text) for name, text in values["config"]["map"].items()}
    assert any(each["flags"]["migStrategy"] == sharing.mig_strategy for each in contents.values())
    assert _variables(pods[whole], "nvidia-device-plugin-sidecar")["DEFAULT_CONFIG"] == "none"


def _is_plugins(each: Mapping[str, Any], release: str) -> bool:
    labels = each["metadata"].get("labels") or {}
    return labels.get("app.kubernetes.io/name") == PLUGIN and labels.get("app.kubernetes.io/instance") == release


def _container(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in pod["containers"] if each["name"] == name)
    return found


def _variables(pod: Mapping[str, Any], container: str) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in _container(pod, container)["env"]}


@pytest.mark.parametrize("chart", charts(OPERATOR), ids=str)
def test_the_operator_s_chart_renders_every_combination_and_a_stored_release_is_as_desired(chart: Chart) -> None:
    for choice, settings, _, manifest in _each(OPERATOR_CHOICES, partial(operator_release, chart=chart)):
        found, asked = _documents(manifest), settings.gpu_operator
        (policy,) = (each["spec"] for each in found if each["kind"] == "ClusterPolicy")
        parts = ("driver", "toolkit", "devicePlugin", "gfd", "dcgmExporter", "migManager")
        assert {name: policy[name]["enabled"] for name in parts} == {
            **dict.fromkeys(parts, False), "dcgmExporter": asked.dcgm_exporter, "migManager": asked.mig_manager,
        }, choice  # fmt: skip
        # A GPUCluster, or virtual machines' plugin, would give the same GPUs away.
        assert not policy["sandboxWorkloads"]["enabled"] and "GPUCluster" not in [each["kind"] for each in found]
        workers = [each for each in found if each["kind"] == "DaemonSet"]
        assert bool(workers) == (settings.device_plugin.nfd == "chart")
        assert _differs_when_stored(manifest, asked.namespace) == (), choice


_IMAGE = re.compile(r"(image: ).*/k8s-device-plugin")


def _without_image(manifest: str, namespace: str) -> dict[Identity, Object]:
    return objects(_IMAGE.sub(r"\1IMAGE", manifest), namespace)


@pytest.mark.parametrize("chart", [each for each in charts(PLUGIN) if each.version == "0.20.0"], ids=str)
def test_the_lab_s_chart_renders_what_nvidia_s_0_20_0_does_but_for_images(chart: Chart) -> None:
    renderer = RENDERERS[0]
    choices = [each for each in PLUGIN_CHOICES if "chart" not in str(each["discovery"])]
    assert len(choices) > 50
    for choice in choices:
        settings, release = plugin_release(choice, chart)
        real = renderer.render(settings, release.settings, release.values)
        ours = renderer.render(
            settings, settings.device_plugin.model_copy(update={"chart": str(LAB_CHART)}), release.values
        )
        where = settings.device_plugin.namespace
        found = differences(_without_image(real, where), _without_image(ours, where))
        # The text of the ConfigMap's file differs, and its checksum with it.
        assert [each for each in found if "checksum" not in each.path] == [], choice


@pytest.mark.parametrize("chart", TAKEN, ids=str)
def test_what_the_chart_refuses_gpunode_refuses_before(chart: Chart) -> None:
    settings, release = plugin_release({}, chart)
    both = {**release.values["config"], "name": "own"}
    for wrong in ({"config": both}, {"config": {"map": {"a": "version: v1", "b": "version: v1"}}}, {"namespace": "x"}):
        with pytest.raises(ChartRefusedError):
            RENDERERS[0].render(settings, release.settings, {**release.values, **wrong})
        with pytest.raises(SettingsError):
            settings_of(chart, {}, device_plugin={"values": wrong})


_READ = re.compile(r"\.Values\.([A-Za-z0-9_]+(?:\.[A-Za-z0-9_]+)*)")


def _nested(name: str) -> dict[str, Any]:
    first, _, rest = name.partition(".")
    return {first: _nested(rest) if rest else "x"}


@pytest.mark.parametrize("chart", [*TAKEN, *charts(OPERATOR)], ids=str)
def test_no_value_that_a_template_reads_is_told_to_be_a_misspelt_one_and_a_misspelt_one_is(chart: Chart) -> None:
    templates = [text for name, text in chart.texts(".yaml", ".yml", ".tpl").items() if name.startswith("templates/")]
    read = {name for text in templates for name in _READ.findall(text)}
    # The chart reads it so as to refuse it, and so does gpunode.
    read.discard("namespace")
    assert len(read) > 30
    own = chart.texts("values.yaml")["values.yaml"]
    content = yaml.safe_load(chart.texts("Chart.yaml")["Chart.yaml"])
    subcharts = {each[key] for each in content["dependencies"] for key in ("name", "alias") if key in each}
    # What stands below another comes after it.
    every = reduce(merged, map(_nested, sorted(read)))
    assert unknown_values(every, own, subcharts, known().unlisted_values.get(chart.name, ())) == ()
    (sentence,) = unknown_values({"tolerationz": []}, own, subcharts, known().unlisted_values.get(chart.name, ()))
    assert "tolerationz" in sentence
