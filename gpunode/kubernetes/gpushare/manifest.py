"""The static pod of kube-scheduler: what its manifest says, and gpunode's lines put into it and taken out.

The lines make the scheduler read a configuration file of gpunode's.

The file is somebody else's (kubeadm's, as a rule), with his comments and his way of writing. Each line has a mark, and
all others stay byte for byte; what was made is read again, and is refused where it does not say what it should.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from gpunode.base.structured_text import TextError, load_yaml
from gpunode.kubernetes.gpushare.configuration import FOLDER, SchedulerError, table

PROGRAM = "kube-scheduler"
BY_HAND = "write its lists one item a line, or set gpushare.scheduler to 'theirs' and do it by hand"
_TAG = re.compile(r":v?(\d{1,2}\.\d{1,3}\.\d{1,3})([-+_.][0-9A-Za-z.+_-]*)?(@sha256:[0-9a-f]+)?$", re.ASCII)


@dataclass(frozen=True)
class SchedulerManifest:
    """Hold what a manifest says: the program's options (name -> value), its image's version, and its health's URL."""

    options: Mapping[str, str]
    version: str | None
    health: str


def parse_manifest(text: str) -> SchedulerManifest:
    """Return what a manifest says; raise SchedulerError where it is none that gpunode can change."""
    container = container_of(read(text))
    found = options_of([*(container.get("command") or []), *(container.get("args") or [])])
    tag = _TAG.search(str(container.get("image") or ""))
    return SchedulerManifest(found, tag[1] if tag else None, _health(container, found))


def read(text: str) -> dict[str, Any]:
    """Return a manifest as YAML has it; raise SchedulerError where it is no Pod's."""
    # A fact puts it in the place of what is no UTF-8.
    if "\ufffd" in text:
        raise SchedulerError("the manifest of kube-scheduler is no UTF-8; mend it first")
    try:
        found = load_yaml(text)
    except TextError as error:
        raise SchedulerError(
            f"the manifest of kube-scheduler cannot be read as YAML{error.unquoted}; correct it first"
        ) from None
    if not isinstance(found, dict) or found.get("kind") != "Pod" or not isinstance(found.get("spec"), dict):
        raise SchedulerError("the manifest of kube-scheduler is no Pod; look at gpushare.manifest")
    return found


def container_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scheduler's container; raise SchedulerError where there is none that gpunode can change."""
    containers = document["spec"].get("containers")
    found = [each for each in containers if isinstance(each, dict)] if isinstance(containers, list) else []
    named = [each for each in found if each.get("name") == PROGRAM] or (found if len(found) == 1 else [])
    if len(named) != 1:
        raise SchedulerError(f"the manifest has no container {PROGRAM}; look at gpushare.manifest")
    for key in ("command", "args"):
        words = named[0].get(key)
        if words is not None and not (isinstance(words, list) and all(isinstance(word, str) for word in words)):
            raise SchedulerError(f"{key} of the container {PROGRAM} is no list of words; {BY_HAND}")
    command = named[0].get("command") or []
    if not command or str(command[0]).rpartition("/")[2] != PROGRAM:
        raise SchedulerError(f"the container {PROGRAM} does not begin with that program's name; {BY_HAND}")
    return named[0]


def options_of(words: Sequence[str]) -> dict[str, str]:
    """Return the options of a command line: name, without dashes -> value."""
    found, words = {}, list(words)
    for number, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if not equals:
            following = words[number + 1] if number + 1 < len(words) else "-"
            value = "true" if following.startswith("-") else following
        found[name] = value
    return found


def _health(container: Mapping[str, Any], options: Mapping[str, str]) -> str:
    row = table()["health"]
    usual = int(row["secure_port"])
    with_port = options.get("secure-port", "")
    port: Any = int(with_port) if with_port.isdecimal() else usual
    probe = (container.get("livenessProbe") or {}).get("httpGet")
    if not isinstance(probe, dict):
        return f"https://127.0.0.1:{port}{row['path']}"
    desired: Any = probe.get("port", port)
    if isinstance(desired, str):
        # kubeadm names it since 1.33.
        named = [
            each for each in container.get("ports") or [] if isinstance(each, dict) and each.get("name") == desired
        ]
        desired = named[0].get("containerPort") if named else port
    scheme = "https" if str(probe.get("scheme", "HTTP")).upper() == "HTTPS" else "http"
    host = _matching(probe.get("host"), r"[0-9A-Za-z.:-]+", "127.0.0.1")
    port = desired if isinstance(desired, int) and 0 < desired < 65536 else port
    path = _matching(probe.get("path"), r"/[0-9A-Za-z/._-]*", row["path"])
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{path}"


def _matching(value: Any, pattern: str, usual: str) -> str:
    return value if isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII) else usual


_MARK = "  # gpunode gpushare"
_VOLUME = "gpunode-scheduler-configuration"
_OTHERWISE = f"the manifest of kube-scheduler is written in a way that gpunode cannot change; {BY_HAND}"
_ITEM = re.compile(r"( *)- +$")


def patched(text: str, path: str) -> str:
    """Return a manifest with the configuration file at `path` mounted and used; raise SchedulerError.

    What an earlier call put in is taken out first: the same `path`, the same text.
    """
    clean = unpatched(text)
    document = read(clean)
    container = container_of(document)
    if "config" in options_of([*(container.get("command") or []), *(container.get("args") or [])]):
        raise SchedulerError(
            "kube-scheduler has a configuration file of somebody else's (--config); put the extender into that one "
            "(docs/device-plugin.md shows its lines) and set gpushare.scheduler to 'theirs'"
        )
    made = _insert(clean, path)
    if _plain(read(made)) != _plain(_expected(document, path)):
        raise SchedulerError(_OTHERWISE)
    return made


