"""JSON schemas of the commands' documents, as docs/examples/output has them."""

from __future__ import annotations

from typing import Any

from gpunode.base.document import COUNT, MAYBE, OF_CALL, TEXT, TEXTS, document_schema, each, objects
from gpunode.base.findings import ExitCode, FindingClass
from gpunode.base.messages import Scope
from gpunode.cli import agent, check, cluster, explain, init, lab
from gpunode.components.mig import check as mig
from gpunode.components.mig.goal import Verdict
from gpunode.history import document as history
from gpunode.history.asking import Kind
from gpunode.history.intervals import End
from gpunode.node import recorded

_CLASS = {"enum": [each.value for each in FindingClass]}
_OF = {"history": TEXT, "inventory": MAYBE}
_SCOPE = {"enum": [each.value for each in Scope]}
_STATE = {"class": _CLASS, "actual": MAYBE, "desired": MAYBE}


def bundle_schema() -> dict[str, Any]:
    """Return the schema of what `agent bundle` prints."""
    keys = {"number": COUNT, "expires": TEXT, "program": TEXT, "cautions": TEXTS, "hosts": TEXTS}
    return document_schema(agent.SCHEMA, {"hosts": COUNT}, (0,), keys, OF_CALL)


def deployed_schema() -> dict[str, Any]:
    """Return the schema of what `agent install` and `agent remove` print."""
    return document_schema(agent.SCHEMA, {"hosts": COUNT}, (0, 1), {"hosts": TEXTS}, OF_CALL)


def check_schema() -> dict[str, Any]:
    """Return the schema of what `check` prints."""
    verdict = objects({**dict.fromkeys(("component", "reason", "source", "remedy"), TEXT), "hosts": TEXTS})
    problem = {"type": "object", "required": ["key", "message"]}
    keys = {
        "ok": {"type": "boolean"},
        "error": MAYBE,
        "code": MAYBE,
        "problems": {"type": "array", "items": problem},
        "refusals": {"type": "array", "items": verdict},
        "cautions": {"type": "array", "items": verdict},
        "dropped": each(TEXTS),
        "hosts": each({"type": "object", "required": ["digest"]}),
    }
    counts = {"hosts": objects({"right": COUNT, "refused": COUNT})}
    return document_schema(check.SCHEMA, counts, (0, 1, 3), keys, OF_CALL)


def cluster_schema() -> dict[str, Any]:
    """Return the schema of what `cluster` prints; which objects it has with the labels follows from the settings."""
    counts = {"hosts": objects({"inventory": COUNT, "labelled": COUNT})}
    objects_of = {name: {"type": "object"} for name in ("values", "gpu_operator")}
    keys = {"labels": each({"type": "object"}), **objects_of}
    return document_schema(cluster.SCHEMA, counts, (0,), keys, {"inventory": TEXT}, optional=objects_of)


def explain_schema() -> dict[str, Any]:
    """Return the schema of what `explain` prints."""
    pages_of = {"type": "array", "items": objects({"code": TEXT, "summary": TEXT})}
    return document_schema(explain.SCHEMA, {"pages": COUNT}, (0,), {"pages": pages_of})


def init_schema() -> dict[str, Any]:
    """Return the schema of what `init` prints."""
    names = ("written", "to_look_at", "kept")
    counts, lists = {name: COUNT for name in names}, {name: TEXTS for name in names}
    return document_schema(init.SCHEMA, counts, (0,), lists, {"source": MAYBE})


def lab_schema() -> dict[str, Any]:
    """Return the schema of what `lab` prints."""
    texts = ("name", "address", "gpu", "family", "container", "state")
    node = objects({**{name: TEXT for name in texts}, "gpus": COUNT})
    keys = {"nodes": {"type": "array", "items": node}}
    return document_schema(lab.SCHEMA, {"nodes": each(COUNT)}, (0,), keys, {"lab": TEXT})


