"""Values that a chart does not have are told, and those that it has in whatever form are not."""

from __future__ import annotations

from typing import Any

import pytest

from gpunode.base.reading import ParseError
from gpunode.kubernetes.helm.own_values import unknown_values
from gpunode.settings.cluster.features import unlisted_values, unread_values

pytestmark = pytest.mark.pure

# After NVIDIA's own: an empty mapping, a null, a shape of Kubernetes', a value that stands in a comment alone.
CHART = """
compatWithCPUManager: null
image: {repository: plugin, tag: "", pullPolicy: IfNotPresent}
nodeSelector: {}
affinity:
  nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}
tolerations: [{key: nvidia.com/gpu}]
updateStrategy: {type: RollingUpdate}
gfd:
  enabled: false
  securityContext: {privileged: true}
  # enableHostNetwork: false
"""


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"toleration": []}, "'toleration' is none of the chart's own values; did you mean 'tolerations'?"),
        (
            {"image": {"pulPolicy": "Always"}},
            "'image.pulPolicy' is none of the chart's own values; did you",
        ),
        ({"gfd": {"sleep": "1s"}}, "'gfd.sleep' is none of the chart's own values"),
        ({"Gfd": {"enabled": True}}, "did you mean 'gfd'?"),
        ({"priority": 1}, "'priority' is none of the chart's own values"),
    ],
)
def test_a_value_that_the_chart_does_not_have_is_told_with_the_one_that_may_be_meant(
    values: dict[str, Any], told: str
) -> None:
    (sentence,) = unknown_values(values, CHART, ())
    assert told in sentence


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"compatWithCPUManager": True, "nodeSelector": {"gpu": "true"}, "tolerations": [{"ky": "a"}]},
        {"affinity": {"podAntiAffinity": {}}, "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}},
        {"gfd": {"enableHostNetwork": True, "securityContext": {"runAsUser": 0}}},
        {"nfd": {"master": {"resources": {}}}, "node-feature-discovery": {}, "global": {"imageRegistry": "a"}},
        {"image": None, "gfd": "on"},
    ],
)
def test_values_of_the_chart_its_subcharts_and_kubernetes_own_shapes_are_not_told(values: dict[str, Any]) -> None:
    assert unknown_values(values, CHART, ("nfd", "node-feature-discovery")) == ()


def test_values_that_templates_read_though_the_chart_does_not_list_them_are_not_told() -> None:
    values = {"sleepInterval": "30s", "nvidiaDevRoot": "/", "gfd": {"args": ["a"], "arg": []}}
    (told,) = unknown_values(values, CHART, (), (*unlisted_values("nvidia-device-plugin"), "*.args"))
    assert told.startswith("'gfd.arg' is none")
    # A remedy of gpunode's own names none that is then told.
    assert set(unread_values().values()) <= set(unlisted_values("nvidia-device-plugin"))


def test_a_chart_without_values_has_none_to_compare_with() -> None:
    assert unknown_values({"a": 1}, "", ()) == unknown_values({"a": 1}, "# nothing\n", ()) == ()
    with pytest.raises(ParseError, match="no values of the chart"):
        unknown_values({"a": 1}, "a: [", ())
