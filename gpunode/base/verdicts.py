"""What preflight says: refusals, which stop a node, and cautions, which do not."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.reading import Reading


@dataclass(frozen=True)
class Refusal(Reading):
    """Hold why a node is refused: the component that cannot be had, the reason, its source, and what to do."""

    component: str
    reason: str
    source: str
    remedy: str

    def __str__(self) -> str:
        """Return `COMPONENT: REASON; REMEDY (source: SOURCE)`."""
        return f"{self.component}: {self.reason}; {self.remedy} (source: {self.source})"


@dataclass(frozen=True)
class Caution(Refusal):
    """Hold what a person should know before the run goes on; not a refusal."""
