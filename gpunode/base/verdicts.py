"""What preflight says: refusals, which stop a node, and cautions, which do not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpunode.base.codes import with_code
from gpunode.base.messages import Kind, Message
from gpunode.base.reading import Reading


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

    def __str__(self) -> str:
        """Return `COMPONENT: REASON; REMEDY (source: SOURCE) [CODE]`."""
        return with_code(f"{self.component}: {self.reason}; {self.remedy} (source: {self.source})", self.code)


@dataclass(frozen=True)
class Caution(Refusal):
    """Hold what a person should know before the run goes on; not a refusal."""


@dataclass(frozen=True, kw_only=True)
class RefusalMessage(Message):
    """Declare a refusal by preflight: called with the values of a node, it is that node's refusal.

    component: whose it is; reason, remedy, source: with {name} for each value
    """

    kind = Kind.REFUSAL
    exit: str = "2, of gpunode drift, plan and a run; 3 of gpunode check, where no node can have it"
    component: str
    reason: str = "{reason}"
    remedy: str = "{remedy}"
    source: str = "{source}"

    def __call__(self, **values: Any) -> Refusal:
        """Return the refusal of a node; raise KeyError where a value is missing."""
        return Refusal(code=self.code, **self._texts(values))

    def _texts(self, values: dict[str, Any]) -> dict[str, str]:
        fields = ("component", "reason", "source", "remedy")
        return {name: getattr(self, name).format(**values) for name in fields}


@dataclass(frozen=True, kw_only=True)
class CautionMessage(RefusalMessage):
    """Declare a caution of preflight; as RefusalMessage."""

    kind = Kind.CAUTION
    exit: str = "0: it changes none"

    def __call__(self, **values: Any) -> Caution:
        """Return the caution about a node; raise KeyError where a value is missing."""
        return Caution(code=self.code, **self._texts(values))
