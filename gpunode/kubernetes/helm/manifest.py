"""Rendered manifests: their objects in one form, without order, defaults and comments, and how two of them differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from gpunode.base import tables
from gpunode.base.reading import ParseError
from gpunode.base.structured_text import DOCUMENT, TextError, load_documents, load_json, quantity
from gpunode.settings.problems import SECRET, is_secret

_HOOK = "helm.sh/hook"


@dataclass(frozen=True, order=True)
class Identity:
    """Hold what an object is known by: API group without version, kind, namespace (empty for none), name."""

    group: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `DaemonSet gpu/nvdp`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True)
class Object:
    """Hold an object in its one form. It is in no text form: it may be a Secret."""

    identity: Identity
    content: Any = field(repr=False)


@cache
def _table() -> Mapping[str, Any]:
    return tables.content("kubernetes.yaml")


def objects(manifest: str, namespace: str) -> dict[Identity, Object]:
    """Return the objects of a manifest but for hooks, which are no part of a release's own; raise ParseError.

    `namespace` is the release's: an object that names none is in it, as far as its kind is in any.
    """
    try:
        documents = load_documents(manifest, DOCUMENT)
    except TextError as error:
        # What the text says may be a secret.
        raise ParseError(f"the manifest cannot be read as YAML{error.unquoted}") from None
    found: dict[Identity, Object] = {}
    for _, document in documents:
        for each in _flat(document):
            metadata = each.get("metadata")
            if isinstance(metadata, dict) and _HOOK in (metadata.get("annotations") or {}):
                continue
            made = object_of(each, namespace)
            if made.identity in found:
                raise ParseError(f"the manifest holds {made.identity} twice")
            found[made.identity] = made
    return found


def live_objects(text: str, namespace: str) -> dict[Identity, Object]:
    """Return the objects that `kubectl get -o json` prints: none, one, or a list of them; raise ParseError."""
    if not text.strip():
        return {}
    try:
        # Not as YAML, which takes no characters as pairs of escapes.
        document = load_json(text)
    except TextError as error:
        raise ParseError(f"kubectl's answer cannot be read as JSON{error.unquoted}") from None
    made = (object_of(each, namespace) for each in _flat(document))
    return {each.identity: each for each in made}


def _flat(document: Any) -> Iterator[dict[str, Any]]:
    # A file of nothing but comments is a document of nothing.
    if document is None:
        return
    if not isinstance(document, dict):
        raise ParseError(f"the manifest holds a {type(document).__name__} where an object should be")
    if document.get("kind") == "List" and isinstance(document.get("items"), list):
        for item in document["items"]:
            yield from _flat(item)
        return
    yield document


def object_of(document: Mapping[str, Any], namespace: str) -> Object:
    """Return an object, of a manifest or of an API server, in its one form; raise ParseError."""
    metadata = document.get("metadata")
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(metadata, dict) or not (isinstance(kind, str) and isinstance(version, str)):
        raise ParseError("the manifest holds something without apiVersion, kind and metadata")
    name, where = metadata.get("name"), metadata.get("namespace") or ""
    if not isinstance(name, str) or not isinstance(where, str):
        raise ParseError(f"the manifest holds a {kind} without a name")
    group = version.partition("/")[0] if "/" in version else ""
    content = {**document, "metadata": {key: value for key, value in metadata.items() if key != "namespace"}}
    # The release's own is left out: whether a kind is in a namespace at all, the manifest does not say.
    identity = Identity(group, kind, "" if where == namespace else where, name)
    return Object(identity, _normal(content, "", is_custom(identity)))


def is_custom(identity: Identity) -> bool:
    """Say whether an object is a custom resource."""
    return identity.group not in _table()["groups"]


@dataclass(frozen=True)
class Default:
    """Hold the value of a field that an API server fills in where there is none: it is the same as one left out."""

    value: Any


class Blank(str):
    """Hold the empty string of a field that an API server drops: it is the same as a field that is absent."""


def _normal(value: Any, key: str, is_custom: bool) -> Any:
    """Return a value in its one form; `key` is the one that it stands under.

    An API server reads its own kinds into fields and writes those that hold something; of a custom resource it keeps
    what was written.
    """
    if isinstance(value, dict):
        found = {
            str(name): each
            for name, item in value.items()
            if (each := _normal(item, str(name), is_custom)) is not None
            and not (each in ({}, []) and _may_go(str(name), is_custom))
        }
        if key in ("limits", "requests"):
            return {name: quantity(item) for name, item in found.items()}
        if not is_custom and key not in _table()["string_maps"]:
            found = {name: Blank() if item == "" else item for name, item in found.items()}
        return _with_defaults(found, key)
    if isinstance(value, list):
        return _list([_normal(item, key, is_custom) for item in value], key)
    return value


def _may_go(name: str, is_custom: bool) -> bool:
    return name in _table()["empty_is_none"] if is_custom else name not in _table()["empty_says_something"]


def _with_defaults(found: dict[str, Any], key: str) -> dict[str, Any]:
    """Mark what is as the API server would fill it in: who wrote it down wants it, and nobody else may change it."""
    table = _table()["defaults"]
    defaults = {**table.get(key, {}), **(table["pod_spec"] if "containers" in found else {})}
    return {
        name: Default(value) if name in defaults and _text(value) == defaults[name] else value
        for name, value in found.items()
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _list(items: list[Any], key: str) -> Any:
    """Return a list as a mapping by what tells its items apart, sorted where order means nothing, else as it is."""
    lists = _table()["lists"]
    if key not in lists:
        return items
    name = lists[key]
    if not name:
        return sorted(items, key=canonical)
    keyed = Keyed((item[name], item) for item in items if isinstance(item, dict) and isinstance(item.get(name), str))
    # Without the key, or with one twice, it is what it is.
    return keyed if len(keyed) == len(items) else items


class Keyed(dict[str, Any]):
    """Hold a list's items by what tells them apart."""


