"""What is to be done about CUDA: every comparison with what is desired, and the steps that remove differences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from gpunode.base import versions
from gpunode.base.comparison import RUN, by_hand, finding_message
from gpunode.base.decision import Decision, Step, bad, target_digest
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.components.cuda.state import ARCH_HOME, CudaToolkits
from gpunode.settings import Settings

LINK = "/usr/local/cuda"

_LOST = "the toolkit is there, and its compiler is gone or does not run"
_declared = partial(finding_message, "cuda")
TOOLKIT = _declared(
    "toolkit",
    "The CUDA toolkit that the settings ask for is not installed.",
    "There is none, or another version. Programs that were built for the desired version may not find their libraries.",
)
RELEASE = _declared(
    "release",
    "The CUDA toolkit is of another release than the settings ask for.",
    "It is of the right version, such as 12.9, and of another release of it, such as 12.9.0 in place of 12.9.1.",
)
NVCC = _declared(
    "nvcc",
    "CUDA's compiler nvcc does not run.",
    "The toolkit is installed, and its compiler is gone or does not start: a file was removed or overwritten.",
    causes=(_LOST,),
)
PROFILE = _declared(
    "profile script",
    "The script that puts CUDA on the PATH is not what the settings ask for.",
    "Login shells read the script from /etc/profile.d. Without it they do not find nvcc.",
)
DEFAULT_VERSION = _declared(
    "/usr/local/cuda",
    "The link /usr/local/cuda does not point to the CUDA version that the settings ask for.",
    "Several versions may be installed at once; this link decides which one programs and builds use by default.",
    name="default-version",
)


@dataclass(frozen=True)
class Desired:
    """Hold the toolkit that a node is to have.

    version: major.minor; source: as `cuda.source` says
    release: major.minor.patch of a .run file; profile: whether a script puts it on the PATH
    sha256: of the .run file
    """

    version: str
    source: str = "cuda-repository"
    release: str | None = None
    profile: bool = True
    sha256: str = ""

    @property
    def home(self) -> str:
        """Return the toolkit's folder."""
        return ARCH_HOME if self.source == "distribution" else f"{LINK}-{self.version}"


@dataclass(frozen=True)
class Install:
    """Hold the release of a toolkit that a .run file installs, and the digest of what that is to reach."""

    release: str
    target: str = ""


def desired_of(settings: Settings) -> Desired:
    """Return what the settings desire, which are resolved for the node's operating system."""
    desired = settings.cuda
    sha256 = desired.runfile_sha256 or ""
    return Desired(desired.version, desired.source, desired.release, desired.profile, sha256)


def decide(desired: Desired, actual: CudaToolkits) -> Decision[Install | str]:
    """Return what is to be done about the toolkit, the link and compiler that programs take, and the profile script."""
    present, version, nvcc = _present(desired, actual), desired.version, actual.nvcc_version
    now = version in present
    toolkit = [TOOLKIT.compared(", ".join(present) or None, version, now)]
    if desired.source == "runfile" and now:
        release = dict(actual.releases).get(version)
        if release is None:
            # To install it again would replace a toolkit that may be the right one.
            cause = f"{LINK}-{version}/version.json tells no release, and gpunode did not record one"
            remedy = f"remove it (`{LINK}-{version}/bin/cuda-uninstaller`), and {RUN}"
            toolkit.append(RELEASE.not_known(desired.release, cause, remedy))
        else:
            toolkit.append(RELEASE.compared(release, desired.release, release == desired.release))
    link = _link(desired, actual)
    works = nvcc is not None and versions.in_branch(nvcc, version)
    incomplete = now and not bad(link) and not works and desired.source != "runfile"
    compiler = NVCC.compared(nvcc, version, works, cause=_LOST if incomplete else None)
    script = PROFILE.compared("yes" if actual.profile else None, "yes", actual.profile)
    findings = (*toolkit, link, compiler, *((script,) if desired.profile else ()))
    if refusal := _refusal(desired, actual):
        return Decision(tuple(by_hand(item, refusal) for item in findings), (), refusal)
    steps: list[Step[Install | str]] = []
    # Which compiler answers is a matter of the link, unless the link is right.
    missing = bad(*toolkit, *(() if bad(link) else (compiler,)))
    # The first toolkit brings the link.
    brings = bad(link, compiler) if missing and actual.default_path is None else ()
    if missing:
        by_runfile = desired.source == "runfile"
        how = f" by its runfile ({desired.release})" if by_runfile else ""
        change = Install(desired.release or "", target_digest(desired.sha256)) if by_runfile else None
        action = f"{'reinstall the packages of' if incomplete else 'install'} CUDA toolkit {version}{how}"
        steps.append(Step(action, (*missing, *brings), Disruption.nothing, change=change))
    if bad(link) and not brings:
        steps.append(_to_link(desired, bad(link, compiler)))
    if desired.profile and bad(script):
        steps.append(Step("write the profile script", (script,), Disruption.nothing))
    return Decision(findings, tuple(steps))


def lost(desired: Desired, actual: CudaToolkits) -> tuple[str, ...]:
    """Return which files of installed packages a run brings back, as patterns; none where the toolkit works."""
    due = (item.code for step in decide(desired, actual).steps if step.change is None for item in step.settles)
    is_due = not {TOOLKIT.code, NVCC.code}.isdisjoint(due)
    return (f"{desired.home}/bin/nvcc", f"{desired.home}/*") if is_due else ()


def decide_link(desired: Desired, actual: CudaToolkits) -> Decision[Install | str]:
    """Return what is to be done about /usr/local/cuda alone, by which its operation goes behind the toolkit's."""
    link, refusal = _link(desired, actual), _refusal(desired, actual)
    return Decision((link,), (_to_link(desired, (link,)),) if bad(link) and refusal is None else (), refusal)


def _present(desired: Desired, actual: CudaToolkits) -> tuple[str, ...]:
    """Return the toolkits that are there, but for one of the desired version that another source brought."""
    version = desired.version
    if desired.source == "distribution":
        own = actual.arch_version == version
    else:
        own = (version in actual.by_runfile) == (desired.source == "runfile")
    return tuple(each for each in actual.versions if own or each != version)


def _link(desired: Desired, actual: CudaToolkits) -> Finding:
    default = actual.default_version
    return DEFAULT_VERSION.compared(default, desired.version, default == desired.version)


def _to_link(desired: Desired, settles: tuple[Finding, ...]) -> Step[Install | str]:
    return Step(f"point {LINK} at {desired.version}", settles, Disruption.nothing, change=desired.home)


def _refusal(desired: Desired, actual: CudaToolkits) -> str | None:
    """Return why a run neither installs nor links; what an interrupted one left is undone first, and judged then."""
    if actual.default_path == LINK:
        return f"{LINK} is no link, and is left alone. Remedy: move it away, and {RUN}"
    version, folder = desired.version, f"{LINK}-{desired.version}"
    if desired.source == "cuda-repository" and version in actual.by_runfile and version != actual.interrupted:
        return (
            f"{folder} was installed by a runfile, and packages would be mixed with it. Remedy: remove it "
            f"(`{folder}/bin/cuda-uninstaller`), or set cuda.source = 'runfile'"
        )
    return None
