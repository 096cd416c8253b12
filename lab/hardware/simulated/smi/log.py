"""-q -x: the log as XML, with the fields that gpunode reads by other questions, too."""

from __future__ import annotations

import time
from xml.sax.saxutils import escape

from ..machine import SimulatedGpu
from .session import Session
from .table import mig_devices_of


def print_xml(session: Session, ids: str | None) -> None:
    """Print the log; Failure 15 with a lost GPU."""
    gpus = session.select(ids)
    session.require_reachable(gpus)
    session.say('<?xml version="1.0" ?>')
    session.say(f'<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v{13 if session.branch >= 580 else 12}.dtd">')
    session.say("<nvidia_smi_log>")
    _field(session, 1, "timestamp", time.strftime("%a %b %e %H:%M:%S %Y"))
    _field(session, 1, "driver_version", session.driver_version)
    _field(session, 1, "cuda_version", session.cuda_version)
    _field(session, 1, "attached_gpus", str(len(session.gpus)))
    for gpu in gpus:
        session.say(f'\t<gpu id="{gpu.bus_id}">')
        _gpu(session, gpu)
        session.say("\t</gpu>")
    session.say("</nvidia_smi_log>")


def _gpu(session: Session, gpu: SimulatedGpu) -> None:
    current, pending = (mode.strip("[]") for mode in session.mig_modes(gpu))
    runtime = session.runtime(gpu)
    _field(session, 2, "product_name", gpu.model.name)
    _field(session, 2, "persistence_mode", "Enabled" if runtime.get("persistence") else "Disabled")
    _fields(session, "mig_mode", {"current_mig": current, "pending_mig": pending})
    session.say("\t\t<mig_devices>")
    for number, (of, each) in enumerate(mig_devices_of(session, gpu)):
        ids = {"index": number, "gpu_instance_id": of.id, "compute_instance_id": each.id}
        session.say(
            f"\t\t\t<mig_device>{''.join(f'<{key}>{value}</{key}>' for key, value in ids.items())}</mig_device>"
        )
    session.say("\t\t</mig_devices>")
    _field(session, 2, "uuid", gpu.uuid)
    device = f"{gpu.model.device_id.upper()}10DE"
    _fields(session, "pci", {"pci_device_id": device, "pci_bus_id": gpu.bus_id})
    _fields(session, "fb_memory_usage", {"total": f"{gpu.model.memory_mib} MiB"})
    _field(session, 2, "compute_mode", str(runtime.get("compute_mode", "Default")))
    errors = session.uncorrected_errors(gpu).strip("[]")
    inner = "".join(
        f"<{span}><sram_uncorrectable_parity>0</sram_uncorrectable_parity>"
        f"<sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_uncorrectable>{errors}</dram_uncorrectable></{span}>"
        for span in ("volatile", "aggregate")
    )
    session.say(f"\t\t<ecc_errors>{inner}</ecc_errors>")
    if float(gpu.model.compute_capability) >= 8:
        flags = {name: "Yes" if session.has(name, gpu) else "No" for name in ("remap_pending", "remap_failure")}
        told = {"remapped_row_pending": flags["remap_pending"], "remapped_row_failure": flags["remap_failure"]}
        _fields(session, "remapped_rows", told)
    else:
        _field(session, 2, "remapped_rows", "N/A")


def _field(session: Session, depth: int, name: str, value: str) -> None:
    tabs = "\t" * depth
    session.say(f"{tabs}<{name}>{escape(value)}</{name}>")


def _fields(session: Session, name: str, values: dict[str, str]) -> None:
    session.say(f"\t\t<{name}>")
    for each, value in values.items():
        _field(session, 3, each, value)
    session.say(f"\t\t</{name}>")
