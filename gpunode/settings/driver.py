"""Settings of the NVIDIA driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from gpunode import versions
from gpunode.settings.component import Component, DriverBranch, DriverVersion

DEFAULT_BRANCH = "580"


class DriverSettings(Component):
    """Say which NVIDIA driver a node shall have."""

    summary: ClassVar[str] = "The NVIDIA driver: kernel module, user-space libraries, nvidia-smi."

    enabled: bool = Field(True, description="false: gpunode leaves the driver alone, and does not judge it either.")
    source: Literal["cuda-repository", "present"] = Field(
        "cuda-repository",
        description="Where it comes from: NVIDIA's CUDA repository, or `present`: already there, only verified.",
    )
    flavour: Literal["auto", "open", "proprietary"] = Field(
        "auto",
        description="Kernel module; `auto` takes what the GPU generation needs, and open where both would do.",
    )
    branch: DriverBranch | None = Field(
        None,
        description=(
            f"Driver branch; its newest version in the repository is installed. Not given: the branch of `version`, "
            f"else {DEFAULT_BRANCH}; with `source: present` and no `version`, any."
        ),
    )
    version: DriverVersion | None = Field(
        None, description="Exact upstream version, such as `580.95.05`; installed, held, and verified."
    )

    @model_validator(mode="before")
    @classmethod
    def _derive_branch(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("branch") is not None:
            return values
        version = values.get("version")
        if version is None:
            return values if values.get("source") == "present" else {**values, "branch": DEFAULT_BRANCH}
        # A version that is not one is refused by its own field; here it must not hide that message behind another.
        branch = version.split(".")[0] if isinstance(version, str) else ""
        return {**values, "branch": branch if len(branch) == 3 and branch.isascii() and branch.isdigit() else None}

    def contradictions(self) -> list[tuple[str, str]]:
        """Return a version outside of its branch."""
        if self.version and self.branch and not versions.in_branch(self.version, self.branch):
            return [("version", f"is not in driver.branch {self.branch!r}; leave one of the two out")]
        return []
