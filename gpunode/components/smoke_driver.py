"""What a test's container has of the driver's files: nvidia-smi runs there, and libcuda is there, by the toolkit.

Without NVIDIA_DRIVER_CAPABILITIES a container gets `utility` (nvidia-smi, libnvidia-ml) and `compute` (libcuda), as far
as supported-driver-capabilities of config.toml lets it; by CDI it gets all of it. Each file is mounted by itself, and
ldconfig makes the names with one number, such as libcuda.so.1.
source: NVIDIA/nvidia-container-toolkit, internal/config/image/capabilities.go, pkg/nvcdi/driver-nvml.go,
cmd/nvidia-cdi-hook/update-ldcache, cmd/nvidia-container-runtime-hook/container_config.go
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gpunode.base.reading import Reading
from gpunode.system.smi import ListedGpu, parse_list

_LOGS = "look at /var/log/nvidia-container-runtime.log (toolkit.debug = True writes it)"
_RENEW = "run deploys/gpu_node.py, which makes CDI specifications of a former driver or MIG layout anew"
_LDCONFIG = "look at nvidia-container-cli.ldconfig in the toolkit's config.toml, which names the program that does it"
_BY = "supported-driver-capabilities in the toolkit's config.toml"
# nvidia-smi's exit codes (NVML's), and the shell's for a program that cannot be started.
_REMEDIES = {
    12: f"the container's library cache does not know libnvidia-ml: {_LDCONFIG}",
    18: f"the files that are handed in are not those of the driver that is loaded: {_RENEW}, or boot the node",
}
_NOT_STARTED = (126, 127)


@dataclass(frozen=True)
class Handed(Reading):
    """Hold what a node has to hand in.

    gpus: what its nvidia-smi lists, none where it has none that answers; is_script: whether that program is a script,
    whose interpreter a container need not have; cuda: the path of its libcuda.so.1; capabilities: those that
    config.toml lets containers have, none where it lets them have all.
    """

    gpus: tuple[ListedGpu, ...] = ()
    is_script: bool = False
    cuda: str | None = None
    capabilities: tuple[str, ...] = ()

    def lets(self, capability: str) -> bool:
        """Say whether a container may have a capability of the driver."""
        return not self.capabilities or bool({"all", capability} & set(self.capabilities))


@dataclass(frozen=True)
class InContainer(Reading):
    """Hold what a container has: each libcuda that is mounted, the name libcuda.so.1 beside it, what nvidia-smi said.

    smi_status is nvidia-smi's exit status, None where the container has none.
    """

    cuda: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    smi_status: int | None = None
    smi_said: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[ListedGpu, ...]:
        """Return the GPUs that nvidia-smi lists in the container."""
        return parse_list(self.smi_said)


def parse_in_container(lines: Sequence[str]) -> InContainer:
    """Parse what smoke_seen.sh printed in a container; other lines are somebody else's."""

    def of(key: str) -> tuple[str, ...]:
        return tuple(line.partition("=")[2] for line in lines if line.startswith(f"{key}="))

    status = next(iter(of("smi.rc")), "")
    is_number = status.isascii() and status.isdecimal() and len(status) < 4
    return InContainer(of("cuda"), of("linked"), int(status) if is_number else None, of("smi"))


def driver_problems(node: Handed, seen: InContainer) -> Iterator[str]:
    """Yield what a container that asks for all GPUs lacks of the driver, each with what to do."""
    yield from _of_smi(node, seen)
    if seen.cuda and not seen.linked:
        yield f"a container has {seen.cuda[0]}, and no libcuda.so.1 beside it, which programs ask for: {_LDCONFIG}"
    elif not seen.cuda and node.cuda is not None and node.lets("compute"):
        yield (
            "a container that asks for all GPUs has no libcuda, without which no CUDA program starts; the node has "
            f"{node.cuda}: {_RENEW}; else {_LOGS}"
        )


def _of_smi(node: Handed, seen: InContainer) -> Iterator[str]:
    if seen.smi_status is None:
        if node.gpus and node.lets("utility"):
            yield (
                "a container that asks for all GPUs has no nvidia-smi, which the node has, and the toolkit is to hand "
                f"in: {_RENEW}; else {_LOGS}"
            )
        return
    if _is_unknown(node, seen):
        return
    if seen.smi_status:
        said = " ".join(" ".join(seen.smi_said).split())[:300] or "it said nothing"
        remedy = _REMEDIES.get(seen.smi_status, _LOGS)
        yield f"`nvidia-smi -L` in a container ends with exit code {seen.smi_status}: {said}; {remedy}"
        return
    listed = {gpu.uuid for gpu in seen.gpus}
    if missing := [gpu.uuid for gpu in node.gpus if gpu.uuid not in listed]:
        yield f"nvidia-smi in a container that asks for all GPUs does not list {', '.join(missing)}; {_LOGS}"
    devices = {uuid for gpu in seen.gpus for _, uuid in gpu.mig}
    # Of a GPU that is missing as a whole it is said.
    known = (gpu for gpu in node.gpus if gpu.uuid in listed)
    if lost := [f"{profile} ({uuid})" for gpu in known for profile, uuid in gpu.mig if uuid not in devices]:
        yield (
            f"nvidia-smi in a container that asks for all GPUs does not list the MIG devices {', '.join(lost)}: "
            f"{_RENEW}; is there a /dev/nvidia-caps on the node?"
        )


def driver_notes(node: Handed, seen: InContainer) -> Iterator[str]:
    """Yield what could not be looked at, and why."""
    if not node.gpus:
        yield "nvidia-smi was not run in a container: the node has none that lists its GPUs"
    elif seen.smi_status is None and not node.lets("utility"):
        yield f"nvidia-smi was not run in a container: {_BY} has no utility, by which the toolkit hands it in"
    elif _is_unknown(node, seen):
        yield "nvidia-smi was not run in a container: on the node it is a script, for which a container needs more"
    if not seen.cuda and node.cuda is None:
        yield "no libcuda was looked for in a container: the node has no libcuda.so.1 in its folders of libraries"
    elif not seen.cuda and not node.lets("compute"):
        yield f"a container has no libcuda: {_BY} has no compute, by which the toolkit hands it in"


def _is_unknown(node: Handed, seen: InContainer) -> bool:
    """Say whether what the container has is no program of NVIDIA's, and needs what the container has not."""
    return node.is_script and seen.smi_status in _NOT_STARTED
