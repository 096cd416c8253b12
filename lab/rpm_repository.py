"""rpm-md repositories: the fixture packages once more, shaped and signed like NVIDIA's and Docker's for dnf."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpunode.lab.cache import link, locked
from gpunode.lab.errors import LabError
from gpunode.lab.packages.containerd import build_containerd_io
from gpunode.lab.packages.cuda import cuda_packages
from gpunode.lab.packages.deb import Deb, DebError, Payload
from gpunode.lab.packages.rpm import Rpm, build_rpms
from gpunode.lab.packages.rpm_driver import driver_rpms
from gpunode.lab.packages.rpm_names import place, rpm_of, system_rpm
from gpunode.lab.packages.toolkit import legacy_packages, toolkit_packages
from gpunode.lab.rpm_metadata import modules_text
from gpunode.lab.signing import key_file, public_key, sign_detached
from gpunode.lab.toolbox import run_in
from gpunode.lab.world.docker import docker_rpms
from gpunode.lab.world.rpm import RpmWorld, rpm_world
from gpunode.lab.world.rpm_row import RELATIONS
from gpunode.lab.world.toolkit import toolkit_rpm

Report = Callable[[str], None]

TOOLKIT = "toolkit/stable/rpm/x86_64"


@dataclass(frozen=True)
class RpmDistribution:
    """Hold what the lab serves to nodes of an rpm distribution: in which folder of the mirror, and where below that.

    `worlds` are the tables (lab/world) of the CUDA repositories, that of the nodes' own release first; `release` stands
    behind the versions of the distribution's own packages. `docker` is Docker's repository, None where containerd is
    the distribution's own. `system` are names of what a node has from the start, with what else they provide; `needed`
    those of what runtimes need of the distribution.
    """

    name: str
    folder: str
    worlds: tuple[str, ...]
    release: str
    base: str
    docker: str | None
    system: tuple[tuple[str, str, tuple[str, ...]], ...]
    needed: tuple[str, ...] = ()

    @property
    def cuda(self) -> str:
        """Return the folder of the nodes' CUDA repository."""
        return cuda_folder(self.worlds[0])

    @property
    def repositories(self) -> tuple[str, ...]:
        """Return every repository's folder."""
        return (*map(cuda_folder, self.worlds), TOOLKIT, self.base, *filter(None, (self.docker,)))


def cuda_folder(world: str) -> str:
    """Return the folder of a CUDA repository, by its name."""
    return f"cuda/{world}/x86_64"


_SHELL = ("bash", "5.1.8", ("/bin/sh",))
_RHEL_PROVIDES = ("system-release = 9.6", "system-release(releasever) = 9", "redhat-release = 9.6")
_RHEL_SYSTEM = ("ca-certificates", "curl", "dnf-plugins-core", "gnupg2", "python3", "systemd")
RHEL = RpmDistribution(
    # RHEL 10's has no module streams.
    "rhel9", "dnf", ("rhel9", "rhel10"), "1.el9", "baseos/rhel9/x86_64", "docker/rhel/9/x86_64/stable",
    (("rocky-release", "9.6", _RHEL_PROVIDES), _SHELL, *((name, "1.0", ()) for name in _RHEL_SYSTEM)),
    ("container-selinux", "libseccomp"),
)  # fmt: skip
_FEDORA_PROVIDES = ("system-release = 42", "system-release(releasever) = 42")
_FEDORA_SYSTEM = ("ca-certificates", "curl", "dnf5", "gnupg2", "python3", "systemd")
FEDORA = RpmDistribution(
    "fedora42",
    "dnf5",
    ("fedora42",),
    "1.fc42",
    "fedora/42/x86_64",
    "docker/fedora/42/x86_64/stable",
    (("fedora-release", "42", _FEDORA_PROVIDES), _SHELL, *((name, "1.0", ()) for name in _FEDORA_SYSTEM)),
    ("container-selinux", "libseccomp"),
)
_LEAP_SYSTEM = ("ca-certificates", "curl", "gpg2", "python3", "systemd")
LEAP = RpmDistribution(
    "opensuse15", "zypper", ("opensuse15",), "1", "oss/leap/15.6", None,
    (("openSUSE-release", "15.6", ("distribution-release", "product() = Leap", "product(Leap) = 15.6-1")), _SHELL,
     *((name, "1.0", ()) for name in _LEAP_SYSTEM)),
)  # fmt: skip
DISTRIBUTIONS = {distribution.name: distribution for distribution in (RHEL, FEDORA, LEAP)}
_INDEX = """
for folder in $repositories; do createrepo_c --quiet --no-database "/work/$folder"; done
for folder in $modular; do
  modifyrepo_c --mdtype=modules "/work/$folder/modules.yaml" "/work/$folder/repodata" > /dev/null
done
"""


