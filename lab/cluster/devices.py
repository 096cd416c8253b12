"""What a lab node's own nvidia-smi says of its GPUs and MIG devices, as the device plugin would ask NVML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from gpunode.lab import nodes
from gpunode.lab.errors import LabError
from gpunode.lab.nodes import Node

_MODES = "nvidia-smi --query-gpu=index,uuid,mig.mode.current --format=csv,noheader"
_LIST = "nvidia-smi -L"
_MEMORY = "nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits"
_DESCRIBED = "nvidia-smi --query-gpu=name,memory.total,driver_version,mig.mode.current --format=csv,noheader,nounits"
_MODE = re.compile(r"(\d+), (GPU-[0-9A-Za-z-]+), (Enabled|Disabled|\[N/A\])")
_GPU = re.compile(r"GPU (\d+): .*\(UUID: (GPU-[0-9A-Za-z-]+)\)")
_MIG = re.compile(r"MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[0-9A-Za-z/-]+)\)")
_BOOT = "systemctl show -p UserspaceTimestampMonotonic --value"
_UNITS = "gpunode-lab-device-plugin-"
_MPS_UNIT, _MPS_ROOT = "gpunode-lab-mps-daemon", "/run/nvidia/mps"
_RUNTIME = "containerd config dump 2>/dev/null | sed -n 's/^ *default_runtime_name = .\\(.*\\).$/\\1/p'"


_LOST = 15


class NoDevicesError(Exception):
    """Say why a node's GPUs cannot be had, in nvidia-smi's words; is_lost: one has fallen off the bus."""

    def __init__(self, words: str, *, is_lost: bool = False) -> None:
        super().__init__(words)
        self.is_lost = is_lost


@dataclass(frozen=True)
class Described:
    """Hold what a node's GPUs have in common: model, memory in MiB, driver, its CUDA, and whether any can have MIG."""

    model: str
    memory: int
    driver: str
    cuda: str
    mig_capable: bool


@dataclass(frozen=True)
class Gpu:
    """Hold a GPU: its UUID, whether it is in MIG mode, and its MIG devices as (profile, UUID)."""

    uuid: str
    mig: bool
    devices: tuple[tuple[str, str], ...] = ()


def asked(node: Node) -> tuple[Gpu, ...]:
    """Return the node's GPUs; raise NoDevicesError where its nvidia-smi fails."""
    return parsed(_said(node, f"{_MODES} && {_LIST}"))


def memory(node: Node) -> tuple[int, ...]:
    """Return the memory of the node's GPUs in MiB; raise NoDevicesError where its nvidia-smi fails."""
    return tuple(int(line) for line in _said(node, _MEMORY).split() if line.isdigit())


def described(node: Node) -> Described:
    """Return what a node's first GPU and driver are; raise NoDevicesError where its nvidia-smi fails."""
    first, *rest = _said(node, f"{_DESCRIBED} && nvidia-smi --version").splitlines()
    model, memory, driver, mode = (cell.strip() for cell in first.split(","))
    cuda = next((line.partition(":")[2].strip() for line in rest if line.startswith("CUDA Version")), "")
    return Described(model, int(memory), driver, cuda, mode != "[N/A]")


def health(node: Node) -> tuple[str, frozenset[str]]:
    """Return the node's boot, and the UUIDs of GPUs and MIG devices that answer."""
    try:
        # Its status is 15 where one of several is lost, and it lists the others.
        boot, _, text = _said(node, f"{_BOOT}; {_LIST}; true").partition("\n")
    except NoDevicesError:
        return "", frozenset()
    return boot, frozenset(match[2] for form in (_GPU, _MIG) for match in form.finditer(text))


def hold(node: Node, count: int) -> None:
    """Have a process on the node hold each of its GPUs, as the plugin does that offers them."""
    let_go(node)
    start = "systemd-run --quiet --collect --unit={unit}{gpu} gpunode-lab-hold {gpu} --name nvidia-device-plugin"
    _done(node, "; ".join(start.format(unit=_UNITS, gpu=gpu) for gpu in range(count)))


def let_go(node: Node) -> None:
    """End these processes; fine where there are none."""
    _done(node, f"systemctl stop '{_UNITS}*.service'")


def start_mps(node: Node, resource: str, percentage: int, limits: Sequence[int]) -> None:
    """Have an MPS daemon on the node where the plugin's would be, told a percentage and a limit for each GPU in MiB.

    Raise NoDevicesError where it does not start.
    """
    root = f"{_MPS_ROOT}/{resource}"
    variables = {"CUDA_MPS_PIPE_DIRECTORY": f"{root}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{root}/log"}
    program = "nvidia-cuda-mps-control"
    words = " ".join(f"--setenv={name}={value}" for name, value in variables.items())
    tell = f"CUDA_MPS_PIPE_DIRECTORY={root}/pipe {program}"
    asked = [f"set_default_active_thread_percentage {percentage}"]
    asked += [f"set_default_device_pinned_mem_limit {index} {limit}M" for index, limit in enumerate(limits)]
    start = f"systemd-run --quiet --collect --unit={_MPS_UNIT} {words} {program} -f"
    wait = f"for n in 1 2 3 4 5 6 7 8 9; do [ ! -S {root}/pipe/control ] || break; sleep 0.3; done"
    told = " && ".join(f"echo '{each}' | {tell}" for each in asked)
    end_mps(node)
    begun = f"mkdir -p {root}/pipe {root}/log && nvidia-smi -c EXCLUSIVE_PROCESS && {start}"
    _said(node, f"{{ {begun} && {wait}; {told}; }} 2>&1")


def end_mps(node: Node) -> None:
    """End that daemon; fine where there is none."""
    _done(node, f"systemctl stop {_MPS_UNIT}; rm -rf {_MPS_ROOT}; nvidia-smi -c DEFAULT")


def _done(node: Node, command: str) -> None:
    # A node that does not answer, or is going down, holds nothing.
    with suppress(LabError):
        nodes.run(node, command, timeout=20)


def without_gpus(node: Node, runtime_class: str | None) -> str:
    """Return the runtime that gives a pod of this RuntimeClass no GPU; empty where GPUs are given."""
    if runtime_class is not None:
        return "" if runtime_class.startswith("nvidia") else runtime_class
    try:
        runtime = nodes.run(node, _RUNTIME, timeout=20).stdout.strip()
    except LabError:
        runtime = ""
    # Where no containerd answers it is not known, and no reason.
    return runtime if runtime and not runtime.startswith("nvidia") else ""


def parsed(text: str) -> tuple[Gpu, ...]:
    """Return the GPUs from the two answers of nvidia-smi, one behind the other."""
    modes = {match[1]: (match[2], match[3] == "Enabled") for match in _MODE.finditer(text)}
    devices: dict[str, list[tuple[str, str]]] = {index: [] for index in modes}
    index = ""
    for line in text.splitlines():
        if match := _GPU.match(line):
            index = match[1]
        elif (match := _MIG.search(line)) and index in devices:
            devices[index].append((match[1], match[2]))
    return tuple(Gpu(uuid, mig, tuple(devices[index])) for index, (uuid, mig) in modes.items())


def _said(node: Node, command: str) -> str:
    try:
        done = nodes.run(node, command, timeout=20)
    except LabError as error:
        raise NoDevicesError(str(error)) from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        words = f"nvidia-smi, exit code {done.returncode}: {said[0][:200] if said else 'it said nothing'}"
        raise NoDevicesError(words, is_lost=done.returncode == _LOST)
    return done.stdout
