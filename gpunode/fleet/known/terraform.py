"""The machines of Terraform's (and OpenTofu's) state: an output of one's own, or the resources that are machines.

Taken are `terraform show -json`, `terraform state pull` (a state of version 4) and `terraform output -json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpunode.base.tables.reading import Row, Table, table
from gpunode.fleet.ci.machines import OUTPUT, MachinesError, described
from gpunode.fleet.known.machines import Known, KnownError, KnownHost, Notes, is_name

SOURCE = "Terraform's state"


@dataclass(frozen=True)
class Attributes(Row):
    """Hold which attributes of a resource say a machine's name, its addresses, and who logs in."""

    name: str
    external: str | None = None
    internal: str | None = None
    user: str | None = None


@dataclass(frozen=True)
class _Resource:
    kind: str
    name: str
    index: Any
    attributes: Mapping[str, Any]


# What a machine of the output says of itself -> as pyinfra has it.
_DATA = {"address": "ssh_hostname", "port": "ssh_port", "user": "ssh_user", "key": "ssh_key"}
# Type of a resource -> its attributes.
machine_resources = table(Table[str, Attributes], "terraform.yaml", "resources")  # type: ignore[type-abstract]


def known(document: Any, address: str = "external") -> Known:
    """Return what the document knows: the machines of its output gpu_nodes where it has one, else its resources.

    address: external or internal, which is taken of a resource where it has both; raise KnownError
    """
    if not isinstance(document, dict):
        raise KnownError("this is none of Terraform's: `terraform show -json` prints a mapping")
    if "planned_values" in document or "resource_changes" in document:
        raise KnownError("this is a plan, whose machines are not there yet: apply it, then use `terraform show -json`")
    if document.get("version", 4) != 4 and "resources" not in document:
        raise KnownError(
            f"this is a state of version {document['version']!r}; use `terraform show -json`, which reads it"
        )
    try:
        outputs, resources = _parts(document)
        return _of_output(outputs[OUTPUT]) if OUTPUT in outputs else _of_resources(resources, address)
    except (AttributeError, LookupError, TypeError) as error:
        raise KnownError(f"Terraform's state is not as it should be: {error}") from error


def _parts(document: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[_Resource, ...]]:
    """Return a document's outputs and its resources."""
    if "format_version" in document:
        values = document.get("values") or {}
        return values.get("outputs") or {}, tuple(_shown(values.get("root_module") or {}))
    if "resources" in document or "terraform_version" in document:
        return document.get("outputs") or {}, tuple(_in_state(document.get("resources") or []))
    if document and all(isinstance(entry, dict) and "value" in entry for entry in document.values()):
        if OUTPUT in document:
            return document, ()
        named = ", ".join(map(repr, document))
        raise KnownError(f"there is no output {OUTPUT} among {named}; name the one with the machines so")
    raise KnownError("this is no state of Terraform's: use `terraform show -json`, `state pull` or `output -json`")


def _shown(module: Mapping[str, Any]) -> Iterator[_Resource]:
    for each in module.get("resources") or []:
        if each.get("mode") == "managed":
            yield _Resource(each["type"], str(each["name"]), each.get("index"), each.get("values") or {})
    for child in module.get("child_modules") or []:
        yield from _shown(child)


def _in_state(resources: list[Mapping[str, Any]]) -> Iterator[_Resource]:
    for each in resources:
        if each.get("mode") == "managed":
            for instance in each.get("instances") or []:
                # One that Terraform still has to destroy.
                if "deposed" not in instance:
                    attributes = instance.get("attributes") or {}
                    yield _Resource(each["type"], str(each["name"]), instance.get("index_key"), attributes)


def _of_output(output: Any) -> Known:
    if isinstance(output, dict) and output.get("sensitive"):
        raise KnownError(f"output {OUTPUT} is marked as sensitive, and nothing of it is copied: take that mark away")
    try:
        machines = described(output.get("value") if isinstance(output, dict) else None, f"output {OUTPUT}")
    except MachinesError as error:
        raise KnownError(str(error)) from error
    notes, hosts = Notes(), dict[str, KnownHost]()
    for one in machines:
        name = one.get("name") or one["address"]
        if not is_name(name) or not is_name(one["address"]):
            notes.add(repr(name), "left out: name and address must be of letters, digits and . _ - : %")
        elif name in hosts:
            notes.add(name, "is there twice; the first counts")
        else:
            data = {own: one.get(key) for key, own in _DATA.items()}
            hosts[name] = _host(name, {key: value for key, value in data.items() if value})
    return _known(tuple(hosts.values()), {}, notes)


def _of_resources(resources: tuple[_Resource, ...], address: str) -> Known:
    notes, hosts, groups = Notes(), dict[str, KnownHost](), dict[str, list[str]]()
    machines = [each for each in resources if each.kind in machine_resources()]
    if not machines:
        kinds = ", ".join(machine_resources())
        raise KnownError(
            f"{SOURCE} has no output {OUTPUT}, and none of its {len(resources)} resources is a machine that gpunode "
            f"knows ({kinds}). Add an output: docs/how-to/machines-known-already.md"
        )
    for each in machines:
        rule = machine_resources()[each.kind]
        name = _value(each.attributes, rule.name) or each.name
        if not is_name(name):
            notes.add(repr(name), "left out: its name must be of letters, digits and . _ - : %")
            continue
        name = _unique(name, each.index, hosts)
        preferred, other = (rule.external, rule.internal) if address == "external" else (rule.internal, rule.external)
        found = next((a for a in (_value(each.attributes, path) for path in (preferred, other)) if is_name(a)), None)
        if found is None:
            notes.add(name, "left out: the state says no address; is it running?")
            continue
        if preferred and found != _value(each.attributes, preferred):
            notes.add(name, f"has no {address} address; the other one is taken")
        user = _value(each.attributes, rule.user)
        by_user = {"ssh_user": user} if isinstance(user, str) and user else {}
        hosts[name] = _host(name, {"ssh_hostname": found} | by_user)
        groups.setdefault(each.name, []).append(name)
    return _known(tuple(hosts.values()), groups, notes)


def _host(name: str, data: dict[str, Any]) -> KnownHost:
    other = data.get("ssh_user") not in (None, "root")
    return KnownHost(name, data | ({"_sudo": True} if other else {}))


def _known(hosts: tuple[KnownHost, ...], groups: Mapping[str, list[str]], notes: Notes) -> Known:
    for key in ("ssh_user", "ssh_key"):
        for host in hosts:
            if key not in host.data:
                notes.add(host.name, f"its {key} is not known; enter it in group_data")
    return Known(SOURCE, hosts, {name: tuple(each) for name, each in groups.items()}, notes.found(), user="root")


def _unique(name: str, index: Any, taken: Mapping[str, Any]) -> str:
    """Return a name that no other machine has: of several with one name, each has its index behind it."""
    if name not in taken:
        return name
    own = f"{name}-{index}"
    if index is not None and is_name(own) and own not in taken:
        return own
    return next(each for number in range(2, len(taken) + 3) if (each := f"{name}-{number}") not in taken)


def _value(attributes: Any, path: str | None) -> Any:
    """Return what is at a path such as `network_interface.0.network_ip`; None where nothing is."""
    if path is None:
        return None
    for word in path.split("."):
        if isinstance(attributes, list) and word.isdecimal() and int(word) < len(attributes):
            attributes = attributes[int(word)]
        elif isinstance(attributes, dict):
            attributes = attributes.get(word)
        else:
            return None
    return attributes
