"""Settings of the CUDA toolkit."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gpunode import tables
from gpunode.settings.component import Component, CudaVersion


def _known(version: str) -> str:
    known = tables.cuda().versions
    if version not in known:
        message = "is no CUDA release whose driver gpunode/data/cuda.yaml knows"
        raise PydanticCustomError("not_listed", message, {"allowed": known})
    return version


class CudaSettings(Component):
    """Say which CUDA toolkit a node shall have."""

    summary: ClassVar[str] = "The CUDA toolkit (nvcc and libraries) under /usr/local/cuda."

    enabled: bool = Field(True, description="false: no CUDA toolkit is installed; containers bring their own.")
    version: Annotated[CudaVersion, AfterValidator(_known)] = Field(
        "12.9",
        description="Toolkit as major.minor, in quotes; its newest patch release in the repository is installed.",
    )
    profile: bool = Field(True, description="Put a script into /etc/profile.d that exports CUDA_PATH and extends PATH.")
    compatibility: Literal["minor", "full"] = Field(
        "minor",
        description=(
            "Which driver is enough: `minor` the oldest one of CUDA's minor-version compatibility, "
            "`full` the one that ships with the toolkit, which all of its features need."
        ),
    )
