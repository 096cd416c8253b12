"""rpm-md repositories: the fixture packages once more, shaped and signed like NVIDIA's and Docker's for dnf."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lab.cache import locked
from lab.errors import LabError
from lab.packages.containerd import build_containerd_io
from lab.packages.cuda import cuda_packages
from lab.packages.deb import DebError, Payload
from lab.packages.driver import driver_packages
from lab.packages.rpm import Rpm, build_rpms
from lab.packages.rpm_names import LEAP15, RHEL9, Naming, place, rpm_of, system_rpm
from lab.packages.toolkit import legacy_packages, toolkit_packages
from lab.signing import key_file, public_key, sign_detached
from lab.toolbox import run_in

Report = Callable[[str], None]

TOOLKIT = "toolkit/stable/rpm/x86_64"


@dataclass(frozen=True)
class RpmDistribution:
    """Hold what the lab serves to nodes of an rpm distribution: in which folder of the mirror, and where below that.

    `docker` is Docker's repository, None where containerd is the distribution's own; `modular` says whether the driver
    stands in module streams. `system` are names of what a node has from the start, with what else they provide.
    `streamless` has the driver's packages of all branches in one place, as RHEL 10 has them.
    """

    name: str
    folder: str
    naming: Naming
    cuda: str
    base: str
    docker: str | None
    modular: bool
    system: tuple[tuple[str, str, tuple[str, ...]], ...]
    streamless: str | None = None

    @property
    def repositories(self) -> tuple[str, ...]:
        """Return every repository's folder."""
        return (self.cuda, TOOLKIT, self.base, *filter(None, (self.docker, self.streamless)))


_SHELL = ("bash", "5.1.8", ("/bin/sh",))
_RHEL_PROVIDES = ("system-release = 9.6", "system-release(releasever) = 9", "redhat-release = 9.6")
_RHEL_SYSTEM = ("ca-certificates", "curl", "dnf-plugins-core", "gnupg2", "python3", "systemd")
RHEL = RpmDistribution(
    "rhel9", "dnf", RHEL9, "cuda/rhel9/x86_64", "baseos/rhel9/x86_64", "docker/rhel/9/x86_64/stable", True,
    (("rocky-release", "9.6", _RHEL_PROVIDES), _SHELL, *((name, "1.0", ()) for name in _RHEL_SYSTEM)),
    streamless="cuda/rhel10/x86_64",
)  # fmt: skip
_LEAP_SYSTEM = ("ca-certificates", "curl", "gpg2", "python3", "systemd")
LEAP = RpmDistribution(
    "opensuse15", "zypper", LEAP15, "cuda/opensuse15/x86_64", "oss/leap/15.6", None, False,
    (("openSUSE-release", "15.6", ("distribution-release", "product() = Leap", "product(Leap) = 15.6-1")), _SHELL,
     *((name, "1.0", ()) for name in _LEAP_SYSTEM)),
)  # fmt: skip
DISTRIBUTIONS = {distribution.name: distribution for distribution in (RHEL, LEAP)}
# As in NVIDIA's own: a stream per branch and flavour, of which dnf shows the packages of the enabled one alone.
_STREAM = """---
document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: "{stream}"
  version: 20251021000000
  context: "9"
  arch: x86_64
  summary: NVIDIA driver module for the {stream} branch
  description: SIMULATED, of gpunode's lab.
  license:
    module: [MIT]
  profiles:
    default:
      rpms: [{package}]
  artifacts:
    rpms:
{artifacts}
...
"""
_INDEX = """
for folder in $repositories; do createrepo_c --quiet --no-database "/work/$folder"; done
if [ -n "$modular" ]; then modifyrepo_c --mdtype=modules /work/modules.yaml "/work/$modular/repodata" > /dev/null; fi
"""


class RpmRepositoryError(LabError):
    """Say which repository could not be made, and why."""


def system_packages(distribution: RpmDistribution) -> list[Rpm]:
    """Return what a node of the distribution has from the start, without the programs, which Debian's base has."""
    release = distribution.naming.release
    return [system_rpm(name, version, release, provides=provides) for name, version, provides in distribution.system]


