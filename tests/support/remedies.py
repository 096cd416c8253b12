"""What a printed remedy comes to when it is followed, for the files of tests/cases."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256
from typing import Any

from gpunode.base.comparison import RUN
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.kubelet.change import drop_in, wanted
from gpunode.components.mig.state import DISABLED, Mig
from gpunode.node import Node
from gpunode.node.components import decisions, desired_files
from gpunode.node.machine import resolved
from gpunode.node.plan import plan
from gpunode.node.verdict import judged
from gpunode.settings import Settings, settings_from
from gpunode.system.applied import Applied, OwnFile, PresentFile
from gpunode.system.transaction import Interrupted, Journal
from tests.support import kubelet, mig_target, mps, power
from tests.support.cases import _hints, build
from tests.support.messages import unnamed
from tests.support.verify import DATA, GOOD

MPS = mps.settled(mps.asked())
MPS_STALE, MPS_NOT_AT_BOOT = mps.settled(mps.asked(), stale=True), mps.settled(mps.asked(), enabled=False)
POWER = power.right(power.FULL)
MIG = Mig("ok", None, (mig_target.gpu(0, DISABLED),))
DIVIDED = Mig("ok", None, (mig_target.gpu(0, "Enabled", "3g.40gb:4"),))
TOOLKIT_1_20 = replace(
    GOOD.toolkit, packages=tuple((name, "1.20.2-1") for name, _ in GOOD.toolkit.packages), version="1.20.2"
)
KUBELET = kubelet.with_folder(**{"90-gpunode": drop_in(wanted(kubelet.asked(max_pods=64)))})


_MIG_CHANGE = decisions(settings_from({**DATA, "mig": {"config": "all-1g.10gb"}}), replace(GOOD, mig=MIG))["mig"].steps[
    0
]
_TARGET = str(getattr(_MIG_CHANGE.change, "target", None))
FAILED = Interrupted(failed=(Journal("failed", _TARGET, "it did not fit", False, name="mig"),))


def _node(parts: dict[str, Any], of: Node = GOOD) -> Node:
    """Return a node with parts of other fields; a part may be `like` another object than this node's own."""
    hints = _hints(Node)
    changes = {}
    for name, values in parts.items():
        if isinstance(values, dict) and not {"like", "make"} & set(values):
            known = _hints(hints[name])
            changes[name] = replace(
                getattr(of, name), **{key: build(known[key], value) for key, value in values.items()}
            )
        else:
            changes[name] = build(hints[name], values)
    return replace(of, **changes)


def _edited(settings: Settings, node: Node, path: str) -> Node:
    """Return a node as a run by these settings left it, with another text in one of gpunode's own files."""
    texts = {each: text for each, text in desired_files(settings, node).items() if text is not None}
    files = {each: OwnFile(sha256(text.encode()).hexdigest(), "644") for each, text in texts.items()}
    present = {each: PresentFile("644 root:root", file.sha256) for each, file in files.items()}
    present[path] = PresentFile("644 root:root", "0" * 64)
    return replace(node, applied=Applied(True, "0", settings.digest(), tuple(files.items()), tuple(present.items())))


def _judged(code: str, settings: Settings, node: Node) -> tuple[list[Finding], set[Finding]]:
    """Return the findings of a code that are not as desired, and those that a run of these settings removes now."""
    own = resolved(settings, node)
    decided = decisions(own, node)
    findings, files = judged(settings, node, decided=decided)
    steps = [step for each in (*decided.values(), files) for step in each.steps]
    done = {item for step in steps if step.waits is None for item in step.settles}
    bad = [item for item in findings if item.code == code and (item.finding_class is not FindingClass.OK or item.cause)]
    return bad, set() if plan(settings, node).refusals else done


def followed(
    code: str,
    node: dict[str, Any],
    data: dict[str, Any] | None = None,
    names: Iterable[str] = (),
    settings: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    edited: str | None = None,
) -> dict[str, Any]:
    """Return who removes a finding, what its cause and remedy do not name, and what follows when it is done.

    names: commands, paths and settings that cause or remedy have to name
    edited: the path of an own file that somebody edited; settings: what the remedy asks to set
    after: the parts of the node as they are when a person has followed it
    """
    asked, actual = settings_from({**DATA, **(data or {})}), _node(node)
    if edited is not None:
        actual = _edited(asked, actual, edited)
    bad, done = _judged(code, asked, actual)
    by = {"run" if item in done else "person" for item in bad}
    for item in bad:
        # The run alone is the remedy of nothing else than what a run removes.
        assert item.remedy and (item.remedy != RUN or item in done), item
        assert item.cause or not item.remedy.startswith("mend what the cause"), item
    found: dict[str, Any] = {"by": "".join(sorted(by))}
    if names:
        found["unnamed"] = [each for each in names if any(unnamed(f"{item.cause} {item.remedy}", each) for item in bad)]
    if settings is not None or after is not None:
        then = settings_from({**DATA, **(data or {}), **(settings or {})})
        left, removed = _judged(code, then, _node(after or {}, actual))
        found["then"] = "gone" if not left else "run" if all(item in removed for item in left) else "left"
    return found
