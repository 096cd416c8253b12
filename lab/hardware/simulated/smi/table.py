"""The plain table, -L, --version and -q -d COMPUTE."""

from __future__ import annotations

import time

from ..holders import holders
from ..machine import SimulatedGpu
from .session import LOST, Failure, Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .mig.instances import ComputeInstance, GpuInstance

_WIDTH = 89
_COLUMNS = "-----------------------------------------+------------------------+----------------------"
_MIG_RULE = "+------------------+----------------------------------+-----------+-----------------------+"
_SHORT_COMPUTE = {"Default": "Default", "Exclusive_Process": "E. Process", "Prohibited": "Prohibited"}


def run(session: Session, command: str, options: dict[str, str]) -> None:
    """Print what a command asks for: list, version, log or table."""
    if command == "list":
        print_list(session)
    elif command == "version":
        print_version(session)
    elif command == "log" and "xml-format" in options:
        from .log import print_xml

        print_xml(session, options.get("id"))
    elif command == "log":
        print_compute_log(session, options)
    else:
        print_table(session, options.get("id"))


def print_list(session: Session) -> None:
    """Print one line per GPU; Failure 15 at the first lost one, after those before it."""
    if not session.gpus:
        session.say("No devices found.")
    for gpu in session.gpus:
        if session.lost(gpu):
            # The garbage after "gpu " is the real program's: it prints a pointer's bytes.
            raise Failure(b"Unable to determine the device handle for gpu \x10\xe8h*): " + LOST, 15)
        session.say(f"GPU {gpu.index}: {gpu.model.name} (UUID: {gpu.uuid})")
        for number, (name, uuid) in enumerate(_devices(session, gpu)):
            session.say(f"  MIG {name:<12}Device {number:>2}: (UUID: {uuid})")


def _devices(session: Session, gpu: SimulatedGpu) -> list[tuple[str, str]]:
    """Return name and UUID of each MIG device."""
    return [(of.compute_name(each.size), each.uuid) for of, each in mig_devices_of(session, gpu)]


def mig_devices_of(session: Session, gpu: SimulatedGpu) -> list[tuple[GpuInstance, ComputeInstance]]:
    """Return the MIG devices of a GPU; most have none, for which nothing of MIG need be imported."""
    if session.mig_modes(gpu)[0] != "Enabled":
        return []
    from .mig.instances import mig_devices

    return mig_devices(session, gpu)


def print_version(session: Session) -> None:
    """Print the versions of program, library, driver and CUDA."""
    session.say(f"NVIDIA-SMI version  : {session.version}")
    session.say(f"NVML version        : {'.'.join(session.version.split('.')[:2])}")
    session.say(f"DRIVER version      : {session.driver_version}")
    session.say(f"CUDA Version        : {session.cuda_version}")


def print_compute_log(session: Session, options: dict[str, str]) -> None:
    """Print -q -d COMPUTE, the one section that the fixture has; Failure 2 for others."""
    if options.get("display", "").upper() != "COMPUTE":
        raise Failure("SIMULATED nvidia-smi prints of -q only -d COMPUTE and -x; use --query-gpu for the rest.\n", 2)
    gpus = session.select(options.get("id"))
    session.require_reachable(gpus)

    def field(name: str, value: object) -> None:
        session.say(f"{name:<{55 if session.branch >= 580 else 42}}: {value}")

    session.say("\n==============NVSMI LOG==============\n")
    field("Timestamp", time.strftime("%a %b %e %H:%M:%S %Y"))
    field("Driver Version", session.driver_version)
    field("CUDA Version", f"{session.cuda_version}\n")
    field("Attached GPUs", len(session.gpus))
    for gpu in gpus:
        session.say(f"GPU {gpu.bus_id}")
        field("    Compute Mode", f"{session.runtime(gpu).get('compute_mode', 'Default')}\n")