def versionlock(plugins: Path) -> Rpm:
    """Return dnf's real plugin versionlock as a package; `plugins` is dnf's folder of plugins in a root that has it."""
    settings = b"[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n"
    return system_rpm(
        "python3-dnf-plugin-versionlock", "4.3.0", RHEL9.release,
        Payload("usr/lib/python3/dist-packages/dnf-plugins/versionlock.py", (plugins / "versionlock.py").read_bytes()),
        Payload("etc/dnf/plugins/versionlock.conf", settings), Payload("etc/dnf/plugins/versionlock.list"),
    )  # fmt: skip


def build_rpm_mirror(
    cache: Path, mirror: Path, tools: Path, report: Report, distribution: RpmDistribution = RHEL
) -> None:
    """Build a distribution's repositories in its folder of the mirror, unless nothing they are made of has changed.

    + cache: gpunode's cache folder
    + tools: a root filesystem with rpmbuild and createrepo_c, and dnf's plugins where the distribution has dnf

    Raises RpmRepositoryError, RpmError or SigningError if a tool fails.
    """
    with locked(cache / "mirror.lock"):
        key = key_file(cache / "keys", "repository")
        armored, fingerprint = public_key(key)
        groups = _groups(distribution, tools, cache, report)
        digest = _digest(groups, fingerprint)
        if _recorded(mirror / distribution.folder, distribution) == digest:
            report(f"{distribution.folder} mirror: up to date")
            return
        started = time.monotonic()
        count = sum(map(len, groups.values()))
        report(f"{distribution.folder} mirror: building {count} fixture packages")
        built = build_rpms(groups, cache / "packages", tools, key)
        with tempfile.TemporaryDirectory(prefix="rpm.", dir=cache) as name:
            draft = Path(name) / "draft"
            _fill(draft, built, distribution)
            (draft / "modules.yaml").write_text(_modules(groups))
            modular = distribution.cuda if distribution.modular else ""
            done = run_in(tools, draft, _INDEX, repositories=" ".join(distribution.repositories), modular=modular)
            if done.returncode:
                raise RpmRepositoryError(f"cannot index the rpm repositories: {done.stderr.strip()}")
            for folder in distribution.repositories:
                sign_detached(key, [draft / folder / "repodata/repomd.xml"])
                (draft / folder / "repodata/repomd.xml.key").write_bytes(armored)
            (draft / "digest").write_text(digest + "\n")
            draft.chmod(0o755)
            there = mirror / distribution.folder
            if there.exists():
                there.rename(Path(name) / "old")
            draft.rename(there)
        report(f"{distribution.folder} mirror: done in {time.monotonic() - started:.0f} s")


def _plugins(root: Path) -> Path:
    return root / "usr/lib/python3/dist-packages/dnf-plugins"


def _groups(distribution: RpmDistribution, tools: Path, cache: Path, report: Report) -> dict[str, list[Rpm]]:
    """Return every package, by groups within which none is twice: rpmbuild makes a group at once."""
    groups = fixture_groups(distribution.naming)
    groups["base"] = system_packages(distribution)
    # Something of the system's to upgrade to, beside which what is held stays.
    groups["base-newer"] = [system_rpm("curl", "1.1", distribution.naming.release)]
    if distribution is RHEL:
        groups["base"].append(versionlock(_plugins(tools)))
    if distribution.streamless:
        groups |= {f"loose-{name}": _loose(group) for name, group in groups.items() if name.startswith("driver-")}
    name = "containerd.io" if distribution.docker else "containerd"
    containerd = _containerd(cache, report, name, distribution.naming.release)
    if containerd is not None:
        groups["docker" if distribution.docker else "base-containerd"] = [containerd]
    return groups


# By which people install the driver.
_METAPACKAGES = ("nvidia-open", "cuda-drivers")


def _loose(packages: Sequence[Rpm]) -> list[Rpm]:
    """Return the metapackages as they are if what they need may be newer: then something must bind all to a version."""
    return [
        replace(package, requires=tuple(item.replace(" = ", " >= ") for item in package.requires))
        for package in packages
        if package.name in _METAPACKAGES
    ]


def fixture_groups(naming: Naming) -> dict[str, list[Rpm]]:
    """Return the packages of driver, CUDA and container toolkit under a distribution's names, by group."""
    groups: dict[str, list[Rpm]] = {}
    for deb in driver_packages():
        groups.setdefault(f"driver-{deb.version.rpartition('-')[0]}", []).append(rpm_of(deb, naming))
    groups["cuda"] = [rpm_of(deb, naming) for deb in cuda_packages()]
    for deb in [*toolkit_packages(), *legacy_packages()]:
        groups.setdefault(f"toolkit-{deb.version.rpartition('-')[0]}", []).append(rpm_of(deb, naming))
    return groups


