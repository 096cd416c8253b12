"""What preflight says: refusals, which stop a node, and cautions, which do not."""

from __future__ import annotations

from dataclasses import dataclass

from gpunode.base.codes import with_code
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
