"""`nvidia-smi mig`: from its arguments to what it lists or changes."""

from __future__ import annotations

from ..session import Failure, Session
from .arguments import parse
from .instances import Instances
from .select import chosen

# Those that change something: one at a time on the machine.
_CHANGES = ("cgi", "cci", "dgi", "dci")
# What 580 lists of a GPU that is not in MIG mode, too (seen on an H100 with 580.159.04).
_OF_EVERY_GPU = ("lgip", "lgipp")


def run(session: Session, arguments: list[str]) -> None:
    """Run one call; Failure with NVML's exit code where it fails, and with 535's where no GPU is in MIG mode."""
    action, options = parse(arguments)
    if action == "help":
        session.say(f"mig -- Multi Instance GPU management -- v{session.version} (SIMULATED, gpunode's lab)")
        return
    gpus = session.select(options.get("i"))
    session.require_reachable(gpus)
    if session.branch >= 550 and not any(gpu.model.mig for gpu in gpus):
        raise Failure("No MIG-supported devices found.\n", 6)
    every = session.branch >= 580 and action in _OF_EVERY_GPU
    enabled = [
        Instances(session, gpu) for gpu in gpus if gpu.model.mig and (every or session.mig_modes(gpu)[0] == "Enabled")
    ]
    if not enabled:
        # 535 calls it an error, 550 does not.
        raise Failure("No MIG-enabled devices found.\n", 6 if session.branch < 550 else 0)
    if not action:
        # -C and -ci alone are nothing, -gi alone asks whether there is such an instance.
        if "gi" in options:
            chosen(enabled, options)
        return
    if action in _CHANGES:
        from .changes import CHANGES

        with session.alone():
            CHANGES[action](session, enabled, options)
    else:
        from .lists import LISTS

        LISTS[action](session, enabled, options)
