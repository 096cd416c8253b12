"""Fixture .run files: self-extracting archives with the manners of NVIDIA's, holding nothing of NVIDIA's.

NVIDIA's archive is a makeself of its own line: arguments follow the file's name directly. What Debian's makeself makes
refuses them, hence a stub of our own.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path

from gpunode.lab.packages.cuda import RELEASES, nvcc_program, version_file
from gpunode.lab.packages.driver import BROKEN_VERSION
from gpunode.lab.packages.driver_libraries import library_content
from gpunode.lab.packages.smi_archive import program

# 550 and 535 for what older installers do not know.
RUNFILE_VERSIONS = (
    "535.183.06", "550.163.01", "570.124.06", "570.172.08", "580.82.07", "580.95.05", BROKEN_VERSION,
)  # fmt: skip
_TIME = 1_760_000_000
_HERE = Path(__file__).parent
# As large as a file must be for a transfer to be cut in its middle.
_BULK = 256 * 1024

_STUB = r"""#!/bin/sh
# SIMULATED .run file of gpunode's lab: @LABEL@. It holds nothing of NVIDIA's.
skip=@SKIP@; sum=@SUM@; name=@NAME@; program=@PROGRAM@
payload() { tail -n "+$skip" "$0"; }
intact() { [ "$(payload | sha256sum | cut -d' ' -f1)" = "$sum" ]; }
case "${1:-}" in
  --check)
    if intact; then echo 'SIMULATED: the archive is intact'; exit 0; fi
    echo 'SIMULATED: the archive is damaged' >&2; exit 2;;
  --info) echo 'Identification: @LABEL@'; echo "Target directory: $name"; exit 0;;
  --list|--lsm) payload | tar -tzf -; exit;;
  -h|--help|-A|--advanced-options)
    echo "$0 [options]: --check --info --list --help -A, as the first one; -x --extract-only --keep --target DIR"
    echo "--tmpdir DIR --add-this-kernel; all others are for $program"; exit 0;;
esac
extract=no; keep=no; target=; tmp=${TMPDIR:-/tmp}; count=$#
while [ "$count" -gt 0 ]; do
  word=$1; shift; count=$((count - 1))
  case "$word" in
    -x|--extract-only) extract=yes;;
    --keep) keep=yes;;
    --target) target=$1; shift; count=$((count - 1));;
    --tmpdir) tmp=$1; shift; count=$((count - 1));;
    --tmpdir=*) tmp=${word#*=};;
    --add-this-kernel) echo 'SIMULATED: no kernel is added to this file'; exit 0;;
    *) set -- "$@" "$word";;
  esac
done
intact || { echo 'SIMULATED: the archive is damaged; it may not have come whole' >&2; exit 1; }
if [ "$extract" = yes ]; then
  folder=${target:-./$name}
  [ ! -e "$folder" ] || { echo "SIMULATED: $folder is there already" >&2; exit 1; }
  mkdir -p "$folder" && payload | tar -xzf - -C "$folder"; exit
fi
folder=$target
if [ -z "$folder" ]; then folder=$(mktemp -d "$tmp/selfgz.XXXXXX") || exit 1; else mkdir -p "$folder"; fi
payload | tar -xzf - -C "$folder" || { echo 'SIMULATED: the archive could not be unpacked' >&2; exit 1; }
status=0; (cd "$folder" && "./$program" "$@") || status=$?
if [ "$keep" = no ] && [ -z "$target" ]; then rm -rf "$folder"; fi
exit "$status"
"""


@dataclass(frozen=True)
class RunfileFixture:
    """Hold one .run file: its path on the mirror, and its content."""

    path: str
    content: bytes

    def digest(self) -> str:
        """Return the SHA-256 (hex) of the content."""
        return hashlib.sha256(self.content).hexdigest()


def runfiles() -> list[RunfileFixture]:
    """Return every driver's and every CUDA release's .run file, under the paths that NVIDIA's servers have."""
    return [*(_driver(version) for version in RUNFILE_VERSIONS), *_cuda()]


def _driver(version: str) -> RunfileFixture:
    name = f"NVIDIA-Linux-x86_64-{version}"
    members = {
        "nvidia-installer": ((_HERE / "nvidia_installer.py").read_bytes(), 0o755),
        "package.json": (json.dumps({"version": version, "loads": version != BROKEN_VERSION}).encode(), 0o644),
        "nvidia-smi": (program(version), 0o755),
        f"libnvidia-ml.so.{version}": (library_content("libnvidia-ml.so", version), 0o644),
        f"libcuda.so.{version}": (library_content("libcuda.so", version) + _bulk(version), 0o644),
    }
    label = f"SIMULATED NVIDIA driver {version}"
    return RunfileFixture(f"tesla/{version}/{name}.run", archive(name, label, "nvidia-installer", members))


def _cuda() -> list[RunfileFixture]:
    found = []
    for release in RELEASES:
        name = f"cuda_{release.full}_{release.driver}_linux"
        members = {
            "cuda-installer": ((_HERE / "cuda_installer.py").read_bytes(), 0o755),
            "package.json": (json.dumps({"release": release.full, "version": release.short}).encode(), 0o644),
            "nvcc": (nvcc_program(release), 0o755),
            "version.json": (version_file(release, release.told), 0o644),
        }
        content = archive(name, f"SIMULATED CUDA toolkit {release.full}", "cuda-installer", members)
        found.append(RunfileFixture(f"cuda/{release.full}/local_installers/{name}.run", content))
    return found


def _bulk(seed: str) -> bytes:
    """Return bytes that do not compress, the same each time."""
    blocks = (hashlib.sha256(f"{seed} {number}".encode()).digest() for number in range(_BULK // 32))
    return b"".join(blocks)


def archive(name: str, label: str, program: str, members: dict[str, tuple[bytes, int]]) -> bytes:
    """Return a self-extracting file that runs `program`, which is one of its members (name -> content, mode)."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for member, (content, mode) in sorted(members.items()):
            entry = tarfile.TarInfo(member)
            entry.size, entry.mode, entry.mtime = len(content), mode, _TIME
            tar.addfile(entry, io.BytesIO(content))
    payload = gzip.compress(packed.getvalue(), mtime=_TIME)
    values = {"LABEL": label, "NAME": name, "PROGRAM": program, "SUM": hashlib.sha256(payload).hexdigest()}
    text = _STUB
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text.replace("@SKIP@", str(text.count("\n") + 1)).encode() + payload


__all__ = ["RUNFILE_VERSIONS", "RunfileFixture", "archive", "runfiles"]
