"""The verdict at the end of a run, by facts read again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyinfra import host

from facts.node import Node
from gpunode.findings import FindingClass
from gpunode.settings import Settings
from gpunode.verify import judge
from operations.failure import fail, known, node_operation
from operations.own_files import kept
from operations.phase import is_executing

_PENDING = (FindingClass.RESTART_PENDING, FindingClass.REBOOT_PENDING)


@node_operation
def verified(settings: Settings) -> Iterator[Any]:
    """Compare what was asked with what is there; fail on a difference, report what is pending.

    + settings: the host's settings
    """
    # Before it is carried out, a run is judged as drift judges the node: by the record of the run before.
    files = kept() if is_executing() else None
    findings = judge(settings, known(host.get_fact(Node), "the node's state"), files)
    bad = [item for item in findings if item.finding_class not in (FindingClass.OK, *_PENDING)]
    pending = [item for item in findings if item.finding_class in _PENDING]
    for item in pending:
        host.log(f"{item.finding_class}: {item.what} is {item.found}, {item.wanted} is to come. {item.remedy}")
    for item in findings:
        if item.is_caution:
            host.log(f"caution: {item.component}: {item.what}: {item.found} ({item.cause}). Remedy: {item.remedy}")
    if bad:
        yield fail(
            "\n".join(
                f"{item.finding_class}: {item.component}: {item.what} is {item.found}, wanted {item.wanted}"
                + (f" ({item.cause})" if item.cause else "")
                + (f". Remedy: {item.remedy}" if item.remedy else "")
                for item in bad
            )
        )
        return
    host.noop(f"{len(findings) - len(pending)} of {len(findings)} things are as asked")
