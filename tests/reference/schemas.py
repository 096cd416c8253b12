"""JSON schemas of the commands' documents, as docs/examples/output has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import TypeAdapter

from gpunode.base.document import ERROR_SCHEMA, REPORT_SCHEMA, ROLLOUT_SCHEMA
from gpunode.base.findings import ExitCode, Finding, FindingClass
from gpunode.base.messages import Scope
from gpunode.cli import agent, check, cluster, explain, init, lab
from gpunode.components.mig import check as mig
from gpunode.components.mig.goal import Verdict
from gpunode.fleet.rollout.entries import Entry, Policy
from gpunode.history import output as history
from gpunode.history.asking import Kind
from gpunode.history.intervals import End
from gpunode.node import Node, recorded

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TEXT: dict[str, Any] = {"type": "string"}
MAYBE: dict[str, Any] = {"type": ["string", "null"]}
TEXTS: dict[str, Any] = {"type": "array", "items": TEXT}
COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
# What the document of a command that takes an inventory is of (gpunode.fleet.call.Call.to_json).
OF_CALL: dict[str, Any] = {"inventory": MAYBE, "limit": TEXTS, "set": TEXTS}
_CLASS = {"enum": [each.value for each in FindingClass]}
_OF = {"history": TEXT, "inventory": MAYBE}
_SCOPE = {"enum": [each.value for each in Scope]}
_STATE = {"class": _CLASS, "actual": MAYBE, "desired": MAYBE}


def document_schema(
    schema: int,
    counts: Mapping[str, Any],
    exit_codes: Iterable[int],
    keys: Mapping[str, Any],
    of: Mapping[str, Any] | None = None,
    optional: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the JSON schema of a document with the head that all documents have.

    counts: key -> schema; of: what the head says it is of; keys: what follows the head; optional: what may be missing
    """
    properties = {
        "schema": {"const": schema},
        "gpunode": TEXT,
        **(of or {}),
        "at": {"type": "string", "format": "date-time"},
        "counts": objects(counts),
        "exit_code": {"enum": [int(code) for code in exit_codes]},
        **keys,
    }
    left = set(optional)
    required = [name for name in properties if name not in left]
    return {"$schema": DRAFT, "type": "object", "required": required, "properties": properties}


