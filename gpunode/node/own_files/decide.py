"""What is to be done about gpunode's own files, those too that have no effect before a boot."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

from gpunode.base.comparison import AS_DESIRED, file_message
from gpunode.base.decision import Decision, Step, bad
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.base.tables import content
from gpunode.node.own_files.repositories import REPOSITORIES
from gpunode.settings import Settings
from gpunode.system.applied import OWNED, PATH, Applied, OwnFile, PresentFile

_AS_LEFT = "as the last run left it"
_NOT_READ = "not read"
_MODE = "644"
_CHANGED = "it was changed after the last run"
_OTHER_RUN = (
    "the last whole run was by other settings or by another gpunode; changed since, by hand or by a run that did not "
    "end"
)
_ASKED_SINCE = "the settings, or gpunode, are others than those of the last whole run"
# Component -> its finding about such a file.
FILES = {
    name: file_message(name)
    for name in (
        "driver", "repositories", "cuda", "toolkit", "containerd", "podman", "mps", "mig", "power", "imex", "slurm",
        "kubelet", "dcgm", "node",
    )
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """Say whose files are at a place, by how their paths begin.

    told: findings of the component that report such a file already, by the second part of their codes
    disruption: what writing it costs
    """

    begins: str
    component: str
    told: tuple[str, ...] = ()
    disruption: Disruption = Disruption.nothing


_ELSEWHERE = Place("/", "node")


@cache
def _places() -> tuple[Place, ...]:
    """Return the places of own_files.yaml."""
    return tuple(
        Place(row["begins"], row["component"], tuple(row.get("told", ())), Disruption[row.get("disruption", "nothing")])
        for row in content("own_files.yaml")["places"]
    )


@dataclass(frozen=True)
class Desired:
    """Hold which own files a node is to have.

    files: path -> text; None: there is to be none
    settings: as they are asked, for their digest
    kept: path -> file of what the run under way keeps, which counts before `files` and the record; None outside of one
    restart_waits: whether a restart of containerd waits, whose drop-in is written all the same
    places: those of components that say themselves which files are theirs; the table's count before them
    """

    files: Mapping[str, str | None]
    settings: Settings
    kept: Mapping[str, OwnFile] | None = None
    restart_waits: bool = False
    places: tuple[Place, ...] = ()


def decide(desired: Desired, actual: Applied, told: Iterable[Finding]) -> Decision[None]:
    """Return what is to be done about each own file: by what is desired, or by the record where that tells no text.

    Nothing of what another finding tells of already. On a node without a record, files that are there alone.

    told: the other findings
    """
    every = tuple(told)
    names = {(item.component, item.what) for item in every}
    own = _findings(desired, actual, bad(*every))
    findings = tuple(item for item in own if (item.component, item.what) not in names)
    return Decision(findings, tuple(_step(desired, item) for item in bad(*findings)))


def _step(desired: Desired, item: Finding) -> Step[None]:
    path = FILES[item.component].named(item)
    at_once = item.component == "containerd" and desired.restart_waits
    disruption = Disruption.nothing if at_once else item.disruption or Disruption.nothing
    return Step(f"remove {path}" if item.desired == "none" else f"write {path} anew", (item,), disruption)


def _findings(desired: Desired, actual: Applied, told: tuple[Finding, ...]) -> Iterator[Finding]:
    present, recorded, kept = dict(actual.present), dict(actual.files), desired.kept
    if kept is None and PATH in present:
        # In a run the record is written after the verdict.
        recorded = {PATH: OwnFile(None, _MODE), **recorded}
    for path in dict.fromkeys((*recorded, *desired.files)):
        now = present.get(path)
        if kept is not None and path in recorded and path not in kept and path not in desired.files:
            continue  # This run wants no such file.
        if now is None and PATH not in present and path not in recorded:
            continue
        place = next((each for each in (*_places(), *desired.places) if path.startswith(each.begins)), _ELSEWHERE)
        file = _desired(path, desired.files, recorded, kept)
        if file is None:
            shown, to_be = (None, AS_DESIRED) if now is None else ("there", "none")
            if shown is None:
                continue
        else:
            as_desired = path in desired.files or (kept or {}).get(path) is not None
            shown, to_be = _sides(file, now, AS_DESIRED if as_desired else _AS_LEFT)
            if path == PATH and not actual.readable:
                shown = "unreadable"
        if shown == _NOT_READ:
            cause = f"neither `stat` nor `sha256sum` of {path} answered in time"
            remedy = f"run `stat {path}` and `sha256sum {path}` on the node, and mend the disk that they name"
            yield FILES[place.component].not_known(to_be, cause, remedy, of=path)
        elif shown is None or not any(_tells(place, path, item) for item in told):
            # Seldom asked, and not for nothing.
            last = (actual.settings, actual.gpunode)
            same = shown is None or not actual.readable or last == (desired.settings.digest(), version("gpunode"))
            left = recorded.get(path)
            as_left = same or (now is None if left is None else _sides(left, now, "")[0] is None)
            yield FILES[place.component].compared(
                shown or to_be,
                to_be,
                shown is None,
                of=path,
                cause=_CHANGED if same else _ASKED_SINCE if as_left else _OTHER_RUN,
                disruption=place.disruption,
            )


def _desired(
    path: str, desired: Mapping[str, str | None], recorded: Mapping[str, OwnFile], kept: Mapping[str, OwnFile] | None
) -> OwnFile | None:
    """Return a file as it should be, None where it should not be."""
    if kept is not None and path in kept:
        return kept[path]
    if path not in desired:
        return recorded[path]
    if (text := desired[path]) is None:
        return None
    # The mode of a repository's file is looked at with all others that root runs by (gpunode.system.exposed).
    return OwnFile(hashlib.sha256(text.encode()).hexdigest(), None if path in REPOSITORIES else _MODE)


def _sides(desired: OwnFile, present: PresentFile | None, said: str) -> tuple[str | None, str]:
    """Return how a file is where that is not as wanted, and what is wanted: `said`, or mode and owner."""
    if present is None:
        return "none", said
    if desired.sha256 is not None and present.sha256 != desired.sha256:
        return _NOT_READ if present.sha256 is None else "another text", said
    if desired.mode is not None and present.permissions != f"{desired.mode} {OWNED}":
        return present.permissions or _NOT_READ, f"{desired.mode} {OWNED}"
    return None, said


def _tells(place: Place, path: str, item: Finding) -> bool:
    """Say whether a bad finding is about this file's effect."""
    label = path.rpartition("/gpunode-")[2].partition(".")[0]
    is_its = place.component != "repositories" or item.what.endswith(f" {label}")
    return item.code in [f"{place.component}.{name}" for name in place.told] and is_its
