"""What this machine must offer before a lab can start."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from gpunode.lab.errors import LabError

# program → Debian and Ubuntu package
_PROGRAMS = {
    "podman": "podman",
    "runc": "runc",
    "debootstrap": "debootstrap",
    "apt-ftparchive": "apt-utils",
    "dpkg-deb": "dpkg",
    "gpg": "gpg",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}
# One node's systemd, journald and the rest hold seven; the kernel counts those of all nodes for root, and allows 128
# of itself: the nineteenth node would not boot.
_INOTIFY_PER_NODE = 8
_INOTIFY_OF_THE_REST = 16
_INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
_NETAVARK = (Path("/usr/lib/podman/netavark"), Path("/usr/libexec/podman/netavark"))


def missing_packages() -> tuple[str, ...]:
    """Return the packages that the lab needs and whose programs are absent, without duplicates."""
    missing = [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]
    if not any(path.exists() for path in _NETAVARK):
        missing.append("netavark")
    return tuple(dict.fromkeys(missing))


def problems(cgroups: Path = Path("/sys/fs/cgroup"), user: int | None = None) -> tuple[str, ...]:
    """Return one sentence with its remedy for each thing that stands in the lab's way; empty if nothing does."""
    found = []
    if (os.geteuid() if user is None else user) != 0:
        found.append("the lab needs root, as its nodes are privileged containers: run it with sudo")
    if missing := missing_packages():
        found.append(f"programs are missing: apt-get install --no-install-recommends {' '.join(missing)}")
    if not (cgroups / "cgroup.controllers").exists() and not (cgroups / "systemd").is_dir():
        found.append(
            f"systemd in a node needs cgroup v2 at {cgroups}, or v1 with its name=systemd hierarchy: "
            f"mkdir -p {cgroups}/systemd && mount -t cgroup -o none,name=systemd cgroup {cgroups}/systemd"
        )
    return tuple(found)


def check_preconditions() -> None:
    """Raise LabError that names everything missing on this machine, each with its remedy."""
    if found := problems():
        raise LabError("the lab cannot run on this machine:\n" + "\n".join(f"  - {problem}" for problem in found))


def make_room(nodes: int, report: Callable[[str], None], limit: Path = _INOTIFY) -> None:
    """Raise this machine's limit of inotify instances to what `nodes` nodes need, and say so; never lower it."""
    needed = _INOTIFY_OF_THE_REST + _INOTIFY_PER_NODE * nodes
    allowed = int(limit.read_text(encoding="utf-8"))
    if needed <= allowed:
        return
    try:
        limit.write_text(f"{needed}\n", encoding="utf-8")
    except OSError as error:
        raise LabError(
            f"{nodes} nodes need {needed} inotify instances, this machine allows {allowed}, and that could not be "
            f"raised: {error.strerror}. Run `sysctl fs.inotify.max_user_instances={needed}`, or ask for fewer nodes"
        ) from error
    report(f"raised fs.inotify.max_user_instances from {allowed} to {needed} until the next boot, for {nodes} nodes")
