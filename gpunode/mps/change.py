"""What a run does to the daemons that are there, and which of them have clients that would feel it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpunode.mps.daemon import Daemon, daemons
from gpunode.mps.state import Mps, MpsDaemon
from gpunode.settings.mps import MpsSettings


@dataclass(frozen=True)
class Effect:
    """Hold the units that are to be restarted and that are to go, and the daemons of those with clients.

    One that does not say how many it has may have some.
    """

    restart: tuple[str, ...]
    gone: tuple[str, ...]
    felt: tuple[MpsDaemon, ...]


def effect(wanted: Sequence[Daemon], state: Mps, other_unit: bool) -> Effect:
    """Return what becomes of the daemons; other_unit: the unit that they are to have is to be written."""
    restart = tuple(daemon.unit for daemon in wanted if other_unit or not _well(state.daemon(daemon.unit)))
    units = {daemon.unit for daemon in wanted}
    gone = tuple(each.unit for each in state.daemons if each.unit not in units)
    felt = tuple(each for each in state.daemons if each.unit in (*restart, *gone) and each.clients != 0)
    return Effect(restart, gone, felt)


def felt_by_clients(asked: MpsSettings, gpus: int, state: Mps) -> tuple[MpsDaemon, ...]:
    """Return the daemons whose clients would feel a run, as far as a reading of the node tells.

    That the unit's template is another in a newer gpunode is known to the run alone, which renders it.
    """
    wanted = daemons(asked, range(gpus)) if asked.enabled else ()
    there = dict(state.files)
    missing = any(daemon.unit_path not in there for daemon in wanted)
    return effect(wanted, state, missing or other_mode(asked, wanted, state)).felt


def other_mode(asked: MpsSettings, wanted: Iterable[Daemon], state: Mps) -> bool:
    """Say whether the unit of a daemon gives the GPUs another compute mode than the one that is asked for."""
    there = [found.exclusive for daemon in wanted if (found := state.daemon(daemon.unit)) is not None]
    return (asked.compute_mode != "exclusive-process") in there


def counted(felt: Iterable[MpsDaemon]) -> str:
    """Return how many clients each daemon has, for people."""
    return ", ".join(f"{'?' if each.clients is None else each.clients} of {each.unit}" for each in felt)


def _well(found: MpsDaemon | None) -> bool:
    return found is not None and found.active and found.answers and not found.stale
