"""What differs between two sets of objects, for people, without the secrets in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpunode.kubernetes.helm.manifest import Identity, Keyed, Object, canonical, says_nothing
from gpunode.settings.problems import SECRET, is_secret

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
