"""The CUDA toolkit by NVIDIA's .run file, and the link by which programs find one of several toolkits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pyinfra import host

from gpunode.base.shell_file import script_file
from gpunode.components.cuda.decide import LINK, Desired, Install, decide, decide_link
from gpunode.components.cuda.state import CudaToolkits as State
from gpunode.components.runfile import CUDA_LOG, FOLDER, Runfile
from gpunode.facts.toolkit import CudaToolkits
from gpunode.operations.driver_transaction import INSTALLER
from gpunode.operations.failure import OperationRefused, change_now, node_operation, read_fact
from gpunode.operations.runfile import fetch_command
from gpunode.operations.script import script_command
from gpunode.operations.transaction import Transaction, refuse_failed, settled, transaction_command

CUDA = Transaction("cuda", INSTALLER + script_file("owned", "cuda"))


@node_operation
def none_half_installed(desired: Desired) -> Iterator[Any]:
    """Undo an interrupted installation by a .run file before packages come, and refuse them over what that brings back.

    + desired: the toolkit that packages are to bring
    """
    yield from settled(CUDA)
    decision = decide(desired, _state())
    # In preparation nothing is undone yet.
    if decision.refusal and host.state is not None and host.state.is_executing:
        raise OperationRefused(decision.refusal)
    host.noop("no installation by a .run file was interrupted")


@node_operation
def installed(desired: Desired, file: Runfile, proxies: Mapping[str, str]) -> Iterator[Any]:
    """Install a CUDA toolkit by its .run file, beside the toolkits of other versions; undone if its nvcc does not work.

    The file is fetched only where the toolkit is not there, and goes when it is.
    """
    yield from settled(CUDA)
    change = change_now(Install, decide(desired, _state()))
    if change is None:
        host.noop(f"installed: CUDA {desired.release}")
        return
    refuse_failed(CUDA, change.target)
    yield fetch_command(file, proxies, "cuda.runfile_sha256")
    yield transaction_command(
        CUDA,
        change.target,
        runfile=file.path,
        sha256=file.sha256,
        runfiles=FOLDER,
        installer_log=CUDA_LOG,
        version=desired.version,
        release=change.release,
        toolkit=desired.home,
        dashed=desired.version.replace(".", "-"),
    )


_LINK = script_file("cuda_link")


@node_operation
def linked(desired: Desired) -> Iterator[Any]:
    """Point /usr/local/cuda at the toolkit of one version; the others stay where they are."""
    change = change_now(str, decide_link(desired, _state()))
    if change is None:
        host.noop(f"{LINK} is {desired.version}")
        return
    yield script_command(_LINK, toolkit=change)


def _state() -> State:
    return read_fact(CudaToolkits, "the CUDA toolkits")
