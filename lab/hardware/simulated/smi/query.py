"""--query-gpu, --query-compute-apps and --query-remapped-rows: comma-separated values."""

from __future__ import annotations

import time

from ..holders import holders
from ..machine import SimulatedGpu
from .session import Failure, Session

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    _Value = Callable[[Session, SimulatedGpu], str]


def _always(text: str) -> _Value:
    return lambda session, gpu: text


def _model(pick: Callable[[SimulatedGpu], object]) -> _Value:
    return lambda session, gpu: str(pick(gpu))


def _timestamp(session: Session, gpu: SimulatedGpu) -> str:
    now = time.time()
    return f"{time.strftime('%Y/%m/%d %H:%M:%S', time.localtime(now))}.{int(now * 1000) % 1000:03}"


def _rows(fault: str | None = None) -> _Value:
    """Return a value of the row remapper, which GPUs have from Ampere (compute capability 8.0) on."""

    def value(session: Session, gpu: SimulatedGpu) -> str:
        if float(gpu.model.compute_capability) < 8:
            return "[N/A]"
        return "1" if fault is not None and session.has(fault, gpu) else "0"

    return value


# Pairs of memory and graphics.
_CLOCKS: dict[str, Callable[[int], _Value]] = {
    "applications": lambda place: lambda session, gpu: session.application_clocks(gpu)[place],
    "default_applications": lambda place: lambda session, gpu: session.application_clocks(gpu, default=True)[place],
    "max": lambda place: lambda session, gpu: str(gpu.model.clocks[2 * place]),
    "current": lambda place: lambda session, gpu: str(session.clocks(gpu)[place]),
}
_FIELDS: dict[str, tuple[str, _Value]] = {
    "timestamp": ("", _timestamp),
    "index": ("", _model(lambda gpu: gpu.index)),
    "name": ("", _model(lambda gpu: gpu.model.name)),
    "uuid": ("", _model(lambda gpu: gpu.uuid)),
    "serial": ("", _model(lambda gpu: 1650000000000 + gpu.index)),
    "count": ("", lambda session, gpu: str(len(session.gpus))),
    "driver_version": ("", lambda session, gpu: session.driver_version),
    "vbios_version": ("", _model(lambda gpu: gpu.model.vbios)),
    "pci.bus_id": ("", _model(lambda gpu: gpu.bus_id)),
    "pci.domain": ("", _always("0x0000")),
    "pci.bus": ("", _model(lambda gpu: "0x" + gpu.bus_id[9:11])),
    "pci.device": ("", _always("0x00")),
    "pci.device_id": ("", _model(lambda gpu: f"0x{gpu.model.device_id.upper()}10DE")),
    "pci.sub_device_id": ("", _model(lambda gpu: f"0x{gpu.model.subsystem_id.upper()}10DE")),
    "compute_cap": ("", _model(lambda gpu: gpu.model.compute_capability)),
    "memory.total": ("MiB", _model(lambda gpu: gpu.model.memory_mib)),
    "memory.reserved": ("MiB", _always("0")),
    "memory.used": ("MiB", _always("0")),
    "memory.free": ("MiB", _model(lambda gpu: gpu.model.memory_mib)),
    "mig.mode.current": ("", lambda session, gpu: session.mig_modes(gpu)[0]),
    "mig.mode.pending": ("", lambda session, gpu: session.mig_modes(gpu)[1]),
    "compute_mode": ("", lambda session, gpu: str(session.runtime(gpu).get("compute_mode", "Default"))),
    "persistence_mode": ("", lambda session, gpu: _mode(session.runtime(gpu).get("persistence"))),
    "temperature.gpu": ("", _always("33")),
    "power.draw": ("W", _always("72.00")),
    "power.limit": ("W", lambda session, gpu: f"{session.power_limit(gpu):.2f}"),
    "power.default_limit": ("W", _model(lambda gpu: f"{gpu.model.power_limit_w}.00")),
    "power.min_limit": ("W", _model(lambda gpu: f"{gpu.model.power_least_w}.00")),
    "power.max_limit": ("W", _model(lambda gpu: f"{gpu.model.power_limit_w}.00")),
    **{
        f"clocks.{clocks}.{which}": ("MHz", value(place))
        for place, which in enumerate(("memory", "graphics"))
        for clocks, value in _CLOCKS.items()
    },
    "utilization.gpu": ("%", _always("0")),
    "utilization.memory": ("%", _always("0")),
    "pstate": ("", _always("P0")),
    "display_active": ("", _always("Disabled")),
    "gsp.mode.current": ("", _always("Enabled")),
    "retired_pages.pending": ("", _always("No")),
    "ecc.mode.current": ("", lambda session, gpu: _mode(session.ecc(gpu)[0])),
    "ecc.mode.pending": ("", lambda session, gpu: _mode(session.ecc(gpu)[1])),
    **{
        f"ecc.errors.{kind}.{span}.total": ("", value)
        for kind, value in (
            ("corrected", _always("0")),
            ("uncorrected", lambda session, gpu: session.uncorrected_errors(gpu)),
        )
        for span in ("volatile", "aggregate")
    },
}
_ROW_FIELDS: dict[str, tuple[str, _Value]] = {
    "gpu_name": ("", _model(lambda gpu: gpu.model.name)),
    "gpu_bus_id": ("", _model(lambda gpu: gpu.bus_id)),
    "gpu_uuid": ("", _model(lambda gpu: gpu.uuid)),
    "remapped_rows.correctable": ("", _rows()),
    "remapped_rows.uncorrectable": ("", _rows()),
    "remapped_rows.pending": ("", _rows("remap_pending")),
    "remapped_rows.failure": ("", _rows("remap_failure")),
}
_ALIASES = {
    "clocks.gr": "clocks.current.graphics",
    "clocks.mem": "clocks.current.memory",
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_serial": "serial",
}
_APP_FIELDS = {
    "timestamp": "",
    "gpu_name": "",
    "gpu_bus_id": "",
    "gpu_serial": "",
    "gpu_uuid": "",
    "pid": "",
    "process_name": "",
    "name": "",
    "used_gpu_memory": "MiB",
    "used_memory": "MiB",
}
# The title tells a field's own name, whatever it was called.
_APP_ALIASES = {"used_memory": "used_gpu_memory", "name": "process_name"}


