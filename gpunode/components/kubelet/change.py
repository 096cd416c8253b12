"""The change of a kubelet's configuration: its texts, what a restart by it takes, and what is in its way.

The texts are a drop-in of gpunode's own, or a few values in the file of an administrator. A comment there keeps the
former values, so that they come back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from gpunode.base.decision import target_digest
from gpunode.base.structured_text import load_json
from gpunode.base.toml_edit import ConfigurationRefused
from gpunode.base.yaml_edit import Path, Value, edited, plain, scalar, value_at
from gpunode.settings.kubernetes import KubeletSettings
from gpunode.system.kubelet import Kubelet, default_evictions, known, merged, settings_of

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
        found = load_json(line.removeprefix(_NOTE))
        if not isinstance(found, dict) or not all(isinstance(each, str | int | None) for each in found.values()):
            raise ValueError("no mapping of values")
    except ValueError as error:
        reason = f"has a note of gpunode's that somebody changed ({error}): take that line out"
        raise ConfigurationRefused(reason) from None
    return {tuple(key.split("/", 1)): value for key, value in found.items()}, rest


_CPU = ("systemReserved/cpu", "kubeReserved/cpu")
_WHERE = "its unit, /etc/default/kubelet, /etc/sysconfig/kubelet or /var/lib/kubelet/kubeadm-flags.env"


@dataclass(frozen=True)
class KubeletChange:
    """Hold what one transaction does, which ends in a start of the kubelet.

    path: the file that becomes `text`; None: that goes, or "" where none changes
    cleared: (path, text) of the kubelet's own file, which loses what gpunode set in it; None: it has nothing of that
    felt: whether pods feel the start: a kubelet that starts admits them anew
    cpu_manager: the policy by which it is to start where its cpu_manager_state has to go first
    settings: what it goes by then, by the names that Kubelet.settings has; reads: the files that say so
    target: digest of what is to be reached
    """

    path: str
    text: str | None
    cleared: tuple[str, str] | None
    felt: bool
    cpu_manager: str | None
    settings: Mapping[str, str]
    reads: tuple[str, ...]
    target: str = ""


def path_of(state: Kubelet) -> str | None:
    """Return the file that gpunode writes: a drop-in where the kubelet reads such, else its own; None: it has none."""
    if state.config_dir is not None:
        return f"{state.config_dir.rstrip('/')}/{NAME}"
    return state.configuration.file if state.configuration is not None else None


def change(state: Kubelet, settings: KubeletSettings) -> KubeletChange | None:
    """Return what is to be changed, None where nothing is; raise ConfigurationRefused.

    The kubelet runs, and `state.files` is known.
    """
    desired, path, files = wanted(settings), path_of(state), dict(state.files or ())
    if path is None:
        if not desired:
            return None
        raise ConfigurationRefused(f"the kubelet runs by flags alone. Remedy: start it with --config=FILE ({_WHERE})")
    if not path.startswith("/"):
        raise ConfigurationRefused(
            f"the kubelet is told of {path}, which is no absolute path. Remedy: give one ({_WHERE})"
        )
    cleared = _cleared(state, files)
    after = {**files, **dict([cleared] if cleared else ())}
    text = _text(state, path, after, desired)
    if text is None:
        after.pop(path, None)
    else:
        after[path] = text
    flags = dict(state.flags)
    before_all, after_all = merged(files.values()), merged(after[name] for name in _order(state, after))
    if before_all is None or after_all is None:
        raise ConfigurationRefused(f"{path} would not be read by a kubelet")
    before, then = (settings_of(said, flags, state.version) for said in (before_all, after_all))
    _obeyed(desired, then, flags, path, _order(state, after))
    _can_start(desired, then, flags, after_all)
    writes = text != files.get(path)
    if not writes and not cleared and not state.stale:
        return None
    # Which policy a kubelet runs by that has not read its files is not known, and one that differs ends its start.
    resets = (
        state.stale
        or before["cpuManagerPolicy"] != then["cpuManagerPolicy"]
        or (then["cpuManagerPolicy"] == "static" and any(before.get(key) != then.get(key) for key in _CPU))
    )
    by_files = "" if writes or cleared else f"by {sorted(files.items())}"
    return KubeletChange(
        path if writes else "",
        text if writes else None,
        cleared,
        state.stale or _is_felt(before, then),
        then["cpuManagerPolicy"] if resets else None,
        then,
        tuple(_order(state, after)),
        target_digest(path if writes else "", (text if writes else None) or "", by_files, *(cleared or ())),
    )


def _cleared(state: Kubelet, files: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the kubelet's own file without what gpunode set in it before there was a folder of drop-ins."""
    own = state.configuration.file if state.configuration is not None else None
    if own is None or state.config_dir is None or not is_in_file(files.get(own, "")):
        return None
    try:
        return own, in_file(files[own], {})
    except ConfigurationRefused as refusal:
        raise ConfigurationRefused(f"{own} {refusal}") from None


