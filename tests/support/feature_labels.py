"""GPUs of which feature discovery is to label a node, whole ones and divided ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from gpunode.components.mig.state import ComputeInstance, GpuInstance, Mig, MigGpu
from gpunode.kubernetes.device_plugin.decide_labels import expected_labels
from gpunode.settings.sharing import SharingSettings
from gpunode.system.gpu import Gpus
from tests.support.verify import GPU

MODEL = "NVIDIA H100 80GB HBM3"


def gpu(index: int, profiles: Sequence[str] | None, model: str = MODEL, current: str = "Disabled") -> MigGpu:
    """Return a GPU: a whole one without profiles, else of their MIG devices."""
    mode = current if profiles is None else "Enabled"
    there = tuple(
        GpuInstance(number, 0, each, 0, 1, (ComputeInstance(0, 0, each, 0, 1),))
        for number, each in enumerate(profiles or ())
    )
    return MigGpu(index, f"GPU-{index}", f"0000:0{index}:00.0", "2330", model, mode, mode, there)


def divided(*gpus: Sequence[str] | None, model: str = MODEL) -> Mig:
    """Return GPUs of one model by the profiles of each."""
    return Mig("ok", None, tuple(gpu(index, each, model) for index, each in enumerate(gpus)))


def by_smi(mig: Mig, **more: Any) -> Gpus:
    """Return the same GPUs as nvidia-smi lists them."""
    rows = (replace(GPU, index=each.index, uuid=each.uuid, name=each.name, **more) for each in mig.gpus)
    return Gpus("ok", 0, None, tuple(rows))


def expected(
    gpus: list[list[str] | None],
    sharing: SharingSettings,
    models: Sequence[str] = (),
    mode: str = "Disabled",
    smi: dict[str, Any] | None = None,
) -> Any:
    """Return the labels, for tests/cases; smi: what nvidia-smi says of each GPU besides."""
    names = models or [MODEL] * len(gpus)
    mig = Mig("ok", None, tuple(gpu(n, each, names[n], mode) for n, each in enumerate(gpus)))
    return expected_labels(sharing, by_smi(mig, **smi or {}), mig)