def objects(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that has all of these keys."""
    return {"type": "object", "required": list(keys), "properties": dict(keys)}


def each(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object whose every value is of that schema."""
    return {"type": "object", "additionalProperties": dict(value)}


# Failures of the command itself, such as a report that could not be written.
ERRORS: dict[str, Any] = {"type": "array", "items": objects({"error": TEXT, "code": TEXT})}


def error_schema() -> dict[str, Any]:
    """Return the schema of what a command prints instead of its document where it failed."""
    codes = (ExitCode.ERROR, ExitCode.NEGATIVE, ExitCode.INPUT_REFUSED, ExitCode.USAGE)
    of = {**OF_CALL, "source": MAYBE, "lab": TEXT}
    keys = {"error": TEXT, "code": TEXT, "problems": {"type": "array", "items": {"type": "object"}}}
    return document_schema(ERROR_SCHEMA, {}, codes, keys, of, optional=(*of, "problems"))


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
    return document_schema(cluster.SCHEMA, counts, (0,), keys, OF_CALL, optional=objects_of)


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


def prune_schema(time: str = "before") -> dict[str, Any]:
    """Return the schema of what `history prune` and, with the time `after`, `history forget` print."""
    counts = dict.fromkeys(("findings", "reports", "hosts"), COUNT)
    return document_schema(history.SCHEMA, counts, (0,), {time: TEXT}, _OF)


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


def facts_schema() -> dict[str, Any]:
    """Return the JSON schema of one host's facts, as a file holds them."""
    found = TypeAdapter(Node).json_schema()
    # What may be left out: gpunode/node/recorded.py fills it in.
    found["required"] = ["operating_system", "pci"]
    containerd = found["$defs"]["Containerd"]
    containerd["required"].remove("config_text")
    return found


def drift_schema(optional: Iterable[str] = ()) -> dict[str, Any]:
    """Return the schema of what `drift` prints; optional: the keys that may be missing."""
    classes = [item.value for item in FindingClass]
    fields = Finding("", FindingClass.OK, "", code="").to_json()
    count = {"type": "object", "propertyNames": {"enum": classes}, "additionalProperties": COUNT}
    finding = dict.fromkeys(fields, MAYBE) | {
        "code": TEXT,
        "component": TEXT,
        "what": TEXT,
        "class": {"enum": classes},
        "commands": TEXTS,
    }
    items = {"type": "object", "required": sorted(finding), "properties": {**finding, "log": TEXT}}
    judged = {"class": {"enum": classes}, "findings": {"type": "array", "items": items}}
    host = objects({"at": MAYBE, "summary": _summary(), **judged})
    cluster = {"anyOf": [objects({"name": TEXT, **judged}), {"type": "null"}]}
    counts = {"hosts": count, "findings": count}
    keys = {"errors": ERRORS, "cluster": cluster, "hosts": each(host)}
    return document_schema(REPORT_SCHEMA, counts, (0, 1, 2), keys, OF_CALL, optional)


def _summary() -> dict[str, Any]:
    """Return the schema of what a node is; null where it could not be read."""
    counts = dict.fromkeys(("gpus_on_bus", "gpus"), COUNT)
    texts = dict.fromkeys(("operating_system", "kernel"), TEXT)
    maybe = dict.fromkeys(("driver", "driver_flavour", "cuda", "toolkit", "gpunode"), MAYBE)
    return {"anyOf": [objects({**texts, **maybe, **counts, "gpu_models": TEXTS}), {"type": "null"}]}


def apply_schema() -> dict[str, Any]:
    """Return the schema of what `apply` prints: that of `drift`, and which hosts were not judged, and why."""
    found = drift_schema()
    found["properties"] |= {"left_alone": each(TEXT), "log": MAYBE}
    found["required"] += ["left_alone", "log"]
    return found


def rollout_schema() -> dict[str, Any]:
    """Return the schema of what `rollout` prints."""
    text, maybe, names = TEXT, MAYBE, TEXTS
    counted = ("passed", "failed", "untouched", "left_out", "under_way")
    kind = {"enum": ["canary", "wave", "retry"]}
    number = {"type": "integer", "minimum": 1}
    classes = {"enum": [item.value for item in FindingClass]}
    node = objects({"class": classes, "passed": {"type": "boolean"}, "reason": maybe, "remedy": maybe, "code": maybe})
    outcome = {"anyOf": [node, {"type": "null"}]}
    nodes = {"type": "object", "additionalProperties": outcome}
    wave = {"number": number, "kind": kind, "begun": text, "ended": maybe, "log": maybe, "nodes": nodes}
    wave |= {"cluster": outcome}
    left_out = objects({"class": classes, "reason": text, "code": maybe})
    keys = {
        "schema": {"const": ROLLOUT_SCHEMA},
        "gpunode": text,
        "inventory": text,
        "limit": names,
        "set": names,
        "begun": text,
        "at": text,
        "counts": objects({"nodes": objects({name: COUNT for name in counted})}),
        "state": {"enum": ["planned", "at work", "finished", "stopped", "paused", "interrupted"]},
        "reason": maybe,
        "code": maybe,
        "exit_code": {"enum": [0, 1, 2]},
        "errors": ERRORS,
        "gate": names,
        "policy": Policy.model_json_schema(),
        "journal": maybe,
        "waves": {"type": "array", "items": objects(wave)},
        "cluster": outcome,
        "to_come": {"type": "array", "items": objects({"number": number, "kind": kind, "nodes": names})},
        "untouched": names,
        "left_out": {"type": "object", "additionalProperties": left_out},
    }
    return {"$schema": DRAFT, **objects(keys)}


def journal_schema() -> dict[str, Any]:
    """Return the schema of a line of a rollout's journal."""
    return TypeAdapter(Entry).json_schema()
