"""Does nvidia-smi answer for every GPU on the bus?"""

from __future__ import annotations

from collections.abc import Iterator

from gpunode.base.comparison import compared
from gpunode.base.subject import Subject
from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass
from gpunode.node import Node


def gpus(node: Node) -> Iterator[Finding]:
    """Judge nvidia-smi: an answer for each GPU on the bus. With a reboot pending it cannot answer, which is no news."""
    causes = {
        "hangs": "nvidia-smi gives no answer: a GPU is wedged",
        "lost": "a GPU fell off the bus",
        "mismatch": "the library is not of the loaded module's version",
        "no driver": "the module is not loaded or does not drive this GPU",
    }
    remedies = {"hangs": "drain and reboot the node; look for Xid in dmesg", "lost": "drain and reboot the node"}
    on_bus, answering = len(node.pci.gpus), len(node.gpus.gpus)
    if node.gpus.status in ("hangs", "lost", "error"):
        yield Finding(
            "driver", FindingClass.ERROR, Subject.GPUS, node.gpus.message or node.gpus.status, f"{on_bus}",
            cause=causes.get(node.gpus.status, f"nvidia-smi exits {node.gpus.exit_code}"),
            remedy=remedies.get(node.gpus.status, "run nvidia-smi on the node"),
            disturbs=Disturbance.reboot if node.gpus.status in remedies else None,
        )  # fmt: skip
        return
    yield compared(
        "driver", Subject.GPUS,
        answering if node.gpus.status == "ok" else f"{answering} ({node.gpus.message or node.gpus.status})", on_bus,
        node.gpus.status == "ok" and answering == on_bus,
        cause=causes.get(node.gpus.status, "a GPU on the bus is not driven"),
    )  # fmt: skip
