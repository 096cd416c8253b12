"""What containers saw on a node where all is well, and what is said of it."""

from __future__ import annotations

from gpunode.components.smoke import Handed, Smoke, Trial

DEVICES = ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl")
# What containers get of the driver is the matter of tests/support/smoke_driver.py.
HANDED = Handed(capabilities=("utility",))
SEES, NOTHING, LOST = Trial(True, DEVICES), Trial(True), Trial(True, DEVICES[1:], DEVICES[:1])
GOOD = Smoke("ctr", "/usr/bin/nvidia-container-runtime", DEVICES, SEES, NOTHING, NOTHING, SEES, HANDED)


def problems(smoke: Smoke, names: tuple[str, ...] = ()) -> dict[str, object]:
    """Return how many problems there are, and which names they lack."""
    text = "\n".join(smoke.problems)
    return {"problems": len(smoke.problems), "unnamed": [each for each in names if each not in text]}
