"""A release as it is desired, and as helm prints it, in JSON: the same of helm 3.19 and 4.2."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from gpunode.base.reading import ParseError
from gpunode.base.structured_text import TextError, load_json
from gpunode.settings.chart import ReleaseSettings
from gpunode.settings.kubernetes import KubernetesSettings


@dataclass(frozen=True)
class AskedRelease:
    """Hold where the cluster is, what the release is of, and the chart's values."""

    kubernetes: KubernetesSettings
    settings: ReleaseSettings
    values: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON types."""
        return {
            "release": self.settings.release,
            "namespace": self.settings.namespace,
            "chart": self.settings.chart,
            "version": self.settings.version,
            "values": self.values,
        }


_CHART = re.compile(r"(?P<name>.+?)-(?P<version>v?\d+\.\d+\.\d+.*)")
# What helm is told to write into each revision of gpunode's, and how a release of gpunode's is known.
MARK = "Applied by gpunode"
_ROLLBACK = re.compile(r"Rollback to (\d+)")


class Status(StrEnum):
    """Name the states of a revision, in helm's words."""

    UNKNOWN = "unknown"
    DEPLOYED = "deployed"
    UNINSTALLED = "uninstalled"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    UNINSTALLING = "uninstalling"
    PENDING_INSTALL = "pending-install"
    PENDING_UPGRADE = "pending-upgrade"
    PENDING_ROLLBACK = "pending-rollback"

    @property
    def is_under_way(self) -> bool:
        """Say whether a helm is at work, or was when it was cut off."""
        return self.value.startswith("pending-") or self is Status.UNINSTALLING


@dataclass(frozen=True)
class Revision:
    """Hold one revision: its number, status, chart as NAME-VERSION, when it was last changed, and helm's own words."""

    number: int
    status: Status
    chart: str
    updated: datetime | None
    description: str

    @property
    def chart_name(self) -> str:
        """Return the chart's name, without its version."""
        match = _CHART.fullmatch(self.chart)
        return match["name"] if match else self.chart

    @property
    def chart_version(self) -> str | None:
        """Return the chart's version; None where the chart says none."""
        match = _CHART.fullmatch(self.chart)
        return match["version"] if match else None

    @property
    def rolled_back_to(self) -> int | None:
        """Return the revision that this one brought back; None where it is no rollback."""
        match = _ROLLBACK.match(self.description)
        return int(match[1]) if match else None


@dataclass(frozen=True)
class Release:
    """Hold the revisions of a release, oldest first; there is at least one."""

    revisions: tuple[Revision, ...]

    @property
    def latest(self) -> Revision:
        """Return the newest revision, whatever became of it."""
        return self.revisions[-1]

    @property
    def good(self) -> Revision | None:
        """Return the revision that is deployed, else the newest that once was; None where there never was one."""
        for status in (Status.DEPLOYED, Status.SUPERSEDED):
            for revision in reversed(self.revisions):
                if revision.status is status:
                    return revision
        return None

    @property
    def is_gpunode_s(self) -> bool:
        """Say whether a revision bears gpunode's mark; what fails, is cut off or rolled back has words of helm's."""
        return any(revision.description == MARK for revision in self.revisions)

    @property
    def undone(self) -> Revision | None:
        """Return the failed revision that the newest one rolled back; None where it is no such rollback.

        One that was cut off, or that the newest one goes back to, is followed by one that rolls back the same.
        """
        back_to = self.latest.rolled_back_to
        if back_to is None:
            return None
        for each in reversed(self.revisions[:-1]):
            passed = each.status.is_under_way or each.number == back_to
            if each.rolled_back_to is None or not passed:
                return each if each.status is Status.FAILED else None
        return None


def parse_history(text: str) -> Release:
    """Parse `helm history NAME -o json`; raise ParseError."""
    found = _listed(text)
    if not found:
        raise ParseError("helm tells of a release without revisions")
    revisions = tuple(sorted((_revision(item) for item in found), key=lambda revision: revision.number))
    if len({revision.number for revision in revisions}) != len(revisions):
        raise ParseError("helm tells of one revision twice")
    return Release(revisions)


def parse_list(text: str, name: str, namespace: str) -> Status | None:
    """Parse `helm list -o json` for one release: its newest status, None where there is no such release.

    Raise ParseError. Asked first, since `helm history` fails alike where there is no release and where it cannot ask.
    """
    for item in _listed(text):
        if not isinstance(item, dict):
            raise ParseError(f"no release: {str(item)[:80]!r}")
        if (item.get("name"), item.get("namespace")) == (name, namespace):
            return _status(item.get("status"))
    return None


def _listed(text: str) -> list[Any]:
    try:
        found = load_json(text)
    except TextError as error:
        raise ParseError(f"helm's answer cannot be read as JSON{error.unquoted}") from None
    if not isinstance(found, list):
        raise ParseError("helm's answer is no list")
    return found


def _revision(item: object) -> Revision:
    if not isinstance(item, dict):
        raise ParseError(f"no revision: {str(item)[:80]!r}")
    return Revision(
        number=_number(item.get("revision")),
        status=_status(item.get("status")),
        chart=str(item.get("chart") or ""),
        updated=_time(item.get("updated")),
        description=str(item.get("description") or ""),
    )


def _number(value: object) -> int:
    # A string in `helm list`, a number in all else.
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ParseError(f"no revision's number: {str(value)[:40]!r}")
    return value


def _status(value: object) -> Status:
    try:
        return Status(str(value))
    except ValueError:
        return Status.UNKNOWN


def _time(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo else None
