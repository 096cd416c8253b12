"""The fixture nvidia-smi from its arguments to its exit code."""

from __future__ import annotations

import os
import sys
import time

from .. import module
from ..machine import HardwareError, Machine
from . import arguments as command_line
from .session import Failure, Session

_LIBRARIES = tuple(f"/usr/{lib}/libnvidia-ml.so.1" for lib in ("lib/x86_64-linux-gnu", "lib64", "lib"))
_NO_LIBRARY = (
    "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display "
    "Driver is properly installed and present in your system.\n"
    "Please also try adding directory that contains libnvidia-ml.so to your system PATH.\n"
)
_NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n\n"
)


def main(arguments: list[str], version: str) -> int:
    """Run as /usr/bin/nvidia-smi of a package version; print everything to standard output as the real one does."""
    printed, status = call(arguments, version, Machine(os.environ.get("GPUNODE_LAB_ROOT", "/")))
    sys.stdout.buffer.write(printed)
    sys.stdout.buffer.flush()
    return status


def call(arguments: list[str], version: str, machine: Machine) -> tuple[bytes, int]:
    """Run one call on a machine; return what it prints and its exit code (NVML's codes)."""
    machine.log("nvidia-smi", " ".join(arguments))
    session = Session(machine, version, ())
    status = 0
    try:
        if module.real_driver_loaded(machine):
            raise Failure("SIMULATED nvidia-smi: a real NVIDIA driver is loaded here; refusing to start.\n", 1)
        _run(session, arguments)
        status = session.warn()
    except Failure as failure:
        session.printed += failure.text
        status = failure.exit_code
    except HardwareError as error:
        session.say(f"SIMULATED nvidia-smi: {error}")
        status = 255
    if session.changed:
        from ..nvml import publish

        publish(machine)
    if status:
        machine.log("nvidia-smi", f"exit code {status}")
    return bytes(session.printed), status


def _run(session: Session, arguments: list[str]) -> None:
    if arguments and arguments[0] in ("-h", "--help"):
        session.say(f"NVIDIA System Management Interface -- v{session.version} (SIMULATED, gpunode's lab)")
        return
    _initialise(session)
    session.gpus = session.machine.gpus()
    # Each imports what it needs, and no other call has to wait for it.
    if arguments and arguments[0] == "mig":
        from .mig import main as mig

        mig.run(session, arguments[1:])
        return
    command, options = command_line.parse(arguments)
    if command == "help":
        session.say(f"NVIDIA System Management Interface -- v{session.version} (SIMULATED, gpunode's lab)")
    elif command in ("list", "version", "log", "table"):
        from . import table

        table.run(session, command, options)
    elif command in ("help-query-gpu", "query-gpu", "query-compute-apps", "query-remapped-rows"):
        from . import query

        query.run(session, command, options)
    elif command in command_line.SETTINGS:
        from . import power

        power.run(session, command, options)
    else:
        from . import modify

        modify.run(session, command, options)


def _initialise(session: Session) -> None:
    """Do what nvmlInit does: find the library, reach the driver, compare the two."""
    # As a driver below a root of its own is asked; the real one takes whatever is loaded under this name.
    preloaded = [place for place in os.environ.get("LD_PRELOAD", "").split(":") if place.endswith("/libnvidia-ml.so.1")]
    library = next((place for place in (*preloaded, *_LIBRARIES) if session.machine.exists(place)), None)
    if library is None:
        raise Failure(_NO_LIBRARY, 12)
    if session.machine.faults.get("hang"):
        import signal

        # A process that waits for a wedged GPU sits in the kernel: no signal but KILL ends the wait.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM):
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(3600)
    loaded = module.loaded_version(session.machine)
    if loaded is None:
        raise Failure(_NO_DRIVER, 9)
    version = os.path.basename(os.path.realpath(session.machine.at(library))).partition(".so.")[2]
    if version != loaded:
        short = ".".join(version.split(".")[:2])
        text = f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {short}\n"
        raise Failure(text, 18)
