"""The page of `gpunode drift`: components' findings, as its JSON document has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpunode.base.findings import CLUSTER, cluster_title
from gpunode.base.messages import Scope
from gpunode.fleet.call import Call
from gpunode.fleet.page.view import (
    CAUTION,
    Host,
    Item,
    Kind,
    View,
    call_of,
    columns,
    counted,
    explained,
    healing,
    in_words,
    pairs,
    with_command,
)

KINDS = (
    Kind("error", "!", "error", "answered, and cannot be judged, or no run can mend it"),
    Kind("unreachable", "?", "unreachable", "did not answer: nothing is known"),
    Kind("unsupported", "×", "unsupported", "cannot be what is asked; no run will try"),
    Kind("drift", "≠", "drift", "differs; a run heals it"),
    Kind("reboot pending", "B", "reboot", "right on disk; the machine has to boot"),
    Kind("restart pending", "R", "restart", "right on disk; a service has to start anew"),
    Kind("not known", "~", "not-known", "could not be read or judged: neither good nor different"),
    Kind(CAUTION, "i", "caution", "as desired, and worth to know"),
    Kind("ok", "·", "ok", "as the settings say", is_quiet=True),
)


_STATES = {"ok": "as desired", "not known": "not known"}


def view(document: Mapping[str, Any]) -> View:
    """Return what the page of a drift document shows."""
    call, since = call_of(document), document.get("history", {})
    hosts = tuple(_host(name, host, call, since.get(name, {})) for name, host in document["hosts"].items())
    good, unknown = (sum(host.kind == kind for host in hosts) for kind in ("ok", "not known"))
    said = f"{good:,} of {counted(len(hosts), 'host')} {'is' if len(hosts) == 1 else 'are'} as desired"
    said += f", {unknown:,} not known." if unknown else "."
    # A document of an earlier version has none.
    if (cluster := document.get("cluster")) is not None:
        name, found = cluster_title(cluster["name"]), _host(cluster["name"], cluster, call, since.get(CLUSTER, {}))
        said += f" T{name[1:]} is {_STATES.get(found.kind, 'not as desired')}."
        hosts = (replace(found, name=name, scope=Scope.CLUSTER), *hosts)
    return View(
        "Drift",
        document.get("inventory"),
        said,
        KINDS,
        columns(hosts),
        hosts,
        document["gpunode"],
        document["at"],
        heal=healing(call),
        heal_all=call.run if call else None,
    )


def _host(name: str, host: Mapping[str, Any], call: Call | None, since: Mapping[str, str]) -> Host:
    return Host(name, host["class"], tuple(_item(each, call, since) for each in host["findings"]))


def _item(finding: Mapping[str, Any], call: Call | None, since: Mapping[str, str]) -> Item:
    """Return a finding; since: `component: what` -> since when the history says that it is so."""
    is_caution = finding["class"] == "ok" and finding["cause"] is not None
    told = {"why": finding["cause"], "remedy": with_command(finding["remedy"], call), "source": finding["source"]}
    told |= {"log": finding.get("log")}
    told["code"] = explained(finding.get("code")) if finding["class"] != "ok" or is_caution else None
    return Item(
        finding["component"],
        CAUTION if is_caution else finding["class"],
        finding["what"],
        finding["actual"],
        finding["desired"],
        pairs(told),
        finding["disruption"],
        (so := since.get(f"{finding['component']}: {finding['what']}") or finding["since"]) and in_words(so),
    )
