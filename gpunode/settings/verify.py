"""Settings of the verdict at the end of a run."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from gpunode.settings.component import Component, matching

ImageName = Annotated[
    str,
    AfterValidator(
        matching(
            r"[A-Za-z0-9.-]+(:\d{1,5})?(/[A-Za-z0-9._~+-]+)*"
            r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}|@sha256:[0-9a-f]{64})",
            "an image with tag or digest, such as 'registry/cuda-sample:vectoradd-cuda12.5.0'",
        )
    ),
]


class VerifySettings(Component):
    """Say what the verdict looks at beside the node's own state."""

    summary: ClassVar[str] = "The verdict at the end of a run."

    smoke: bool = Field(
        False,
        description=(
            "Start containers on the node, one that asks for its GPUs and one that does not, look at what they "
            "see, also after `systemctl daemon-reload`, and remove them. No image is fetched. deploys/smoke.py does "
            "that alone."
        ),
    )
    vector_add: ImageName | None = Field(
        None,
        description=(
            "Image with tag of a pod that adds vectors on one GPU, such as "
            "`nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0`. Where `kubernetes.enabled`, one is started on each "
            "node at the end of a run, must end with `PASSED`, and is removed. Not given: none is started."
        ),
    )
