"""Settings of the CUDA toolkit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from gpunode.base import tables, versions
from gpunode.settings.component import Component, CudaRelease, CudaVersion, Sha256, holding_only, is_address

_UNKNOWN = "is no CUDA release whose driver gpunode/data/cuda.yaml knows"


def _known(version: str) -> str:
    table = tables.cuda()
    # A repository may have what came after the table; preflight says what is not known of it.
    if version not in table.versions and not table.is_newer(version):
        raise PydanticCustomError("not_listed", _UNKNOWN, {"allowed": table.versions})
    return version


def _released(release: str) -> str:
    if release not in (known := tuple(tables.cuda().toolkit_driver)):
        raise PydanticCustomError("not_listed", _UNKNOWN, {"allowed": known})
    return release


RunfileUrl = Annotated[str, is_address, holding_only("release", "driver", "platform")]


class CudaSettings(Component):
    """The CUDA toolkit (nvcc and libraries) under /usr/local/cuda."""

    enabled: bool = True
    """false: no CUDA toolkit is installed; containers bring their own."""
    source: Literal["cuda-repository", "distribution", "runfile"] = "cuda-repository"
    """Where it comes from: NVIDIA's CUDA repository; the `distribution`'s own (Arch's `cuda` in /opt/cuda, and the
    default there); or NVIDIA's own installer (a .run file)."""
    version: Annotated[CudaVersion, AfterValidator(_known)] = "12.9"
    """Toolkit as major.minor, in quotes; its newest patch release in the repository is installed. Not given: 12.9, and
    from NVIDIA's repositories that are newer than that 13.2 (Debian 13) or 13.3 (Ubuntu 26.04, RHEL 10 and its kin).
    One that is newer than gpunode's table is installed with a caution, not by a runfile."""
    release: Annotated[CudaRelease, AfterValidator(_released)] | None = None
    """With `source: runfile`, where it is required: the exact release of `version`, such as `12.9.1`."""
    runfile_url: RunfileUrl = tables.cuda_runfile().url
    """With `source: runfile`: where the installer is; {release}, {driver} (the one that ships with the release; from
    13.4 on the name has none, and _{driver} is left out) and {platform} (linux or linux_sbsa) are filled in. A mirror,
    say."""
    runfile_sha256: Sha256 | None = None
    """With `source: runfile`, where it is required: the installer's SHA-256, checked before it is run. Every release
    and every architecture has its own."""
    profile: bool = True
    """Put a script into /etc/profile.d that exports CUDA_PATH, and puts CUDA and the toolkit's Nsight on PATH."""
    compatibility: Literal["minor", "full"] = "minor"
    """Which driver is enough: `minor` the oldest one of CUDA's minor-version compatibility, `full` the one that ships
    with the toolkit, which all of its features need."""

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a release of another version, and what a runfile needs to be told."""
        if self.release is not None and not versions.in_branch(self.release, self.version):
            yield "release", f"is not of cuda.version {self.version!r}"
        if not self.enabled or self.source != "runfile":
            return
        if tables.cuda().is_newer(self.version):
            message = (
                "is newer than all that gpunode/data/cuda.yaml knows, and a .run file bears its driver's version in "
                "its name, which the table gives; set cuda.source = 'cuda-repository', or use a newer gpunode"
            )
            yield "version", message
            return
        if self.release is None:
            known = ", ".join(item for item in tables.cuda().toolkit_driver if versions.in_branch(item, self.version))
            yield "release", f"is needed with cuda.source 'runfile': each release is a file of its own: {known}"
        if self.runfile_sha256 is None:
            yield "runfile_sha256", "is needed with cuda.source 'runfile': what NVIDIA or `sha256sum` says of it"
