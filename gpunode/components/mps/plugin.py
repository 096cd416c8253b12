"""The MPS daemons of NVIDIA's device plugin on a node, as they answer by their sockets.

The plugin has one for each resource that it shares, and tells it, once, a percentage of threads and a limit of memory
for each GPU. source: NVIDIA/k8s-device-plugin v0.20.0, cmd/mps-control-daemon/mps/daemon.go and root.go; the states of
a server and the type M+C of a client: NVIDIA's Multi-Process Service documentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gpunode.base.probe_output import cells, number, repeated, values
from gpunode.base.reading import Reading

# The chart's default for mps.root, and the GPU Operator's.
ROOT = "/run/nvidia/mps"
# It is no client of itself.
SERVER = "nvidia-cuda-mps-server"
CLIENT, PROGRAM = "M+C", "C"
FAULT = "FAULT"
_STATES = ("INITIALIZING", "ACTIVE", FAULT)


@dataclass(frozen=True)
class PluginServer(Reading):
    """Hold a server of a daemon: its number in the daemon's pod, and its state (ACTIVE, INITIALIZING, FAULT).

    `state` is None where the daemon does not know of states: 535 does not.
    """

    pid: int
    state: str | None


@dataclass(frozen=True)
class PluginDaemon(Reading):
    """Hold the daemon of a resource, such as nvidia.com/gpu.

    `answers` says whether it answers; only then there is more of it. `percentage` is its answer as text, such as 10.0,
    `limits` are (GPU, limit of memory as text, nothing where there is none), `clients` their numbers in pods. `errors`
    counts what its log calls a failure since it was started, `last_error` is the last of them; `users` are those whose
    clients the log has.
    """

    resource: str
    answers: bool
    percentage: str | None = None
    limits: tuple[tuple[int, str], ...] = ()
    servers: tuple[PluginServer, ...] = ()
    clients: tuple[int, ...] = ()
    errors: int = 0
    last_error: str | None = None
    users: tuple[int, ...] = ()


@dataclass(frozen=True)
class GpuProcess(Reading):
    """Hold a process on a GPU as nvidia-smi has it: the GPU's bus address, number, type (C, G, M+C), program."""

    gpu: str
    pid: int
    type: str
    name: str


@dataclass(frozen=True)
class PluginMps(Reading):
    """Hold the path of the control program (None: not installed), the plugin's daemons, and the GPUs' processes.

    Processes are read where a daemon answers alone; `mps_processes`: those of MPS, where a GPU is exclusive.
    """

    program: str | None = None
    daemons: tuple[PluginDaemon, ...] = ()
    processes: tuple[GpuProcess, ...] = ()
    mps_processes: tuple[int, ...] = ()

    def daemon(self, resource: str) -> PluginDaemon | None:
        """Return the daemon of a resource."""
        return next((each for each in self.daemons if each.resource == resource), None)


def parse_plugin_mps(lines: list[str]) -> PluginMps:
    """Parse the probe's lines (gpunode/components/mps/plugin.sh); raise ParseError."""
    rows = {
        key: [cells(line, count) for line in repeated(lines, key)]
        for key, count in (("daemon", 5), ("percentage", 2), ("limit", 3), ("server", 3), ("client", 2))
    }
    percentages = {resource: text for resource, text in rows["percentage"]}

    def of(resource: str, key: str) -> list[list[str]]:
        return [row for row in rows[key] if row[0] == resource]

    daemons = tuple(
        PluginDaemon(
            resource=resource,
            answers=answers == "yes",
            percentage=percentages.get(resource) or None,
            limits=tuple((number(index), limit) for _, index, limit in of(resource, "limit")),
            servers=tuple(
                PluginServer(number(pid), state if state in _STATES else None)
                for _, pid, state in of(resource, "server")
            ),
            clients=tuple(number(pid) for _, pid in of(resource, "client")),
            errors=number(errors),
            last_error=last or None,
            users=tuple(sorted(map(number, users.split()))),
        )
        for resource, answers, errors, last, users in rows["daemon"]
    )
    processes = tuple(_processes(repeated(lines, "smi")))
    mps_processes = tuple(map(number, repeated(lines, "mps_process")))
    daemons = tuple(sorted(daemons, key=lambda each: each.resource))
    return PluginMps(values(lines).get("program"), daemons, processes, mps_processes)


def _processes(lines: list[str]) -> Iterator[GpuProcess]:
    """Yield what `nvidia-smi -q -d PIDS` lists: a process's type and name follow its number."""
    gpu, found = "", dict[str, str]()
    for line in lines:
        key, divided, value = (part.strip() for part in line.partition(":"))
        if not line.startswith(" ") and key.startswith("GPU "):
            gpu = line.strip().removeprefix("GPU ")
        elif divided and key in ("Process ID", "Type", "Name"):
            found[key] = value
        if key == "Name" and found.keys() == {"Process ID", "Type", "Name"}:
            yield GpuProcess(gpu, number(found["Process ID"]), found["Type"], found["Name"])
            found.clear()