def canonical(value: Any) -> str:
    """Return a value as one text: equal values, equal text."""
    value = value.value if isinstance(value, Default) else value
    return json.dumps(_without_blanks(value), sort_keys=True, separators=(",", ":"), default=str)


def says_nothing(value: Any) -> bool:
    """Say whether a field of this value is the same as one that is absent."""
    return isinstance(value, Blank | Default) or (
        isinstance(value, dict) and bool(value) and all(map(says_nothing, value.values()))
    )


def _without_blanks(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_blanks(item) for name, item in value.items() if not says_nothing(item)}
    return [_without_blanks(item) for item in value] if isinstance(value, list) else value


_LONGEST = 80
_DATA = ("data", "stringData", "binaryData")
# An object, and where in it.
Place = tuple[Identity, str]


@dataclass(frozen=True)
class Difference:
    """Hold one difference: of which object, where in it (empty: all of it), and both sides as text; None: absent."""

    identity: Identity
    path: str
    actual: str | None
    desired: str | None

    @property
    def place(self) -> Place:
        """Return where it is."""
        return self.identity, self.path

    def __str__(self) -> str:
        """Return `DaemonSet gpu/nvdp: spec.paused: true, desired false`."""
        where = f"{self.identity}: {self.path}" if self.path else str(self.identity)
        if self.desired is None:
            return f"{where}: {self.actual}, desired absent" if self.path else f"{where}: desired absent"
        if self.actual is None:
            return f"{where}: absent, desired {self.desired}" if self.path else f"{where}: absent"
        return f"{where}: {self.actual}, desired {self.desired}"


_ABSENT = object()


def differences(desired: Mapping[Identity, Object], actual: Mapping[Identity, Object]) -> tuple[Difference, ...]:
    """Return every difference between two manifests, by object."""
    return tuple(_all(desired, actual, _compared))


def drifted(desired: Mapping[Identity, Object], live: Mapping[Identity, Object]) -> tuple[Difference, ...]:
    """Return where an API server's objects are not what a manifest says; what they hold beyond it is not ours.

    Servers fill in defaults and status, and others add labels, sidecars and fields: helm would not take them away.
    """
    actual = {identity: each for identity, each in live.items() if identity in desired}
    return tuple(_all(desired, actual, _said))


def _all(desired: Mapping[Identity, Object], actual: Mapping[Identity, Object], compare: Any) -> Iterator[Difference]:
    for identity in sorted({*desired, *actual}):
        if identity not in actual:
            yield Difference(identity, "", None, "there")
        elif identity not in desired:
            yield Difference(identity, "", "there", None)
        else:
            for path, before, after in compare(actual[identity].content, desired[identity].content, ()):
                yield Difference(identity, _dotted(path), _shown(identity, path, before), _shown(identity, path, after))


Path = tuple[str, ...]


def _compared(found: Any, desired: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(found, dict) and isinstance(desired, dict):
        for key in sorted({*found, *desired}):
            yield from _compared(
                found.get(key, _ABSENT), desired.get(key, _ABSENT), (*path, _step(found, desired, key))
            )
    elif not _are_alike(found, desired):
        yield path, found, desired


def _said(actual: Any, desired: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    if isinstance(actual, dict) and isinstance(desired, dict):
        for key in sorted(desired):
            yield from _said(actual.get(key, _ABSENT), desired[key], (*path, _step(actual, desired, key)))
    elif isinstance(actual, list) and isinstance(desired, list) and len(actual) == len(desired):
        for number, (one, other) in enumerate(zip(actual, desired, strict=True)):
            yield from _said(one, other, (*path, f"[{number}]"))
    elif not _are_alike(actual, desired):
        yield path, actual, desired


def _are_alike(one: Any, other: Any) -> bool:
    if one is _ABSENT or other is _ABSENT:
        return says_nothing(one) or says_nothing(other)
    return canonical(one) == canonical(other)


def _step(actual: Any, desired: Any, key: str) -> str:
    return f"[{key}]" if isinstance(desired, Keyed) or isinstance(actual, Keyed) else key


def _dotted(path: Path) -> str:
    text = ""
    for step in path:
        text += step if step.startswith("[") else f".{step}" if text else step
    return text if text.isprintable() and len(text) <= 200 else ascii(text)[:200]


def _shown(identity: Identity, path: Path, value: Any) -> str | None:
    if value is _ABSENT:
        return None
    if identity.kind == "Secret" and (not path or path[0] in _DATA):
        return SECRET
    # The name of an environment variable stands one step above its value.
    if any(is_secret(step) for step in path[-2:]) and not isinstance(value, bool | int):
        return SECRET
    if isinstance(value, dict | list) and _holds_secret(value):
        return SECRET
    text = canonical(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _holds_secret(value: Any) -> bool:
    if isinstance(value, dict):
        named = is_secret(value.get("name", ""))
        return named or any(is_secret(key) or _holds_secret(item) for key, item in value.items())
    return isinstance(value, list) and any(map(_holds_secret, value))
