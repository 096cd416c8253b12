"""Which GPU instances a call is about: -gi."""

from __future__ import annotations

from ..session import Failure
from .instances import GpuInstance, Instances


def chosen(gpus: list[Instances], options: dict[str, str]) -> list[tuple[Instances, GpuInstance]]:
    """Return the GPU instances that are chosen; Failure 6 where there are none."""
    wanted = numbers(options.get("gi"))
    found = [(gpu, each) for gpu in gpus for each in gpu if wanted is None or each.id in wanted]
    if not found:
        raise Failure("No GPU instances found: Not Found\n", 6)
    return found


def numbers(text: str | None) -> set[int] | None:
    """Return the ids of a comma-separated list; None where none is given: then all are meant."""
    return None if text is None else {int(item) for item in text.split(",") if item.strip().isdigit()}
