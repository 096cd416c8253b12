"""What is decided of an entry of the user's own ConfigMap."""

from __future__ import annotations

from typing import Any

from gpunode.base.decision import bad, marked
from gpunode.base.messages import as_data
from gpunode.kubernetes.device_plugin.own_config import chosen_entry, decide_own_config
from gpunode.settings import Settings, settings_from


def settings(entry: str | None = "small", **more: Any) -> Settings:
    return settings_from({
        "kubernetes": {"enabled": True, **more},
        "device_plugin": {"config_name": "mine"},
        "sharing": {"config": entry},
    })  # fmt: skip


def decided(entry: str | None, entries: dict[str, str] | None, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what differs, the entry that the plugin takes, and which names the refusal lacks."""
    decision = marked(decide_own_config(settings(entry), entries))
    differs = [
        [item.code, item.by_person, item.actual == "none", item.cause == as_data(decision.refusal or "")]
        for item in bad(*decision.findings)
    ]
    unnamed = [each for each in names if each not in (decision.refusal or "")]
    return {"differs": differs, "chosen": chosen_entry(settings(entry), entries), "unnamed": unnamed}