def _mode(enabled: object) -> str:
    return "Enabled" if enabled else "Disabled"


def run(session: Session, command: str, options: dict[str, str]) -> None:
    """Print the query; Failure 2 for an unknown field or format, 6 without a GPU, 15 for a lost one."""
    if command == "help-query-gpu":
        session.say(help_text())
        return
    if "format" not in options:
        raise Failure("\"--format=\" switch is missing. Please run 'nvidia-smi -h' for help.\n\n", 2)
    modifiers = [item.strip() for item in options["format"].split(",")]
    if any(modifier not in ("csv", "noheader", "nounits") for modifier in modifiers):
        raise Failure("Format modifier is not recognized.\n", 2)
    if "csv" not in modifiers:
        raise Failure("Format modifier --format=csv is mandatory.\n", 2)
    names = [name.strip() for name in options[command].split(",")]
    fields = _ROW_FIELDS if command == "query-remapped-rows" else _FIELDS
    aliases = _ALIASES if command == "query-gpu" else {}
    for name in names:
        if name not in (_APP_FIELDS if command == "query-compute-apps" else {**fields, **aliases}):
            raise Failure(f'Field "{name}" is not a valid field to query.\n\n', 2)
    gpus = session.select(options.get("id"))
    session.require_reachable(gpus)
    if command == "query-compute-apps":
        _applications(session, gpus, names, modifiers)
        return
    names = [aliases.get(name, name) for name in names]
    if "noheader" not in modifiers:
        session.say(", ".join(_titled(name, fields[name][0]) for name in names))
    for gpu in gpus:
        session.say(", ".join(_cell(session, gpu, *fields[name], "nounits" in modifiers) for name in names))


def _applications(session: Session, gpus: list[SimulatedGpu], names: list[str], modifiers: list[str]) -> None:
    """Print the processes that hold a GPU; what memory they use is not simulated."""
    if "noheader" not in modifiers:
        session.say(", ".join(_titled(_APP_ALIASES.get(name, name), _APP_FIELDS[name]) for name in names))
    for gpu in gpus:
        known = {name: value(session, gpu) for name, (_, value) in {**_ROW_FIELDS, **_FIELDS}.items()}
        for process in holders(session.machine, gpu):
            own = {"pid": str(process.pid), "process_name": process.program, "name": process.program}
            row = {**known, "gpu_serial": known["serial"], "used_gpu_memory": "[N/A]", "used_memory": "[N/A]", **own}
            session.say(", ".join(row[name] for name in names))


def _titled(name: str, unit: str) -> str:
    return f"{name} [{unit}]" if unit else name


def _cell(session: Session, gpu: SimulatedGpu, unit: str, value: _Value, bare: bool) -> str:
    text = value(session, gpu)
    return text if bare or not unit or text.startswith("[") else f"{text} {unit}"


def help_text() -> str:
    """Return what --help-query-gpu prints here: the names alone."""
    names = "".join(f'\n"{name}"\n' for name in _FIELDS)
    return f'List of valid properties to query for the switch "--query-gpu":\n{names}'
