"""Are gpunode's own files as the last whole run left them, those too that have no effect before a boot?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version

from gpunode.applied import OWNED, PATH, OwnFile, PresentFile
from gpunode.disturbance import Disturbance
from gpunode.findings import Finding, FindingClass
from gpunode.node import Node
from gpunode.settings import Settings
from gpunode.verify.comparison import compared
from gpunode.verify.subject import Subject

_AS_LEFT = "as the last run left it"
_MODE = "644"
_CHANGED = "it was changed after the last run"
_OTHER_RUN = (
    "the last whole run was by other settings or by another gpunode; changed since, by hand or by a run that did not "
    "end"
)
_REPOSITORY = (Subject.KEY, Subject.KEYRING)


@dataclass(frozen=True)
class _Place:
    """Say whose files are at a place, by how their paths begin.

    told: subjects of the component whose finding tells already of such a file; disturbs: what writing it anew costs
    """

    begins: str
    component: str
    told: tuple[Subject, ...] = ()
    disturbs: Disturbance = Disturbance.nothing


# The first that fits counts.
_PLACES = (
    _Place("/etc/modprobe.d/gpunode-nouveau.", "driver", (Subject.NOUVEAU, Subject.INITRAMFS)),
    _Place("/etc/modprobe.d/", "driver"),
    _Place("/etc/dracut.conf.d/", "driver", (Subject.INITRAMFS,)),
    _Place("/etc/modules-load.d/gpunode-nvlink.", "driver", (Subject.UMAD,)),
    _Place("/etc/apt/preferences.d/gpunode-driver", "driver", (Subject.HELD,)),
    _Place("/etc/apt/apt.conf.d/52gpunode-driver", "driver", (Subject.HELD,)),
    _Place("/etc/pacman.d/gpunode.", "driver", (Subject.HELD,)),
    _Place("/etc/apt/sources.list.d/gpunode-distribution.", "driver"),
    _Place("/etc/apt/sources.list.d/", "repositories", _REPOSITORY),
    _Place("/etc/yum.repos.d/", "repositories", _REPOSITORY),
    _Place("/etc/zypp/repos.d/", "repositories", _REPOSITORY),
    _Place("/etc/apt/apt.conf.d/", "repositories"),
    _Place("/etc/profile.d/gpunode-mps.", "mps", (Subject.MPS_ENVIRONMENT,)),
    _Place("/etc/environment.d/", "mps", (Subject.MPS_ENVIRONMENT,)),
    _Place("/etc/profile.d/", "cuda", (Subject.CUDA_PROFILE,)),
    _Place("/etc/apt/preferences.d/gpunode-toolkit", "toolkit", (Subject.TOOLKIT_HELD,)),
    _Place("/etc/udev/rules.d/", "toolkit", (Subject.DEVICE_LINKS,)),
    _Place("/etc/modules-load.d/", "containerd"),
    _Place("/etc/sysctl.d/", "containerd"),
    _Place("/etc/systemd/system/containerd.service.d/", "containerd", disturbs=Disturbance.restart),
    _Place("/etc/systemd/system/gpunode-containerd-", "containerd"),
    _Place(
        "/etc/systemd/system/nvidia-mps", "mps", (Subject.SERVICE, Subject.AT_BOOT, Subject.RUNNING_CONFIGURATION),
        Disturbance.restart,
    ),
    _Place("/etc/nvidia-mps/", "mps", (Subject.SERVICE, Subject.MPS_SETTING)),
    _Place("/usr/local/lib/gpunode/nvidia-mps", "mps", (Subject.SERVICE,)),
    _Place("/etc/systemd/system/gpunode-mig-", "mig", (Subject.SERVICE, Subject.AT_BOOT)),
    _Place("/usr/local/lib/gpunode/mig-", "mig", (Subject.SERVICE,)),
)  # fmt: skip
_ELSEWHERE = _Place("/", "node")


def own_files(
    settings: Settings, node: Node, told: Iterable[Finding], kept: Mapping[str, OwnFile] | None = None
) -> Iterator[Finding]:
    """Judge each file of the record; nothing on a node without one, and of what another finding tells of already.

    settings: as they are asked, for their digest; told: the other findings
    kept: path -> file of what the run under way keeps, which counts in place of the record
    """
    applied, bad = node.applied, [item for item in told if item.finding_class is not FindingClass.OK]
    present = dict(applied.present)
    # In a run the record is written after the verdict.
    recorded = {PATH: OwnFile(None, _MODE)} if kept is None and PATH in present else {}
    for path, file in (*recorded.items(), *applied.files):
        wanted = file if kept is None else kept.get(path)
        if wanted is None:
            continue  # This run wants no such file.
        place = next((each for each in _PLACES if path.startswith(each.begins)), _ELSEWHERE)
        garbage = path == PATH and not applied.readable
        found, asked = ("unreadable", _AS_LEFT) if garbage else _sides(wanted, present.get(path))
        if found is None or not any(_tells(place, path, item) for item in bad):
            # Seldom asked, and not for nothing.
            last = (applied.settings, applied.gpunode)
            same = found is None or not applied.readable or last == (settings.digest(), version("gpunode"))
            yield compared(
                place.component, Subject.FILE.of(path), found or asked, asked, found is None,
                cause=_CHANGED if same else _OTHER_RUN, disturbs=place.disturbs,
            )  # fmt: skip


def _sides(wanted: OwnFile, present: PresentFile | None) -> tuple[str | None, str]:
    """Return how a file is where that is not as wanted, and what is wanted."""
    if present is None:
        return "none", _AS_LEFT
    if wanted.sha256 is not None and present.sha256 != wanted.sha256:
        return "unreadable" if present.sha256 is None else "another text", _AS_LEFT
    if wanted.mode is not None and present.permissions != f"{wanted.mode} {OWNED}":
        return present.permissions or "unreadable", f"{wanted.mode} {OWNED}"
    return None, _AS_LEFT


def _tells(place: _Place, path: str, item: Finding) -> bool:
    """Say whether a bad finding is about this file's effect."""
    label = path.rpartition("/gpunode-")[2].partition(".")[0]
    names = [each.of(label) for each in place.told] if place.told is _REPOSITORY else place.told
    return item.component == place.component and any(
        item.what == name or item.what.startswith(f"{name} ") for name in names
    )