class RpmRepositoryError(LabError):
    """Say which repository could not be made, and why."""


def system_packages(distribution: RpmDistribution) -> list[Rpm]:
    """Return what a node of the distribution has from the start, without the programs, which Debian's base has."""
    release = distribution.release
    return [system_rpm(name, version, release, provides=provides) for name, version, provides in distribution.system]


def versionlock(plugins: Path) -> Rpm:
    """Return dnf's real plugin versionlock as a package; `plugins` is dnf's folder of plugins in a root that has it."""
    settings = b"[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n"
    return system_rpm(
        "python3-dnf-plugin-versionlock", "4.3.0", RHEL.release,
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
        digest = _digest(groups, fingerprint, *(modules_text(rpm_world(name)) for name in distribution.worlds))
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
            modular = _write_modules(draft, distribution)
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
    groups = fixture_groups(map(rpm_world, distribution.worlds))
    groups["base"] = system_packages(distribution)
    # Of the distribution, or of EPEL: what NVIDIA's packages need.
    groups["base-needed"] = rpm_world(distribution.worlds[0]).from_elsewhere()
    # Something of the system's to upgrade to, beside which what is held stays.
    groups["base-needed"] += [system_rpm(name, "1.0", distribution.release) for name in distribution.needed]
    groups["base-newer"] = [system_rpm("curl", "1.1", distribution.release)]
    if distribution is RHEL:
        groups["base"].append(versionlock(_plugins(tools)))
    name = "containerd.io" if distribution.docker else "containerd"
    containerd = _containerd(cache, report, name, distribution.release)
    if containerd is not None:
        groups["docker" if distribution.docker else "base-containerd"] = [containerd]
    return groups


def fixture_groups(worlds: Iterable[RpmWorld]) -> dict[str, list[Rpm]]:
    """Return the packages of driver, CUDA and container toolkit by group; a driver's is named `driver-REPOSITORY-…`."""
    groups: dict[str, list[Rpm]] = {}
    for world in worlds:
        groups |= {f"driver-{world.name}-{name}": packages for name, packages in driver_rpms(world).items() if packages}
    groups["cuda"] = list(map(rpm_of, cuda_packages()))
    for deb in toolkit_packages():
        groups.setdefault(f"toolkit-{deb.version.rpartition('-')[0]}", []).append(_toolkit(deb))
    for deb in legacy_packages():
        groups.setdefault(f"toolkit-{deb.version.rpartition('-')[0]}", []).append(rpm_of(deb))
    return groups


def _toolkit(deb: Deb) -> Rpm:
    """Return a package of the toolkit's with the files of the .deb and the relations of the table."""
    row = toolkit_rpm(deb.name, deb.version.rpartition("-")[0])
    return replace(rpm_of(deb), **{relation: getattr(row, relation) for relation in RELATIONS})


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
    version = shown.stdout.strip().rpartition("-")[0]
    # SUSE's own brings no runc in the table; the lab's has it in it.
    own = Rpm(name, version, "", release=release, provides=("runc",))
    package = docker_rpms()[name].package(version, release) if name in docker_rpms() else own
    return replace(
        package, description="containerd and runc, REPACKAGED for gpunode's lab", files=files,
        scripts=(("post", script), ("postun", script)), config=("etc/containerd/config.toml",),
    )  # fmt: skip


def _payload(path: Path, target: str) -> Payload:
    if path.is_symlink():
        return Payload(target, link=str(path.readlink()))
    return Payload(target, path.read_bytes(), path.stat().st_mode & 0o777)


def _digest(groups: Mapping[str, Sequence[Rpm]], fingerprint: str, *modules: str) -> str:
    digest = hashlib.sha256(Path(__file__).read_bytes() + fingerprint.encode() + "\0".join(modules).encode())
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
        kind, _, rest = group.partition("-")
        driver = [cuda_folder(rest.partition("-")[0])] if kind == "driver" else []
        cuda = list(map(cuda_folder, distribution.worlds)) if kind == "cuda" else []
        for folder in [*driver, *cuda] or [places[kind]]:
            for path in paths:
                link(path, draft / folder / path.name)


def _write_modules(draft: Path, distribution: RpmDistribution) -> str:
    """Write modules.yaml of each CUDA repository that has streams; return their folders, with spaces between."""
    modular = []
    for name in distribution.worlds:
        if text := modules_text(rpm_world(name)):
            (draft / cuda_folder(name) / "modules.yaml").write_text(text)
            modular.append(cuda_folder(name))
    return " ".join(modular)