def _text(state: Kubelet, path: str, files: Mapping[str, str], desired: Mapping[Path, str | int]) -> str | None:
    """Return what a file is to say; None: there is to be none."""
    actual = files.get(path)
    by_drop_in = state.config_dir is not None
    if by_drop_in and actual is not None and not actual.startswith(OURS):
        raise ConfigurationRefused(f"{path} is not of gpunode's making, and would be replaced. Remedy: move it away")
    without = {name: text for name, text in files.items() if name != path}
    try:
        if not by_drop_in:
            without[path] = in_file(actual or "", {})
        others = merged(without[name] for name in _order(state, without))
        if others is None:
            raise ConfigurationRefused("or a file beside it cannot be read by a kubelet. Remedy: correct that first")
        if any(name == "evictionHard" for name, *_ in desired) and not others.get("evictionHard"):
            # One that is said takes the place of all defaults.
            rest: dict[Path, str | int] = {
                ("evictionHard", key): value for key, value in default_evictions(state.version).items()
            }
            desired = {**rest, **desired}
        if by_drop_in:
            return drop_in(desired) if desired else None
        return in_file(actual or "", desired)
    except ConfigurationRefused as refusal:
        raise ConfigurationRefused(f"{path} {refusal}") from None


def _order(state: Kubelet, files: Mapping[str, str]) -> list[str]:
    """Return paths as they count: the file of --config, then the drop-ins by name."""
    first = state.configuration.file if state.configuration is not None else None
    return sorted(files, key=lambda path: (path != first, path))


def _obeyed(
    desired: Mapping[Path, str | int],
    then: Mapping[str, str],
    flags: Mapping[str, str],
    path: str,
    order: list[str],
) -> None:
    for key, value in desired.items():
        if then.get("/".join(key)) == str(value):
            continue
        name, flag = f"{'/'.join(key)}: {value}", known().flags[key[0]]
        if flag in flags:
            raise ConfigurationRefused(
                f"the kubelet is started with --{flag}={flags[flag]}, which counts before any file, and {name} is "
                f"asked for. Remedy: take the flag out of {_WHERE}, or leave the setting out"
            )
        later = ", ".join(order[order.index(path) + 1 :])
        raise ConfigurationRefused(f"{later} counts after {path} and overrides {name}. Remedy: correct it there")


def _can_start(
    desired: Mapping[Path, str | int], then: Mapping[str, str], flags: Mapping[str, str], said: Mapping[str, object]
) -> None:
    by_list = known().reserved_cpus
    listed = flags.get(by_list.flag) or said.get(by_list.key)
    if listed and (taken := next((each for each in _CPU if tuple(each.split("/")) in desired), None)):
        where = f"--{by_list.flag}={listed}" if by_list.flag in flags else f"{by_list.key}: {listed}"
        setting = "system_reserved" if taken == _CPU[0] else "kube_reserved"
        raise ConfigurationRefused(
            f"the kubelet is told {where}, which takes the place of {taken}. Remedy: leave cpu out of "
            f"kubernetes.kubelet.{setting}, or take that out of the kubelet's flags and files"
        )
    reserved = any(then.get(key, "0").strip("0.m") for key in _CPU) or listed
    if then["cpuManagerPolicy"] == "static" and not reserved:
        raise ConfigurationRefused(
            "a kubelet with cpuManagerPolicy static does not start without reserved CPUs. Remedy: set cpu in "
            "kubernetes.kubelet.system_reserved or kube_reserved"
        )


def _is_felt(before: Mapping[str, str], then: Mapping[str, str]) -> bool:
    differ = {key for key in {*before, *then} if before.get(key) != then.get(key)}
    pods = [each["maxPods"] for each in (before, then)]
    if all(each.isdecimal() for each in pods) and int(pods[1]) > int(pods[0]):
        differ.discard("maxPods")
    return bool(differ)
