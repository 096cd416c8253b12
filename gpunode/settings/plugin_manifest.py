"""The manifest of a device plugin that gpunode rolls out: read, and refused where it is to hold what it may not.

gpunode takes away what is no longer asked for. So a manifest has none but objects that nobody loses anything else by: a
Namespace would take all that others have in it along, a CustomResourceDefinition every resource of its kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpunode.base.structured_text import FILE, TextError, load_documents
from gpunode.settings.chart import found_in, plain_json

_RBAC = "rbac.authorization.k8s.io"
# (API group, kind) -> whether it is in a namespace; each is one of those that gpunode looks for and takes away.
KINDS: Mapping[tuple[str, str], bool] = {
    ("apps", "DaemonSet"): True,
    ("apps", "Deployment"): True,
    ("", "Service"): True,
    ("", "ConfigMap"): True,
    ("", "ServiceAccount"): True,
    (_RBAC, "Role"): True,
    (_RBAC, "RoleBinding"): True,
    (_RBAC, "ClusterRole"): False,
    (_RBAC, "ClusterRoleBinding"): False,
}
_WHY = {
    "Namespace": "gpunode never removes a namespace, for it takes along what others have in it: make it yourself",
    "CustomResourceDefinition": "to remove it takes every resource of its kind along: install it yourself, or take the "
    "plugin's chart",
    "Secret": "a secret does not belong into a file that is shown where it differs: make it yourself, and refer to it",
    "List": "write its objects one by one, with --- between them",
}
_WORKLOADS = ("DaemonSet", "Deployment")


class ManifestError(ValueError):
    """Hold every mistake of a manifest, each as FILE:LINE: WORDS."""

    def __init__(self, mistakes: Iterable[str]) -> None:
        """Take the mistakes in their order; there is at least one."""
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(self.mistakes))


@dataclass(frozen=True)
class Manifest:
    """Hold the objects of a manifest, in their order, and what each is known by: group, kind, namespace, name."""

    objects: tuple[Mapping[str, Any], ...]
    identities: tuple[tuple[str, str, str, str], ...]


def read_manifest(path: Path) -> Manifest:
    """Return the manifest in a file; raise ManifestError."""
    try:
        with path.open("rb") as file:
            content = file.read(FILE + 1)
    except (OSError, ValueError) as error:
        raise ManifestError([f"{path}: {getattr(error, 'strerror', None) or error}"]) from None
    try:
        return parse_manifest(content.decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ManifestError([f"{path}:{line}: is no UTF-8"]) from None


def parse_manifest(text: str, name: str) -> Manifest:
    """Return the manifest of a text; `name` is its file's. Raise ManifestError with every mistake."""
    mistakes: list[str] = []
    found: list[dict[str, Any]] = []
    identities: dict[tuple[str, str, str, str], int] = {}
    try:
        documents = load_documents(text, unique=True)
    except TextError as error:
        where, what = f":{error.line}" if error.line else "", error.problem
        raise ManifestError([f"{name}{where}: cannot be read as YAML: {what}"]) from None
    for line, content in documents:
        if content is None:
            continue
        wrong = list(_wrong(content))
        if not wrong:
            identity = _identity(content)
            if identity in identities:
                wrong = [f"{content['kind']} {identity[3]} stands in line {identities[identity]}, too"]
            identities.setdefault(identity, line)
            found.append(content)
        mistakes += (f"{name}:{line}: {each}" for each in wrong)
    if mistakes:
        raise ManifestError(mistakes)
    if not found:
        raise ManifestError([f"{name}:1: holds no object"])
    return Manifest(tuple(found), tuple(identities))


def _wrong(content: Any) -> Iterator[str]:
    """Yield what is wrong with an object."""
    if not isinstance(content, dict):
        found = type(content).__name__
        yield f"a {found} stands where an object should: a mapping with apiVersion, kind and metadata"
        return
    kind, version = content.get("kind"), content.get("apiVersion")
    if not (isinstance(kind, str) and isinstance(version, str)):
        yield "an object without apiVersion and kind"
        return
    if (why := _WHY.get(kind)) is not None:
        yield f"{kind} is refused: {why}"
        return
    group = version.rpartition("/")[0]
    if (group, kind) not in KINDS:
        allowed = ", ".join(f"{of}/{each}" if of else each for of, each in KINDS)
        yield f"{kind} of {version[:80]} is refused: gpunode takes away none but {allowed}"
        return
    metadata, name = content.get("metadata"), found_in(content, "metadata.name")
    if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
        yield f"{kind} has no metadata.name"
        return
    space = metadata.get("namespace")
    if KINDS[group, kind] and not (isinstance(space, str) and space):
        yield f"{kind} {name} has no metadata.namespace: where it went would depend on the kubeconfig"
    if not KINDS[group, kind] and space is not None:
        yield f"{kind} {name} is in no namespace: leave metadata.namespace out"
    for field in ("labels", "annotations"):
        yield from _no_texts(f"{kind} {name}", f"metadata.{field}", metadata.get(field))
    if content.get("status") not in (None, {}):
        yield f"{kind} {name} has a status: the cluster writes it; take it out (`kubectl get -o yaml` prints it)"
    for field in ("uid", "resourceVersion", "generation", "managedFields", "selfLink"):
        if field in metadata:
            yield f"{kind} {name} has metadata.{field}: the cluster writes it; take it out"
    if kind == "DaemonSet" and found_in(content, "spec.updateStrategy.type") == "OnDelete":
        yield (
            f"DaemonSet {name} has updateStrategy OnDelete: its pods would stay as they are until somebody deletes "
            "them, and no run could prove the new ones; leave it out"
        )
    if kind in _WORKLOADS and not isinstance(found_in(content, "spec.template.spec.containers"), list):
        yield f"{kind} {name} has no spec.template.spec.containers"
    elif kind in _WORKLOADS:
        for field in ("spec.nodeSelector", "metadata.labels", "metadata.annotations"):
            at = f"spec.template.{field}"
            yield from _no_texts(f"{kind} {name}", at, found_in(content, at))
    try:
        plain_json(content)
        json.dumps(content, allow_nan=False)
    except (ValueError, TypeError) as error:
        yield f"{kind} {name} {error}"


def _no_texts(what: str, field: str, found: Any) -> Iterator[str]:
    """Yield what is no mapping of texts, which an API server refuses once all else is done."""
    if found is None:
        return
    if not isinstance(found, dict):
        yield f"{what}: {field} is no mapping"
        return
    for key, value in found.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            yield f"{what}: {field}.{str(key)[:60]} is {str(value)[:60]}, which has to be a text: put it in quotes"


def _identity(content: Mapping[str, Any]) -> tuple[str, str, str, str]:
    metadata = content["metadata"]
    group = content["apiVersion"].rpartition("/")[0]
    return group, content["kind"], metadata.get("namespace") or "", metadata["name"]
