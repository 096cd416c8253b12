"""Settings of the NVIDIA driver and of the CUDA toolkit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from gpunode.base import tables, versions
from gpunode.settings.component import (
    Component,
    CudaRelease,
    CudaVersion,
    DriverBranch,
    DriverVersion,
    Sha256,
    holding_only,
    is_address,
    matching,
)

DEFAULT_BRANCH = "580"

_Parameter = Annotated[
    str, matching(r"NVreg_[A-Za-z0-9_]{1,60}", "a parameter of the module such as 'NVreg_EnableMSI'")
]
_Value = Annotated[str, matching(r"[A-Za-z0-9_./:;=,-]{1,200}", "a value in quotes, such as '1', without spaces")]
# Each becomes a line of a file that travels as one argument of a command (128 KiB).
ModuleParameters = Annotated[dict[_Parameter, _Value], Field(max_length=64)]

# It becomes a part of paths on the node and in config.toml; '..' would make two names of one folder.
DriverRoot = Annotated[
    str,
    matching(
        r"/|(/(?!\.\.?(/|$))[A-Za-z0-9._+-]+)+",
        "an absolute path such as '/run/nvidia/driver', without spaces, '..', or a slash at its end",
    ),
]
RunfileUrl = Annotated[str, is_address, holding_only("version", "architecture")]


class DriverSettings(Component):
    """The NVIDIA driver: kernel module, user-space libraries, nvidia-smi."""

    enabled: bool = True
    """false: gpunode leaves the driver alone, and does not judge it either."""
    source: Literal["cuda-repository", "distribution", "runfile", "present", "absent"] = "cuda-repository"
    """Where it comes from: NVIDIA's CUDA repository; the `distribution`'s own archive (Debian: DKMS packages of contrib
    and non-free; on Debian 12 the open module is refused where the security archive has the rest of the driver at a
    newer version; Ubuntu: headless server packages and modules signed by Canonical; Arch: modules for linux and
    linux-lts, whichever are installed, DKMS where another kernel boots next; the default there, since NVIDIA
    has no repository for it), by the mirror that the node uses; NVIDIA's own installer (`runfile`:
    NVIDIA-Linux-x86_64-VERSION.run); `present`: already there, only verified; or `absent`: whatever driver is there
    is removed, with all that gpunode set up for it (docs/how-to/remove-the-driver.md)."""
    root: DriverRoot = "/"
    """Where the driver's files stand, with `source: present`: `/run/nvidia/driver` of a driver container (the GPU
    Operator's), or a site's own folder (docs/how-to/driver-elsewhere.md). gpunode reads nvidia-smi and its libraries
    there, and tells the container toolkit (config.toml: nvidia-container-cli.root), CDI, the device plugin and MPS."""
    flavour: Literal["auto", "open", "proprietary"] = "auto"
    """Kernel module; `auto` takes what the GPU generation needs, and open where both would do and the driver comes with
    it: NVIDIA's repositories for Debian and Ubuntu have it from branch 560 on."""
    branch: DriverBranch | None = None
    """Driver branch; its newest version in the repository is installed. Not given: the branch of `version`, else 580,
    which NVIDIA's repositories for Debian 13 and Ubuntu 26.04 do not have (there: 595), or what the archive has, where
    a `distribution` has one branch (Debian 12: 535, Debian 13: 550; Arch: the installed driver's, else that of
    pacman's lists); with `source: present` and no `version`, any."""
    version: DriverVersion | None = None
    """Exact upstream version, such as `580.178.04`; installed, held, and verified. Required with `source: runfile`."""
    runfile_url: RunfileUrl = tables.driver_runfile().url
    """With `source: runfile`: where the installer is; {version} and {architecture} (x86_64 or aarch64) are filled in. A
    mirror, say."""
    runfile_sha256: Sha256 | None = None
    """With `source: runfile`, where it is required: the installer's SHA-256, checked before each time that it is run.
    Every version and every architecture has its own."""
    dkms: bool = True
    """With `source: runfile`: register the module with DKMS, which builds it for each new kernel; with `False` a new
    kernel has no driver until the next run."""
    migrate: bool = False
    """Whether a driver of packages may be replaced by the runfile's, and the other way round; the two are never mixed.
    What was there is removed first, and put back if the other one does not work."""
    kernel_headers: Literal["require", "install"] = "require"
    """Headers of the kernels for which the module is built: `require` refuses a node whose next kernel lacks them,
    `install` installs them first. With `source: runfile` likewise gcc, make and dkms."""
    without_gpu: Literal["refuse", "install"] = "refuse"
    """A node without an NVIDIA GPU on its PCI bus: `refuse` it before anything is touched, or `install` the driver all
    the same (an image for GPU machines, say); the verdict is then *no GPU*, which is no success."""
    allow_branch_change: bool = False
    """Whether a node that has a driver of one branch may be moved to another one."""
    hold: bool = True
    """Keep the driver's packages at what is installed: apt-mark hold, apt preferences, and unattended-upgrades told to
    keep off; dnf's versionlock; pacman's IgnorePkg. All of that is removed again with `False`. Where gpunode installs
    packages: no package manager moves a runfile's driver."""
    hold_kernel: bool = False
    """With `hold`: hold the packages that bring new kernels, and their headers, as well. Always so where modules come
    built per kernel (Ubuntu's archive, Arch's linux and linux-lts): a new kernel would come without one."""
    rollback: Literal["required", "best-effort"] = "required"
    """Before the driver is changed or removed its installed packages (or its .run file) are saved on the node:
    `required` changes nothing where one of them is not to be had any more, `best-effort` goes on without a way back."""
    persistenced: bool = True
    """Run nvidia-persistenced where its unit is installed; `False` leaves the unit as it is. Ubuntu's own packages run
    it without persistence mode."""
    peermem: bool = False
    """`True`: load nvidia_peermem, by which RDMA adapters reach the GPUs' memory (GPUDirect RDMA), now and at boot. It
    needs MOFED or DOCA-OFED, whose ib_core has an interface for it, when the driver's modules are built; a node without
    an RDMA stack is found so. With `False` it is loaded no more at boot, and what is loaded stays."""
    module_parameters: ModuleParameters = Field(default_factory=dict)
    """Parameters of the kernel module, such as `{'NVreg_EnableGpuFirmware': '0'}`; written to /etc/modprobe.d, and in
    effect when the module is loaded next (a reboot, where it is loaded)."""

    @model_validator(mode="before")
    @classmethod
    def _derive_branch(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("branch") is not None:
            return values
        version = values.get("version")
        if version is None:
            # Which branch a distribution has is known when the node is.
            return values
        # A version that is not one is refused by its own field; here it must not hide that message behind another.
        branch = version.split(".")[0] if isinstance(version, str) else ""
        return {**values, "branch": branch if len(branch) == 3 and branch.isascii() and branch.isdecimal() else None}

    @property
    def installs(self) -> bool:
        """Say whether gpunode installs the driver."""
        return self.enabled and self.source not in ("present", "absent")

    @property
    def is_elsewhere(self) -> bool:
        """Say whether the driver stands below a root of its own, and is brought and loaded by whoever made that."""
        return self.enabled and self.root != "/"

    @property
    def removes(self) -> bool:
        """Say whether gpunode takes the driver away."""
        return self.enabled and self.source == "absent"

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield a version outside of its branch, and what a runfile needs to be told."""
        if self.version and self.branch and not versions.in_branch(self.version, self.branch):
            yield "version", f"is not in driver.branch {self.branch!r}; leave one of the two out"
        if self.is_elsewhere:
            yield from self._elsewhere()
        if self.enabled and self.source == "runfile":
            if self.version is None:
                yield "version", "is needed with driver.source 'runfile': each version is a file of its own"
            if self.runfile_sha256 is None:
                yield "runfile_sha256", "is needed with driver.source 'runfile': what NVIDIA or `sha256sum` says of it"

    def _elsewhere(self) -> Iterator[tuple[str, str]]:
        """Yield what gpunode does for a driver of the node's own alone."""
        if self.source != "present":
            message = f"is below the node's own root, and driver.source {self.source!r} has gpunode bring the driver"
            yield "root", f"{message} at '/'; set driver.source = 'present', or leave driver.root out"
        whose = f"of the driver at driver.root {self.root!r} is up to whoever brings it (a driver container, say)"
        if self.module_parameters:
            yield "module_parameters", f"{whose}; leave it out"
        if self.peermem:
            yield "peermem", f"{whose}; leave it out"


def root_elsewhere(others: Mapping[str, Component]) -> str | None:
    """Return the root of the driver that stands beside some settings; None where it is at /, or nothing is said."""
    driver = others.get("driver")
    return driver.root if isinstance(driver, DriverSettings) and driver.is_elsewhere else None


CudaRunfileUrl = Annotated[str, is_address, holding_only("release", "driver", "platform")]


class CudaSettings(Component):
    """The CUDA toolkit (nvcc and libraries) under /usr/local/cuda."""

    enabled: bool = True
    """false: no CUDA toolkit is installed; containers bring their own."""
    source: Literal["cuda-repository", "distribution", "runfile"] = "cuda-repository"
    """Where it comes from: NVIDIA's CUDA repository; the `distribution`'s own (Arch's `cuda` in /opt/cuda, and the
    default there); or NVIDIA's own installer (a .run file)."""
    version: CudaVersion = "12.9"
    """Toolkit as major.minor, in quotes; its newest patch release in the repository is installed. Not given: 12.9, and
    from NVIDIA's repositories that are newer than that 13.2 (Debian 13) or 13.3 (Ubuntu 26.04, RHEL 10 and its kin).
    One that is newer than gpunode's table is installed with a caution."""
    release: CudaRelease | None = None
    """With `source: runfile`, where it is required: the exact release of `version`, such as `12.9.1`."""
    runfile_url: CudaRunfileUrl = tables.cuda_runfile().url
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
        known = ", ".join(item for item in tables.cuda().toolkit_driver if versions.in_branch(item, self.version))
        if self.release is not None and not versions.in_branch(self.release, self.version):
            yield "release", f"is not of cuda.version {self.version!r}"
        elif self.release not in (None, *tables.cuda().toolkit_driver) and self._names_driver(self.release):
            message = "is not in gpunode/data/cuda.yaml, and its file is named after the driver that the table gives"
            yield "release", f"{message}; take one of {known}, or set a cuda.runfile_url without {{driver}}"
        if not self.enabled or self.source != "runfile":
            return
        if self.release is None:
            listed = f": {known}" if known else ""
            yield "release", f"is needed with cuda.source 'runfile': each release is a file of its own{listed}"
        if self.runfile_sha256 is None:
            yield "runfile_sha256", "is needed with cuda.source 'runfile': what NVIDIA or `sha256sum` says of it"

    def _names_driver(self, release: str | None) -> bool:
        """Return whether the installer of a release is named after the driver that it brings."""
        brings = release is not None and not versions.at_least(release, tables.cuda_runfile().without_driver)
        return brings and "{driver}" in self.runfile_url
