"""What preflight says: refusals, which stop a node, and cautions, which do not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from gpunode.base.messages import Kind, Message, commands_of, keep_as_data, shown, with_code
from gpunode.base.reading import Reading

_BY_MESSAGE = ("do as the message says: the remedy depends on the node",)


@dataclass(frozen=True)
class Refusal(Reading):
    """Hold why a node is refused: the component that cannot be had, the reason, its source, and what to do.

    code: what `gpunode explain` knows it by
    """

    component: str
    reason: str
    source: str
    remedy: str
    code: str

    def __post_init__(self) -> None:
        """Hold each text as data: it may have a node's own words."""
        keep_as_data(self, "component", "reason", "source", "code")

    def to_json(self) -> dict[str, Any]:
        """Return the fields and the remedy's commands as plain JSON types."""
        return {**super().to_json(), "commands": list(commands_of(self.remedy))}

    def __str__(self) -> str:
        """Return `COMPONENT: REASON; REMEDY (source: SOURCE) [CODE]`."""
        return with_code(f"{self.component}: {self.reason}; {self.remedy} (source: {self.source})", self.code)


@dataclass(frozen=True)
class Caution(Refusal):
    """Hold what a person should know before the run goes on; not a refusal."""


@dataclass(frozen=True, init=False, kw_only=True)
class RefusalMessage(Message):
    """Declare a refusal by preflight; called with the values of a node, it returns that node's refusal.

    row: the second part of its code; component: its component, where that is not the first word of the row
    reason, source, remedy: with {name} for each value, or for a text that the caller gives
    summary: as in Message; without it the reason is the summary, too
    remedies: those that the page shows where the caller gives the remedy
    """

    kind = Kind.REFUSAL
    always = "Preflight reports it before anything is changed: the run leaves this node out."
    effect: ClassVar[str] = "2, of gpunode drift, plan and a run; 3 of gpunode check, where no node can have it"
    component: str
    reason: str
    remedy: str

    def __init__(
        self,
        row: str,
        summary: str = "",
        *,
        component: str = "",
        reason: str = "{reason}",
        source: str,
        remedy: str = "{remedy}",
        detail: str = "",
        remedies: tuple[str, ...] = (),
    ) -> None:
        vars(self).update(component=component or row.partition("-")[0], reason=reason, remedy=remedy)
        super().__init__(
            f"preflight.{row}",
            summary or f"{reason[0].upper()}{reason[1:]}.",
            detail,
            causes=(reason,) if summary and _says_anything(reason) else (),
            remedies=remedies or ((remedy,) if _says_anything(remedy) else _BY_MESSAGE),
            exit=self.effect,
            source=source,
        )

    def __call__(self, **values: Any) -> Refusal:
        """Return the refusal of a node; raise KeyError where a value is missing."""
        return Refusal(code=self.code, **self._texts(values))

    def _texts(self, values: dict[str, Any]) -> dict[str, str]:
        fields = ("component", "reason", "source", "remedy")
        return {name: getattr(self, name).format(**values) for name in fields}


class CautionMessage(RefusalMessage):
    """Declare a caution of preflight; as RefusalMessage."""

    kind = Kind.CAUTION
    always = "It is not a refusal: the run goes on."
    effect = "0: it changes none"

    def __call__(self, **values: Any) -> Caution:
        """Return the caution about a node; raise KeyError where a value is missing."""
        return Caution(code=self.code, **self._texts(values))


def _says_anything(text: str) -> bool:
    """Return whether a text has words of its own, and not only what the caller fills in."""
    return re.search(r"\w", shown(text)) is not None
