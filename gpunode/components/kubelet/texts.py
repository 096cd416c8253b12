"""The text that tells a kubelet of the settings: a drop-in of gpunode's own, or a few values of somebody else's file.

Of values in somebody else's file, what stood there before is noted in a comment, so that it comes back with the text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.base.yaml_edit import Path, Value, edited, plain, scalar, value_at
from gpunode.settings.kubernetes import KubeletSettings

NAME = "90-gpunode.conf"
OURS = "# Written by gpunode"
_HEAD = f"""{OURS}: what is added here goes with its next change.
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
"""
_NOTE = "# gpunode set values here; before (null: none): "


def wanted(settings: KubeletSettings) -> dict[Path, str | int]:
    """Return what the settings ask for, by the keys of the kubelet's configuration."""
    found: dict[Path, str | int] = {}
    for name, amounts in (
        ("systemReserved", settings.system_reserved),
        ("kubeReserved", settings.kube_reserved),
        ("evictionHard", settings.eviction_hard),
    ):
        found.update({(name, key): amount for key, amount in sorted(amounts.items())})
    for name, value in (
        ("maxPods", settings.max_pods),
        ("cpuManagerPolicy", settings.cpu_manager_policy),
        ("topologyManagerPolicy", settings.topology_manager_policy),
    ):
        if value is not None:
            found[(name,)] = value
    return found


def drop_in(desired: Mapping[Path, str | int]) -> str:
    """Return the text of the drop-in, which is gpunode's alone."""
    lines: list[str] = []
    for path, value in sorted(desired.items()):
        if len(path) == 1:
            lines.append(f"{path[0]}: {scalar(value)}")
            continue
        if f"{path[0]}:" not in lines:
            lines.append(f"{path[0]}:")
        lines.append(f"  {scalar(path[1])}: {scalar(value)}")
    return _HEAD + "".join(f"{line}\n" for line in lines)


def in_file(text: str, desired: Mapping[Path, str | int]) -> str:
    """Return somebody's file with what is desired, and what gpunode set before and is not desired any more put back.

    Raise ConfigurationRefused where it cannot be edited.
    """
    before, bare = _noted(text)
    said = plain(text)
    changes: dict[Path, Value] = {path: value for path, value in before.items() if path not in desired}
    changes.update(desired)
    after = {path: before[path] if path in before else _former(said, path) for path in desired}
    result = edited(bare, changes)
    if not after:
        return result
    note = json.dumps({"/".join(path): value for path, value in sorted(after.items())})
    return f"{_NOTE}{note}\n{result}"


def is_in_file(text: str) -> bool:
    """Say whether gpunode has set values in somebody's file."""
    return text.startswith(_NOTE)


def _former(said: Mapping[str, object], path: Path) -> Value:
    value = value_at(said, path)
    if value is None or (isinstance(value, str | int) and not isinstance(value, bool)):
        return value
    raise ConfigurationRefused(f"says {'/'.join(path)} in a way that no kubelet reads")


def _noted(text: str) -> tuple[dict[Path, Value], str]:
    """Return what stood there before, by gpunode's note, and the text without that note."""
    if not is_in_file(text):
        return {}, text
    line, _, rest = text.partition("\n")
    try:
        found = json.loads(line.removeprefix(_NOTE))
        if not isinstance(found, dict) or not all(isinstance(each, str | int | None) for each in found.values()):
            raise ValueError("no mapping of values")
    except ValueError as error:
        reason = f"has a note of gpunode's that somebody changed ({error}): take that line out"
        raise ConfigurationRefused(reason) from None
    return {tuple(key.split("/", 1)): value for key, value in found.items()}, rest
