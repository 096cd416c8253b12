"""The XML that `nvidia-smi -q -x` prints, as far as gpunode reads the same by other questions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

from gpunode.base.reading import ParseError
from gpunode.system.smi import address

_ABSENT = ("N/A", "[N/A]", "")
_FLAGS = {"Yes": True, "No": False}


@dataclass(frozen=True)
class LoggedGpu:
    """Hold one GPU, in the words in which gpunode's readings have the same: see gpunode/system.

    `instances` are (GPU instance's id, compute instance's id) of its MIG devices.
    """

    uuid: str
    name: str
    pci_address: str
    device_id: str
    memory_mib: int | None
    mig_current: str
    mig_pending: str
    compute_mode: str
    persistence_mode: str
    uncorrected_errors: int | None
    uncorrected_errors_ever: int | None
    remap_pending: bool | None
    remap_failed: bool | None
    instances: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Log:
    """Hold the versions of driver and CUDA, and the GPUs in nvidia-smi's order."""

    driver_version: str
    cuda_version: str
    gpus: tuple[LoggedGpu, ...]


def parse_log(text: str) -> Log:
    """Parse the XML; raise ParseError."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ParseError(f"nvidia-smi -q -x is no XML: {error}") from None
    return Log(_text(root, "driver_version"), _text(root, "cuda_version"), tuple(map(_gpu, root.findall("gpu"))))


def _gpu(gpu: ElementTree.Element) -> LoggedGpu:
    number, _, unit = _text(gpu, "fb_memory_usage/total").partition(" ")
    return LoggedGpu(
        uuid=_text(gpu, "uuid"),
        name=_text(gpu, "product_name"),
        pci_address=address(_text(gpu, "pci/pci_bus_id") or gpu.get("id", "")),
        device_id=_text(gpu, "pci/pci_device_id").removeprefix("0x")[:4].upper(),
        memory_mib=int(number) if number.isdecimal() and unit == "MiB" else None,
        mig_current=_text(gpu, "mig_mode/current_mig"),
        mig_pending=_text(gpu, "mig_mode/pending_mig"),
        compute_mode=_text(gpu, "compute_mode"),
        persistence_mode=_text(gpu, "persistence_mode"),
        uncorrected_errors=_uncorrectable(gpu.find("ecc_errors/volatile")),
        uncorrected_errors_ever=_uncorrectable(gpu.find("ecc_errors/aggregate")),
        remap_pending=_FLAGS.get(_text(gpu, "remapped_rows/remapped_row_pending")),
        remap_failed=_FLAGS.get(_text(gpu, "remapped_rows/remapped_row_failure")),
        instances=tuple(sorted(_instances(gpu))),
    )


def _instances(gpu: ElementTree.Element) -> Iterator[tuple[int, int]]:
    for device in gpu.findall("mig_devices/mig_device"):
        yield int(_text(device, "gpu_instance_id")), int(_text(device, "compute_instance_id"))


def _uncorrectable(errors: ElementTree.Element | None) -> int | None:
    """Return the sum of what is uncorrectable: of SRAM by parity and by SECDED (or as one), and of DRAM."""
    cells = [] if errors is None else [(each.text or "").strip() for each in errors if "uncorrectable" in each.tag]
    return sum(map(int, cells)) if cells and all(cell.isdecimal() for cell in cells) else None


def _text(element: ElementTree.Element, path: str) -> str:
    text = (element.findtext(path) or "").strip()
    return "N/A" if text in _ABSENT else text
