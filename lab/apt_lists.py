"""Debian's package lists in the nodes' image, cut down to what a node may ask for.

apt goes through all that is listed at each of its commands: with Debian's 60,000 packages that takes a second of
processor time, and a run has a dozen such commands. `apt-get update` leaves a list alone as long as the archive's is
the same, and fetches it whole afterwards: then a node is slower, and not another one. What the lists say of a package
that is left, and all that is fetched by them, is Debian's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from gpunode.lab.chroot import within

# What runs and tests install from Debian, beside what the image has; what these need comes along.
NAMES = (
    "apt-utils", "ca-certificates", "containerd", "curl", "dkms", "docker.io", "gcc", "gnupg", "infiniband-diags",
    "initramfs-tools", "iptables", "libcuda1", "linux-headers-amd64", "linux-headers-cloud-amd64", "make",
    "munge", "nftables", "nvidia-cuda-mps", "nvidia-kernel-dkms", "nvidia-kernel-support", "nvidia-open-kernel-dkms",
    "nvidia-open-kernel-support", "nvidia-persistenced", "nvidia-smi", "pciutils", "podman", "python3-apt",
    "python3-grpcio", "python3-protobuf", "runc", "slurm-client", "slurmctld", "slurmd",
    "needrestart", "strace", "tcsh",
)  # fmt: skip
_ALONG = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")


def cut_down(root: Path) -> tuple[int, int]:
    """Leave in the lists of a root filesystem only what may be asked for; return the bytes before and after."""
    kept = _needed(root)
    before = after = 0
    for path in sorted((root / "var/lib/apt/lists").glob("*_Packages")):
        text = path.read_text(encoding="utf-8")
        found = "".join(stanza for stanza in _stanzas(text) if _name(stanza) in kept)
        before, after = before + len(text), after + len(found)
        # With its time: apt would else ask for the whole file again.
        times = path.stat()
        path.write_text(found, encoding="utf-8")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    for path in (root / "var/cache/apt").glob("*.bin"):
        path.unlink()
    return before, after


def _needed(root: Path) -> set[str]:
    """Return the names of all packages that are installed, in NAMES, or needed by one of them."""
    installed = within(root, "dpkg-query", "-W", "-f", "${Package}\n").split()
    known = set(within(root, "apt-cache", "pkgnames").split())
    asked = [name for name in (*NAMES, *installed) if name in known]
    lines = within(root, "apt-cache", "depends", "--recurse", *(f"--no-{kind}" for kind in _ALONG), *asked).splitlines()
    return {line.strip("<>") for line in lines if not line.startswith(" ")}


def _stanzas(text: str) -> Iterable[str]:
    return (f"{stanza}\n\n" for stanza in text.split("\n\n") if stanza.strip())


def _name(stanza: str) -> str:
    return stanza.partition("\n")[0].removeprefix("Package: ")
