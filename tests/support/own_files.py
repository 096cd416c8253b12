"""A node as a run left its own files, and what became of some of them, for tests and cases."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from gpunode.base.comparison import AS_DESIRED, RUN
from gpunode.base.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.node.components import desired_files
from gpunode.node.own_files.decide import _AS_LEFT, _ASKED_SINCE, _CHANGED, _OTHER_RUN
from gpunode.node.plan import PlannedStep, plan
from gpunode.node.verdict import judge
from gpunode.settings import settings_from
from gpunode.system.applied import PATH, Applied, OwnFile, PresentFile
from tests.support.verify import DATA, GOOD

_CODES = {
    _CHANGED: "changed", _OTHER_RUN: "other-run", _ASKED_SINCE: "asked-since", RUN: "run", AS_DESIRED: "as-desired",
    _AS_LEFT: "as-left",
}  # fmt: skip
_PROXY = {"proxy": {"http": "http://proxy.example:3128"}}
# No setting tells what stands in it.
_UNIT = "/etc/systemd/system/gpunode-mig-layout.service"
LEFT = OwnFile("a" * 64, "644")
_PRESENT = PresentFile("644 root:root", "a" * 64)
OTHER_CUDA_KEY, OTHER_TOOLKIT_KEY = (
    replace(GOOD, keyrings=replace(GOOD.keyrings, keys=tuple((dict(GOOD.keyrings.keys) | {name: "A" * 40}).items())))
    for name in ("cuda", "toolkit")
)


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def texts(settings: Mapping[str, Any], ends: list[str], system: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the own files whose paths end so, as a machine of this system is to have them; None: gone."""
    machine = replace(GOOD, operating_system=replace(GOOD.operating_system, **dict[str, Any](system or {})))
    found = desired_files(settings_from(settings), machine)
    return {path: text for path, text in found.items() if path.endswith(tuple(ends))}


@dataclass(frozen=True)
class Outcome:
    """Hold what is not as desired, and what a run would do about it."""

    findings: list[Finding]
    steps: tuple[PlannedStep, ...]


def outcome(
    became: Mapping[str, Any],
    settings: Mapping[str, Any] = _PROXY,
    before: Mapping[str, Any] | None = None,
    of: Node = GOOD,
    recorded: bool = True,
    readable: bool = True,
    gpunode: str = "",
    kept: dict[str, OwnFile] | None = None,
) -> Outcome:
    """Judge a node, of whose files some became others by these fields, or None: gone; texts of findings by code.

    before: the settings of the run that left it; recorded: whether there was one
    """
    asked, earlier = (settings_from({**DATA, **each}) for each in (settings, settings if before is None else before))
    texts = desired_files(earlier, of) if recorded else {}
    files = {
        path: OwnFile(digest(text), None if path.startswith("/etc/apt/sources") else "644")
        for path, text in texts.items()
        if text is not None
    }
    files |= {_UNIT: LEFT} if recorded else {}
    found = {path: PresentFile("644 root:root", file.sha256) for path, file in files.items()}
    found |= {PATH: _PRESENT} if recorded else {}
    found |= {
        path: replace(found.get(path, _PRESENT), **change) for path, change in became.items() if change is not None
    }
    present = tuple((path, file) for path, file in found.items() if became.get(path, {}) is not None)
    by = (gpunode or version("gpunode"), earlier.digest()) if recorded else ("", "")
    node = replace(of, applied=Applied(readable, *by, tuple(files.items()), present))
    findings = [
        replace(
            item, **{name: _CODES.get(text := getattr(item, name), text) for name in ("cause", "remedy", "desired")}
        )
        for item in judge(asked, node, kept=kept)
        if item.finding_class is not FindingClass.OK
    ]
    return Outcome(findings, plan(asked, node).steps)
