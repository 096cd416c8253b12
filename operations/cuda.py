"""The CUDA toolkit by NVIDIA's .run file, and the link by which programs find one of several toolkits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import host

from facts.cuda import CudaToolkits
from gpunode.runfile import CUDA_LOG, FOLDER, Runfile
from operations.failure import OperationRefused, known, node_operation
from operations.families.owner import OWNED
from operations.runfile import fetch_command
from operations.runfile_shell import CHECK, INSTALLER
from operations.script import script_command
from operations.transaction import Transaction, refuse_failed, settled, target_digest, transaction_command

# A toolkit of several gigabytes is not copied before it is replaced, but renamed, and renamed back where need be.
CUDA = Transaction(
    name="cuda",
    shared=INSTALLER + OWNED,
    checkpoint=CHECK
    + r"""
if [ -e "$toolkit" ]; then : > "$checkpoint/there"; fi
readlink /usr/local/cuda > "$checkpoint/link" 2>/dev/null || true
""",
    change=r"""
if [ -e "$toolkit" ]; then mv -T "$toolkit" "$toolkit.gpunode-before"; fi
mkdir -p "$runfiles/tmp"
run_installer "$installer_log" "$runfile" --silent --toolkit --toolkitpath="$toolkit" --no-man-page --override \
  --tmpdir="$runfiles/tmp" || {
  echo "gpunode: CUDA $version was not installed; what was there before is put back" >&2
  blameless || reject "the installer of CUDA $release exits $code: ${advice:-see its log}"
  exit 1; }
said=$("$toolkit/bin/nvcc" --version 2>&1) || true
case "$said" in *"release $version,"*) ;; *) reject "CUDA $version is installed, and its nvcc says: $said";; esac
# Its version.json need not tell the release (gpunode/cuda.sh).
printf '%s %s\n' "$release" "$(cat "$toolkit/version.json" 2>/dev/null | sha256sum | cut -d' ' -f1)" \
  > "$toolkit/.gpunode-release"
# From here on there is no way back, and the gigabytes that were for it go.
sync -f "$toolkit"
: > "$checkpoint/proven"
sync "$checkpoint/proven"
rm -rf "$runfiles/tmp" "$toolkit.gpunode-before" "$runfile" "$runfile.sha256"
""",
    restore=r"""
if [ -e "$checkpoint/proven" ]; then
  echo "gpunode: CUDA $version is installed and proven, and stays; only what was for the way back goes" >&2
  rm -rf "$runfiles/tmp" "$toolkit.gpunode-before" "$runfile" "$runfile.sha256"
  return
fi
rm -rf "$runfiles/tmp"
# Somebody installed packages since.
if owned "$toolkit/bin/nvcc"; then
  echo "gpunode: packages have brought $toolkit by now: it stays as it is" >&2
  [ ! -e "$toolkit.gpunode-before" ] || echo "gpunode: remove $toolkit.gpunode-before where nobody needs it" >&2
  return 0
fi
if [ -e "$toolkit.gpunode-before" ]; then rm -rf "$toolkit" && mv -T "$toolkit.gpunode-before" "$toolkit" || return 1
elif [ ! -e "$checkpoint/there" ]; then rm -rf "$toolkit" "/etc/ld.so.conf.d/cuda-$dashed.conf" || return 1; fi
if [ -s "$checkpoint/link" ]; then ln -sfn "$(cat "$checkpoint/link")" /usr/local/cuda
elif [ -L /usr/local/cuda ]; then rm -f /usr/local/cuda; fi
""",
)


@node_operation
def none_half_installed(version: str, shared: bool = True) -> Iterator[Any]:
    """Undo an interrupted installation by a .run file before packages come, and refuse them over what that brings back.

    + version: major.minor of the toolkit that packages are to bring
    + shared: whether they bring it into the folder of the .run file's
    """
    yield from settled(CUDA)
    there = known(host.get_fact(CudaToolkits), "the CUDA toolkits")
    # In preparation nothing is undone yet.
    if shared and version in there.by_runfile and host.state is not None and host.state.is_executing:
        raise OperationRefused(
            f"/usr/local/cuda-{version} was installed by a runfile, and packages would be mixed with it; remove it "
            f"(`/usr/local/cuda-{version}/bin/cuda-uninstaller`), or set cuda.source = 'runfile'"
        )
    host.noop("no installation by a .run file was interrupted")


@node_operation
def installed(file: Runfile, version: str, release: str, proxies: Mapping[str, str]) -> Iterator[Any]:
    """Install a CUDA toolkit by its .run file, beside the toolkits of other versions; undone if its nvcc does not work.

    The file is fetched only where the toolkit is not there, and goes when it is.

    + file: its name, address and SHA-256
    + version: major.minor, which names the folder /usr/local/cuda-VERSION
    + release: major.minor.patch
    + proxies: http_proxy, https_proxy and no_proxy
    """
    yield from settled(CUDA)
    there = known(host.get_fact(CudaToolkits), "the CUDA toolkits")
    broken = there.default_version == version and there.nvcc_version is None
    if version in there.by_runfile and dict(there.releases).get(version) == release and not broken:
        host.noop(f"installed: CUDA {release}")
        return
    target = target_digest(file.name, file.sha256)
    refuse_failed(CUDA, target)
    yield fetch_command(file, proxies, "cuda.runfile_sha256")
    yield transaction_command(
        CUDA, target,
        runfile=file.path, sha256=file.sha256, runfiles=FOLDER, installer_log=CUDA_LOG, version=version,
        release=release, toolkit=f"/usr/local/cuda-{version}", dashed=version.replace(".", "-"),
    )  # fmt: skip


# The packages' toolkits are alternatives of Debian's; the runfile's are not.
_LINK = r"""
if update-alternatives --list cuda 2>/dev/null | grep -qxF "$toolkit"; then update-alternatives --set cuda "$toolkit"
elif [ -e /usr/local/cuda ] && [ ! -L /usr/local/cuda ]; then
  echo "gpunode: /usr/local/cuda is no link, and is left alone; move it away, and run again" >&2; exit 1
else ln -sfn "$toolkit" /usr/local/cuda.gpunode-new; mv -fT /usr/local/cuda.gpunode-new /usr/local/cuda; fi
"""


@node_operation
def linked(version: str, home: str = "") -> Iterator[Any]:
    """Point /usr/local/cuda at the toolkit of one version; the others stay where they are.

    + version: major.minor
    + home: its folder, where that is not /usr/local/cuda-VERSION
    """
    there = known(host.get_fact(CudaToolkits), "the CUDA toolkits")
    if there.default_version == version:
        host.noop(f"/usr/local/cuda is {version}")
        return
    yield script_command(_LINK, toolkit=home or f"/usr/local/cuda-{version}")


__all__ = ["CUDA", "installed", "linked", "none_half_installed"]