def _containerd(cache: Path, report: Report, name: str, release: str) -> Rpm | None:
    """Return containerd with runc: the files of the .deb that is made of Debian's real ones."""
    try:
        deb = build_containerd_io(cache / "packages")
    except (DebError, OSError) as error:
        report(f"rpm mirror: no {name} in it: {error}")
        return None
    with tempfile.TemporaryDirectory(dir=cache) as unpacked:
        subprocess.run(["dpkg-deb", "-x", str(deb), unpacked], check=True)
        shown = subprocess.run(["dpkg-deb", "-f", str(deb), "Version"], capture_output=True, text=True, check=True)
        tree = Path(unpacked)
        found = [path for path in sorted(tree.rglob("*")) if path.is_symlink() or path.is_file()]
        files = tuple(_payload(path, place(str(path.relative_to(tree)))) for path in found)
    script = "if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi"
    return Rpm(
        name, shown.stdout.strip().rpartition("-")[0], "containerd and runc, REPACKAGED for gpunode's lab",
        release=release, files=files, scripts=(("post", script), ("postun", script)),
        provides=tuple(sorted({"containerd", "runc"} - {name})), config=("etc/containerd/config.toml",),
    )  # fmt: skip


def _payload(path: Path, target: str) -> Payload:
    if path.is_symlink():
        return Payload(target, link=str(path.readlink()))
    return Payload(target, path.read_bytes(), path.stat().st_mode & 0o777)


def _digest(groups: Mapping[str, Sequence[Rpm]], fingerprint: str) -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes() + fingerprint.encode())
    for name, packages in groups.items():
        digest.update(name.encode())
        for package in packages:
            # Contents by themselves: those of containerd are many megabytes, four times as many when written as text.
            bare = tuple(replace(file, content=b"") for file in package.files)
            digest.update(hashlib.sha256(repr(replace(package, files=bare)).encode()).digest())
            for file in package.files:
                digest.update(hashlib.sha256(file.content).digest())
    return digest.hexdigest()


def _recorded(folder: Path, distribution: RpmDistribution) -> str | None:
    if not all((folder / name / "repodata/repomd.xml.asc").exists() for name in distribution.repositories):
        return None
    try:
        return (folder / "digest").read_text().strip()
    except OSError:
        return None


def _fill(draft: Path, built: Mapping[str, Sequence[Path]], distribution: RpmDistribution) -> None:
    places = {"toolkit": TOOLKIT, "docker": distribution.docker or distribution.base, "base": distribution.base}
    for folder in distribution.repositories:
        (draft / folder).mkdir(parents=True)
    for group, paths in built.items():
        kind = group.partition("-")[0]
        for path in paths:
            if kind != "loose":
                _link(path, draft / places.get(kind, distribution.cuda))
            binds = kind == "driver" and path.name.startswith(_METAPACKAGES)
            if distribution.streamless and kind in ("driver", "cuda", "loose") and not binds:
                _link(path, draft / distribution.streamless)


def _link(path: Path, folder: Path) -> None:
    try:
        os.link(path, folder / path.name)
    except OSError:
        shutil.copyfile(path, folder / path.name)


def _modules(groups: Mapping[str, Sequence[Rpm]]) -> str:
    """Return the streams BRANCH-open and BRANCH-dkms of the module nvidia-driver."""
    streams: dict[str, tuple[str, list[str]]] = {}
    flavours = {"open": ("nvidia-open", "kmod-nvidia-open-dkms"), "dkms": ("cuda-drivers", "kmod-nvidia-latest-dkms")}
    for group, packages in groups.items():
        if not group.startswith("driver-"):
            continue
        branch = group.removeprefix("driver-").partition(".")[0]
        for flavour, own in flavours.items():
            others = {name for names in flavours.values() for name in names} - set(own)
            artifacts = [package.nevra for package in packages if package.name not in others]
            streams.setdefault(f"{branch}-{flavour}", (own[0], []))[1].extend(artifacts)
    return "".join(
        _STREAM.format(stream=stream, package=package, artifacts="\n".join(f"    - {item}" for item in artifacts))
        for stream, (package, artifacts) in streams.items()
    )
