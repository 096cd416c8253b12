"""containerd's CRI plugin: whether it works, and what a person corrects where it refuses its own settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gpunode.base.comparison import RUN
from gpunode.base.findings import Finding
from gpunode.base.messages import REMEDY
from gpunode.components.runtimes.containerd import findings
from gpunode.components.runtimes.containerd.state import Containerd
from gpunode.components.runtimes.runtime import RuntimeChange, restart_of

# How the plugin's validation begins, in containerd 1 and 2. Any other reason may be gone at the next start.
_VALIDATION = ("invalid plugin config: ", "invalid cri ")
_KEY = re.compile(r"`([\w.]+)")


def plugin_findings(actual: Containerd) -> Iterator[Finding]:
    """Yield whether the CRI plugin of a running containerd works."""
    plugin = actual.cri_plugin
    if not actual.active:
        return
    if plugin is None and actual.disables_cri:
        cause = "disabled_plugins of the merged configuration names it"
        yield findings.CRI_PLUGIN.compared("disabled", "ok", False, cause=cause, disruption=restart_of(actual))
    elif plugin is None:
        cause = "containerd runs, and `ctr plugins ls` does not report its CRI plugin"
        yield findings.CRI_PLUGIN.not_known("ok", cause, f"look at `journalctl -u {actual.unit}`")
    else:
        reason = findings.NOT_LOADED.format(reason=actual.cri_reason) if actual.cri_reason else None
        yield findings.CRI_PLUGIN.compared(plugin, "ok", plugin == "ok", cause=reason, disruption=restart_of(actual))


def refused_settings(actual: Containerd, change: RuntimeChange | None) -> str | None:
    """Return why no restart brings the CRI plugin back: it refuses settings that a change of gpunode leaves alone.

    None where the daemon runs by older files, or the change has other lines with a key that the plugin names.
    """
    reason = actual.cri_reason or ""
    if not actual.active or actual.stale or not any(each in reason for each in _VALIDATION):
        return None
    names = dict.fromkeys(_KEY.findall(reason))
    keys = {name.rpartition(".")[2] for name in names}
    if actual.config_text is None and "default_runtime_name" in keys:
        # Recorded facts have no texts, and a run writes that key.
        return None
    texts = actual.texts
    written = texts | {file.path: file.text for file in (change.files if change else ())}
    if _lines(texts.values(), keys) != _lines(written.values(), keys):
        return None
    files = [path for path, text in texts.items() if _lines([text], keys)] or [actual.config_path]
    what = " or ".join(names) or "that setting"
    return f"{findings.NOT_LOADED.format(reason=reason)}{REMEDY}correct {what} in {' or '.join(files)}, and {RUN}"


def _lines(texts: Iterable[str | None], keys: set[str]) -> set[str]:
    """Return the lines of files that have one of these keys, without comments."""
    lines = {line.strip() for text in texts for line in (text or "").splitlines()}
    return {line for line in lines if not line.startswith("#") and any(key in line for key in keys)}