def print_table(session: Session, ids: str | None) -> None:
    """Print the plain table; Failure 6 without a GPU, 15 with a lost one."""
    gpus = session.select(ids)
    session.require_reachable(gpus)
    edge = f"+{'-' * _WIDTH}+"
    session.say(time.strftime("%a %b %e %H:%M:%S %Y       "))
    session.say(edge)
    title = f"NVIDIA-SMI {session.version:<22} Driver Version: {session.driver_version:<14} CUDA Version: "
    session.say(f"| {title}{session.cuda_version:<8} |")
    # 580 closes the title with a cross instead of a bar.
    session.say(f"+{_COLUMNS}+" if session.branch >= 580 else f"|{_COLUMNS}+")
    session.say("| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |")
    session.say("| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |")
    session.say("|                                         |                        |               MIG M. |")
    session.say(f"|{_COLUMNS.replace('-', '=')}|")
    for gpu in gpus:
        _rows(session, gpu)
        session.say(f"+{_COLUMNS}+")
    session.say()
    if any(session.mig_modes(gpu)[0] == "Enabled" for gpu in gpus):
        _mig_devices(session, gpus, edge)
        session.say(" " * _WIDTH)
    _processes(session, gpus, edge)


def _rows(session: Session, gpu: SimulatedGpu) -> None:
    state = session.runtime(gpu)
    current, pending = session.mig_modes(gpu)
    mig = "N/A" if current == "[N/A]" else pending + ("*" if pending != current else "")
    persistence = "On" if state.get("persistence") else "Off"
    ecc = "On" if current == "Enabled" else session.uncorrected_errors(gpu)
    compute = _SHORT_COMPUTE[str(state.get("compute_mode", "Default"))]
    session.say(f"| {gpu.index:>3}  {gpu.model.name:<31.31}{persistence:<3} |   {gpu.bus_id} Off |{ecc:>21} |")
    power = f"72W / {gpu.model.power_limit_w:>4}W"
    memory = f"0MiB / {gpu.model.memory_mib:>6}MiB"
    session.say(f"| N/A   33C    P0  {power:>22} |{memory:>23} |      0%{compute:>13} |")
    session.say(f"|{'':41}|{'':24}|{mig:>21} |")


def _mig_devices(session: Session, gpus: list[SimulatedGpu], edge: str) -> None:
    session.say(edge)
    session.say("| MIG devices:                                                                            |")
    session.say(_MIG_RULE)
    session.say("| GPU  GI  CI  MIG |                     Memory-Usage |        Vol|      Shared           |")
    session.say("|      ID  ID  Dev |                       BAR1-Usage | SM     Unc| CE ENC DEC OFA JPG    |")
    session.say("|                  |                                  |        ECC|                       |")
    session.say("|==================+==================================+===========+=======================|")
    found = [(gpu, *device) for gpu in gpus for device in mig_devices_of(session, gpu)]
    if not found:
        session.say("|  No MIG devices found                                                                   |")
        session.say(edge)
    number = dict.fromkeys((gpu.index for gpu, _, _ in found), 0)
    for gpu, of, each in found:
        # These rows were not recorded: they are in the manner of NVIDIA's user guide.
        memory = f"0MiB / {of.profile.memory_mib}MiB"
        ids = f"{gpu.index:>3}{of.id:>5}{each.id:>4}{number[gpu.index]:>4}"
        shared = f"{of.profile.ce:>3}{of.profile.enc:>4}{of.profile.dec:>5}{of.profile.ofa:>5}{of.profile.jpeg:>5}"
        session.say(f"|{ids}  |{memory:>33} |{of.profile.sm:>3}      0 |{shared} |")
        session.say(f"|{'':18}|{'0MiB / 0MiB':>33} |{'':11}|{'':23}|")
        session.say(_MIG_RULE)
        number[gpu.index] += 1


def _processes(session: Session, gpus: list[SimulatedGpu], edge: str) -> None:
    session.say(edge)
    session.say("| Processes:                                                                              |")
    # 580 has more room for the number of a process.
    more = 6 if session.branch >= 580 else 0
    session.say(f"|  GPU   GI   CI{'PID':>{11 + more}}   Type   {'Process name':<{42 - more}}GPU Memory |")
    session.say("|        ID   ID                                                               Usage      |")
    session.say(f"|{'=' * _WIDTH}|")
    found = [(gpu, process) for gpu in gpus for process in holders(session.machine, gpu)]
    if not found:
        session.say("|  No running processes found                                                             |")
    for gpu, process in found:
        row = f"{gpu.index:>5}   N/A  N/A{process.pid:>{10 + more}}      C   {process.program:<{43 - more}.{43 - more}}"
        session.say(f"|{row}{'N/A':>9} |")
    session.say(edge)