def is_untouched(text: str) -> bool:
    """Say whether nothing in a manifest is gpunode's, marked or not: such a one need not even be read."""
    return not any(each in text for each in (_MARK, _VOLUME, f"{FOLDER}/scheduler-"))


def unpatched(text: str) -> str:
    """Return a manifest without gpunode's lines, as it was; raise SchedulerError where they were written anew."""
    clean = "\n".join(line for line in text.split("\n") if not line.rstrip("\r").endswith(_MARK))
    said = str(read(clean))
    if _VOLUME in said or f"{FOLDER}/scheduler-" in said:
        raise SchedulerError(
            "another program wrote the manifest of kube-scheduler anew, with gpunode's lines in it but without their "
            f"marks. Remedy: take out the volume {_VOLUME}, its mount and --config by hand, and run again"
        )
    return clean


def _expected(document: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return what the manifest is to say, order included."""
    spec = dict(document["spec"])
    container = container_of(document)
    changed = dict(container)
    if container.get("args"):
        changed["args"] = [f"--config={path}", *container["args"]]
    else:
        changed["command"] = [container["command"][0], f"--config={path}", *container["command"][1:]]
    changed["volumeMounts"] = [
        {"name": _VOLUME, "mountPath": path, "readOnly": True},
        *(container.get("volumeMounts") or []),
    ]
    spec["containers"] = [changed if each is container else each for each in spec["containers"]]
    spec["volumes"] = [
        {"name": _VOLUME, "hostPath": {"path": path, "type": "File"}},
        *(document["spec"].get("volumes") or []),
    ]
    return {**document, "spec": spec}


def _plain(value: Any) -> str:
    # Both sides by the same loader: what is compared are the very values, order of lists included.
    return repr(_sorted(value))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted(((repr(key), _sorted(item)) for key, item in value.items()), key=lambda pair: pair[0])
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _insert(text: str, path: str) -> str:
    """Return the text with the lines put in, as far as it is written one item a line."""
    lines = text.split("\n")
    carriage = "\r" if lines[0].endswith("\r") else ""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    _, spec = _entry(root, "spec")
    containers = _sequence(_entry(spec, "containers")[1])
    container = next(
        (each for each in containers if _scalar_of(each, "name") == PROGRAM or len(containers) == 1), containers[0]
    )
    added = [
        _to_list(lines, spec, "volumes", [f"- name: {_VOLUME}", f"  hostPath: {{path: {path}, type: File}}"]),
        _to_list(
            lines,
            container,
            "volumeMounts",
            [f"- name: {_VOLUME}", f"  mountPath: {path}", "  readOnly: true"],
        ),
        _option(lines, container, path),
    ]
    # From the end, so that numbers of lines above stay what they are.
    for after, put_in in sorted(added, reverse=True):
        lines[after + 1 : after + 1] = [f"{line}{_MARK}{carriage}" for line in put_in]
    return "\n".join(lines)


_Added = tuple[int, list[str]]


def _option(lines: list[str], container: yaml.Node, path: str) -> _Added:
    if _sequence(_entry(container, "args")[1]):
        return _to_list(lines, container, "args", [f"- --config={path}"])
    words = _sequence(_entry(container, "command")[1])
    return words[0].end_mark.line, [f"{_indent(lines, words[0])}- --config={path}"]


def _to_list(lines: list[str], mapping: yaml.Node | None, key: str, item: list[str]) -> _Added:
    """Return where to put an item in front of a list below `key`, which is made where there is none."""
    key_node, value = _entry(mapping, key)
    if key_node is not None and value is not None and _sequence(value):
        first = _sequence(value)[0]
        return key_node.end_mark.line, [f"{_indent(lines, first)}{line}" for line in item]
    if key_node is not None:
        raise SchedulerError(f"{key} in the manifest of kube-scheduler is an empty list; take it out, or {BY_HAND}")
    if not isinstance(mapping, yaml.MappingNode) or mapping.flow_style:
        raise SchedulerError(_OTHERWISE)
    # Below a value that takes one line: the name of the container, or the last word of the pod's own.
    scalars = (pair for pair in mapping.value if isinstance(pair[1], yaml.ScalarNode))
    anchor = next((pair for pair in scalars if pair[0].start_mark.line == pair[1].end_mark.line), None)
    if anchor is None:
        raise SchedulerError(f"the manifest of kube-scheduler has no place for {key}; {BY_HAND}")
    indent = " " * mapping.value[0][0].start_mark.column
    return anchor[1].end_mark.line, [f"{indent}{key}:", *(f"{indent}{line}" for line in item)]


def _indent(lines: list[str], item: yaml.Node) -> str:
    match = _ITEM.match(lines[item.start_mark.line][: item.start_mark.column])
    if match is None:
        raise SchedulerError(_OTHERWISE)
    return match[1]


def _entry(node: yaml.Node | None, key: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if getattr(name, "value", None) == key:
                return name, value
    return None, None


def _sequence(node: yaml.Node | None) -> list[yaml.Node]:
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _scalar_of(node: yaml.Node, key: str) -> str | None:
    value = _entry(node, key)[1]
    return str(value.value) if isinstance(value, yaml.ScalarNode) else None
