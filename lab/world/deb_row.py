"""A row of a table on packages for apt: its relations, and what the lab's fixture has in their place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

# As the tables name them -> as a control file does.
FIELDS = {
    "pre_depends": "Pre-Depends", "depends": "Depends", "recommends": "Recommends", "provides": "Provides",
    "conflicts": "Conflicts", "breaks": "Breaks", "replaces": "Replaces",
}  # fmt: skip
CONFIDENCES = ("index", "packaging", "log", "measured", "doc", "test", "inferred")


@dataclass(frozen=True)
class DebRow:
    """Hold a package of a table: `relations` and `in_lab` map a name of FIELDS to relations as debian/control has them.

    `in_lab` are those of the lab's fixture, `unknown` the fields that nobody knows; V stands for the own version.
    """

    name: str
    relations: Mapping[str, tuple[str, ...]]
    in_lab: Mapping[str, tuple[str, ...]]
    source: str
    confidence: str
    unknown: tuple[str, ...] = ()
    version: str = ""
    epoch: int = 0
    suffixed_after: str = ""
    conffiles: tuple[str, ...] = ()
    why: str = ""
    files: tuple[str, ...] = field(default=())

    def control(self, version: str) -> dict[str, str]:
        """Return the fields of a control file that the lab's fixture has at a version; none that is empty."""
        return {
            FIELDS[name]: ", ".join(item.replace("= V)", f"= {version})") for item in items)
            for name, items in self.in_lab.items()
            if items
        }

    def stanza(self, version: str = "", more: Iterable[str] = ()) -> str:
        """Return the package as dpkg's status and apt's lists have it, with the table's relations and further lines."""
        told = version or self.version
        fields = {"Package": self.name, "Version": told, "Architecture": "amd64", "Maintainer": "x", "Description": "x"}
        fields |= {
            FIELDS[name]: ", ".join(items).replace("= V)", f"= {told})") for name, items in self.relations.items()
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items() if value) + "".join(
            f"{line}\n" for line in more
        )


def deb_row(row: Mapping[str, Any], source: str = "", confidence: str = "") -> DebRow:
    """Return a row as it stands in a table; ValueError where it does not say how sure it is, or a field is unknown."""
    sure = row.get("confidence", confidence)
    if sure not in CONFIDENCES or not row.get("source", source):
        raise ValueError(f"{row.get('name')}: source and confidence ({', '.join(CONFIDENCES)}) are needed")
    relations = {name: tuple(row.get(name, ())) for name in FIELDS}
    lab = row.get("lab", {})
    assumed = row.get("assumed", {})
    instead = lab.get("instead", {})
    if wrong := set(instead) - {item for items in relations.values() for item in items}:
        raise ValueError(f"{row['name']}: lab.instead names no relation of its: {', '.join(wrong)}")
    in_lab = {
        name: (*(instead.get(item, item) for item in items), *assumed.get(name, ()), *lab.get(name, ()))
        for name, items in relations.items()
    }
    return DebRow(
        name=row["name"], relations=relations, in_lab=in_lab, source=row.get("source", source), confidence=sure,
        unknown=tuple(row.get("unknown", ())), version=row.get("version", ""), epoch=row.get("epoch", 0),
        suffixed_after=row.get("suffixed_after", ""), conffiles=tuple(row.get("conffiles", ())),
        why=lab.get("why", ""), files=tuple(row.get("files", ())),
    )  # fmt: skip