def mig_check_schema() -> dict[str, Any]:
    """Return the schema of what `mig check` prints."""
    mistake = {**dict.fromkeys(("path", "message", "code"), TEXT), "value": MAYBE, "allowed": TEXTS}
    verdicts = ["valid", *(verdict.value for verdict in Verdict)]
    layout = each({"type": "integer"})
    placement = {"profile": TEXT, "start": COUNT, "size": COUNT, "compute_instances": {"type": "array"}}
    entry = {
        "path": TEXT,
        "device_filter": TEXTS,
        "devices": {"anyOf": [{"const": "all"}, {"type": "array", "items": {"type": "integer"}}]},
        "mig_enabled": {"type": "boolean"},
        "mig_devices": {"anyOf": [layout, {"type": "null"}]},
        "verdict": {"enum": [None, *verdicts[1:], "overridden", "not for this GPU"]},
        "for_subsystem_only": {"type": "boolean"},
        "placements": {"type": ["array", "null"], "items": objects(placement)},
        "create": {"type": ["array", "null"], "items": TEXT},
        "reason": MAYBE,
        "nearest": {"type": "array", "items": layout},
    }
    config = {"verdict": {"enum": verdicts}, "code": MAYBE, "entries": {"type": "array", "items": objects(entry)}}
    keys = {
        "verdict": {"enum": [*verdicts, "refused"]},
        "gpu": {"anyOf": [objects({"product": TEXT, "device_ids": TEXTS}), {"type": "null"}]},
        "configs": each(objects(config)),
        **{name: {"type": "array", "items": objects(mistake)} for name in ("cautions", "mistakes")},
    }
    return document_schema(mig.SCHEMA, {"configs": each(COUNT)}, (0, 1, 2, 3), keys, {"source": TEXT})


def findings_schema() -> dict[str, Any]:
    """Return the schema of what `history findings` prints."""
    times = {"since": TEXT, "last_good": MAYBE, "begun": TEXT, "not_yet": MAYBE, "last": TEXT, "seen": TEXT}
    names = dict.fromkeys(("inventory", "host", "component", "what", "code"), TEXT)
    names |= {"scope": _SCOPE}
    ended = {"ended": MAYBE, "end": {"enum": [None, *(each.value for each in End)]}}
    told = {"cause": MAYBE, "remedy": MAYBE, "told_by": TEXT, "or_earlier": {"type": "boolean"}}
    items = {"type": "array", "items": objects({**names, **_STATE, **told, **times, **ended})}
    counts = {"hosts": COUNT, "findings": COUNT}
    return document_schema(history.SCHEMA, counts, (0,), {"asked_at": MAYBE, "findings": items}, _OF)


def changes_schema() -> dict[str, Any]:
    """Return the schema of what `history changes` prints."""
    side = {"anyOf": [objects(_STATE), {"type": "null"}]}
    names = dict.fromkeys(("host", "component", "what", "code", "earliest", "by", "run"), MAYBE)
    kinds = {"enum": [each.value for each in Kind]}
    change = {
        "at": TEXT,
        "change": kinds,
        "inventory": TEXT,
        "scope": {"enum": [*_SCOPE["enum"], None]},
        **names,
        "before": side,
        "after": side,
    }
    keys = {"since": TEXT, "until": TEXT, "changes": {"type": "array", "items": objects(change)}}
    return document_schema(history.SCHEMA, {kind.value: COUNT for kind in Kind}, (0,), keys, _OF)


def inventories_schema() -> dict[str, Any]:
    """Return the schema of what `history inventories` prints."""
    items = objects({"name": TEXT, "hosts": COUNT, "first": MAYBE, "last": MAYBE, "reports": COUNT})
    return document_schema(
        history.SCHEMA, {"inventories": COUNT}, (0,), {"inventories": {"type": "array", "items": items}}, _OF
    )


def import_schema() -> dict[str, Any]:
    """Return the schema of what `history import` prints."""
    items = objects({"file": TEXT, "inventory": TEXT, "hosts": COUNT})
    return document_schema(history.SCHEMA, {"files": COUNT}, (0,), {"files": {"type": "array", "items": items}}, _OF)


def prune_schema() -> dict[str, Any]:
    """Return the schema of what `history prune` prints."""
    counts = dict.fromkeys(("findings", "reports", "hosts"), COUNT)
    return document_schema(history.SCHEMA, counts, (0,), {"before": TEXT}, _OF)


def document_of_facts_schema() -> dict[str, Any]:
    """Return the schema of what `facts` prints; of a file that is read, the hosts alone are needed."""
    host = {"anyOf": [objects({"facts": {"$ref": "../plan/facts.schema.json"}}), objects({"unreachable": TEXT})]}
    return document_schema(
        recorded.SCHEMA,
        {"hosts": objects({"read": COUNT, "unreachable": COUNT})},
        (ExitCode.GOOD, ExitCode.ERROR),
        {"hosts": each(host)},
        OF_CALL,
    )
