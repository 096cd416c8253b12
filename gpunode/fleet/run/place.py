"""Where a run that was started by `gpunode apply` keeps its files: .apply/prod-1f2e3d4c/20261122T030405Z/run.log."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from gpunode.fleet.run.child import Files

ROOT = Path(".apply")


def begin(folder: Path) -> Files:
    """Return the files of a run that begins now, in a new folder of its own; raise OSError where that cannot be made.

    folder: of the inventory, see gpunode.fleet.rollout.place
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    mine, number = folder / stamp, 1
    # Settings of a run may be secret: they are nobody's else to read.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    while True:
        try:
            mine.mkdir(mode=0o700)
        except FileExistsError:
            # Two within one second.
            mine, number = folder / f"{stamp}-{number}", number + 1
            continue
        return Files(mine / "run.log", mine / "run.json", mine / "run.events")
