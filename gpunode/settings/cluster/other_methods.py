"""What a node's settings cannot have together where its GPUs get into the cluster without NVIDIA's chart."""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.tables import content
from gpunode.base.versions import at_least
from gpunode.settings.cluster.features import of_kubernetes
from gpunode.settings.model import Settings
from gpunode.settings.problems import Problem, written

# Options of the chart that nothing else has.
_OF_THE_CHART = {
    "values": "says values of the chart", "gfd": "is brought by the chart", "nfd": "is brought by the chart",
    "config_name": "names a ConfigMap for the chart",
}  # fmt: skip


def contradictions(settings: Settings) -> Iterator[Problem]:
    """Yield what the methods `manifest` and `gpushare` cannot have."""
    plugin, sharing = settings.device_plugin, settings.sharing
    method = plugin.method
    for field, why in _OF_THE_CHART.items():
        if field in plugin.model_fields_set and getattr(plugin, field) != type(plugin).model_fields[field].get_default(
            call_default_factory=True
        ):
            value = getattr(plugin, field)
            message = f"{why}, and device_plugin.method is {method!r}; leave it out"
            yield _problem(f"device_plugin.{field}", value, message)
    yield from _old_kubernetes(settings)
    if method == "manifest":
        if sharing.strategy == "mps":
            message = "needs the control daemon that NVIDIA's chart brings; set device_plugin.method to 'helm'"
            yield _problem("sharing.strategy", "mps", message)
        cdi = [each for each in plugin.strategies if each.startswith("cdi-")]
        if cdi:
            message = f"by {cdi[0]!r} needs what NVIDIA's chart mounts; set device_plugin.method to 'helm'"
            yield _problem("device_plugin.device_list_strategy", plugin.device_list_strategy, message)
    else:
        yield from _gpushare(settings)


def _gpushare(settings: Settings) -> Iterator[Problem]:
    sharing, toolkit = settings.sharing, settings.toolkit
    if sharing.strategy != "none":
        message = "is NVIDIA's device plugin's; by method 'gpushare' pods share by memory: leave sharing out"
        yield _problem("sharing.strategy", sharing.strategy, message)
    if sharing.mig_strategy != "none":
        message = "offers MIG devices, which gpushare does not know; leave it out, or set another device_plugin.method"
        yield _problem("sharing.mig_strategy", sharing.mig_strategy, message)
    if toolkit.enabled and toolkit.accept_nvidia_visible_devices_envvar_when_unprivileged is False:
        message = (
            "'gpushare' hands GPUs over by a variable, which "
            "toolkit.accept_nvidia_visible_devices_envvar_when_unprivileged = False (toolkit.preset 'shared') makes "
            "the toolkit ignore; set another method, or that to True"
        )
        yield _problem("device_plugin.method", "gpushare", message)


def _old_kubernetes(settings: Settings) -> Iterator[Problem]:
    version, method = settings.kubernetes.version, settings.device_plugin.method
    if version is None:
        return
    needs = of_kubernetes()["server-side-apply"]
    minimum, source = needs.minimum, needs.source
    if method == "gpushare" and settings.gpushare.scheduler == "patch":
        row = content("scheduler.yaml")["configuration"][0]
        minimum, source = row["since"], row["source"]
    if not at_least(version, minimum):
        message = f"is older than the {minimum} that device_plugin.method {method!r} needs ({source})"
        yield _problem("kubernetes.version", version, message)


def _problem(key: str, value: object, message: str) -> Problem:
    return Problem(key, written(value), message)
