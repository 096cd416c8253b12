"""The CUDA toolkit by NVIDIA's .run file, and the link by which programs find one of several toolkits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import host

from gpunode.facts.cuda import CudaToolkits
from gpunode.operations.failure import OperationRefused, known, node_operation
from gpunode.operations.runfile import fetch_command
from gpunode.operations.runfile_scripts import INSTALLER
from gpunode.operations.script import script_command
from gpunode.operations.transaction import Transaction, refuse_failed, settled, target_digest, transaction_command
from gpunode.runfile import CUDA_LOG, FOLDER, Runfile
from gpunode.shell_file import script_file

CUDA = Transaction("cuda", INSTALLER + script_file("owned", "cuda"))


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


_LINK = script_file("cuda_link")


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
