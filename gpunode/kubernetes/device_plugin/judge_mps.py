"""Do the plugin's MPS daemons on a node limit their clients as the node's settings ask? Pure.

source: NVIDIA/k8s-device-plugin v0.20.0, cmd/mps-control-daemon/mps/daemon.go (limits, compute mode), README.md (With
CUDA MPS)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode.base.comparison import RESTART
from gpunode.base.findings import Finding, FindingClass
from gpunode.components.mps.plugin import CLIENT, FAULT, PROGRAM, ROOT, SERVER, PluginDaemon, PluginMps
from gpunode.kubernetes.nodes.component import cluster_finding
from gpunode.settings import Settings
from gpunode.settings.cluster import BY_CHART
from gpunode.settings.sharing import WHOLE_GPU
from gpunode.system.gpu import Gpus

# Whether a daemon does so does not follow from the node's configuration.
ANSWERS = "answers"
_MODE = "Exclusive_Process"
_ENABLED = "Enabled"
_GIBIBYTE = 1024
_LOOK = "see the log of the MPS daemon's pod on the node, and docs/troubleshooting.md"

_NOT_ON_PATH = "nvidia-cuda-mps-control, which queries it, is not on the node's PATH"
_LOG = "see the log of the MPS daemon's pod on the node"
_FIND = f"see who starts it: `kubectl get pods --all-namespaces`, and {ROOT} on the node"
_THREADS = "{replicas} replicas mean that, and the plugin configures its daemon once, when it starts"
_MEMORY = "{replicas} replicas mean {each}M of {total} MiB, which the daemon reports rounded"
_USERS, _ONE_USER = (
    "clients of users {users} came since it was started, and a daemon serves one user at a time: those of another "
    "wait, and look as if they hang",
    "have its pods run as one user (securityContext.runAsUser)",
)
_FAULTY, _END_CLIENTS = (
    "after a fault of one client it takes no other until its own have gone",
    "end its clients: then the server takes others again",
)
_BYPASSES, _END_IT = (
    f"it uses the GPU without the daemon: in compute mode {_MODE} no MPS server starts with it",
    "end it, or have it request the GPU by a pod",
)
PLUGIN_MPS = cluster_finding(
    "the plugin's MPS daemon of",
    "The device plugin's MPS daemon does not serve as the settings ask.",
    "Pods of the shared resource reach their GPUs through this daemon. It does not answer, has other limits than "
    "the settings mean, had a fault, or another process uses the GPU without it: programs then hang, fail or have "
    "too much memory.",
    name="mps-daemon",
    causes=(_NOT_ON_PATH, _THREADS, _MEMORY, _USERS, _FAULTY, _BYPASSES),
    remedies=(_LOOK, _LOG, _FIND, _ONE_USER, _END_CLIENTS, _END_IT),
    classes=RESTART,
)
COMPUTE_MODE = cluster_finding(
    "compute mode of GPU",
    "A GPU that pods share by MPS is in another compute mode than the plugin's MPS daemon sets.",
    "In another mode programs bypass the MPS server, so limits of memory and threads do not count.",
    cause="the plugin's daemon sets it when it starts: in another mode programs bypass the MPS server",
    remedies=(_LOOK,),
    classes=RESTART,
)
MIG_MODE = cluster_finding(
    "MIG mode of GPU",
    "MIG is enabled on a GPU that pods are to share by MPS.",
    "The device plugin does not share GPUs by MPS while MIG is enabled on them, and offers nothing of them.",
    cause="the plugin does not share GPUs by MPS while MIG is enabled on them",
    remedies=("set mig.config = 'all-disabled', or another sharing.strategy",),
)


def judge_mps(settings: Settings, actual: PluginMps, gpus: Gpus) -> Iterator[Finding]:
    """Yield one finding per thing that the plugin's MPS daemons are to have, and what keeps their clients waiting.

    Nothing with a ConfigMap of the user's own (device_plugin.config_name), which gpunode does not read, or with another
    folder of the daemons (mps.root of the chart's values).
    """
    plugin = settings.device_plugin
    if plugin.method not in BY_CHART or plugin.config_name is not None or _root(plugin.values) != ROOT:
        return
    desired = resource_of(settings)
    for each in actual.daemons:
        if each.answers and each.resource != desired:
            yield _person_s(PLUGIN_MPS.compared(ANSWERS, "none", False, of=each.resource, remedy=_FIND))
    found = None if desired is None else actual.daemon(desired)
    if desired is not None:
        yield _there(desired, found, actual.program)
    if found is not None and found.answers:
        yield from _limits(settings, found, gpus)
        for gpu in gpus.gpus:
            yield COMPUTE_MODE.compared(gpu.compute_mode, _MODE, gpu.compute_mode == _MODE, of=str(gpu.index))
            if gpu.mig_mode.current == _ENABLED:
                yield _person_s(MIG_MODE.compared(_ENABLED, "Disabled", False, of=str(gpu.index)))
        yield from _clients(found, actual)
        yield from _in_the_way(found, actual)


def _there(resource: str, found: PluginDaemon | None, program: str | None) -> Finding:
    if found is not None and program is None:
        # As on a node whose driver is below another root (driver.root): it can be as desired all the same.
        return PLUGIN_MPS.not_known(None, _NOT_ON_PATH, _LOOK, of=resource)
    return PLUGIN_MPS.compared(
        "none" if found is None else ANSWERS if found.answers else "does not answer",
        ANSWERS,
        found is not None and found.answers,
        of=resource,
    )


def resource_of(settings: Settings) -> str | None:
    """Return the resource whose MPS daemon a node is to have; None where it is to have none."""
    sharing = settings.sharing
    if sharing.strategy != "mps":
        return None
    return f"{WHOLE_GPU}.shared" if sharing.rename else WHOLE_GPU


def percentage(replicas: int) -> str:
    """Return the percentage of threads that the plugin gives each client, as its daemon answers: it divides whole."""
    return f"{float(100 // replicas):.1f}"


def limits(memory_mib: int, replicas: int) -> tuple[str, ...]:
    """Return how a daemon may answer to the limit that the plugin makes of a GPU's memory.

    The plugin divides bytes and tells mebibytes; nvidia-smi tells mebibytes, rounded, so that one more or less may be
    right. From 1024M on the daemon answers whole gigabytes, rounded down (tried with 535).
    """
    each = sorted(
        {(memory_mib + spare) // replicas for spare in (0, 1, -1)}, key=lambda mib: mib != memory_mib // replicas
    )
    return tuple(dict.fromkeys(f"{mib // _GIBIBYTE}G" if mib >= _GIBIBYTE else f"{mib}M" for mib in each))


def _root(values: object) -> object:
    mps = values.get("mps") if isinstance(values, dict) else None
    return mps.get("root", ROOT) if isinstance(mps, dict) else ROOT


def _limits(settings: Settings, found: PluginDaemon, gpus: Gpus) -> Iterator[Finding]:
    replicas = settings.sharing.replicated.get(WHOLE_GPU)
    if replicas is None:
        return
    threads, memory = percentage(replicas), {gpu.index: gpu.memory_mib for gpu in gpus.gpus}
    yield PLUGIN_MPS.compared(
        found.percentage,
        threads,
        found.percentage == threads,
        of=f"{found.resource}, active thread percentage",
        cause=_THREADS.format(replicas=replicas),
    )
    for index, limit in found.limits:
        if (total := memory.get(index)) is not None:
            yield _limit(found.resource, index, limit, total, replicas)
        else:
            of = f"{found.resource}, pinned memory limit of GPU {index}"
            cause = (
                f"nvidia-smi does not tell the memory of GPU {index}, of which each of {replicas} replicas has a part"
            )
            yield PLUGIN_MPS.not_known(f"1/{replicas} of its memory", cause, "run `nvidia-smi` on the node", of=of)


def _limit(resource: str, index: int, limit: str, total: int, replicas: int) -> Finding:
    right = limits(total, replicas)
    return PLUGIN_MPS.compared(
        limit or "none",
        limit if limit in right else right[0],
        limit in right,
        of=f"{resource}, pinned memory limit of GPU {index}",
        cause=_MEMORY.format(replicas=replicas, each=total // replicas, total=total),
    )


def _clients(found: PluginDaemon, actual: PluginMps) -> Iterator[Finding]:
    """Yield who uses the daemon; clients of several users are a caution."""
    seen = sum(each.type == CLIENT for each in actual.processes)
    said = f"{len(found.clients)}, of {len(found.servers)} servers; {seen} processes are {CLIENT} to nvidia-smi"
    item = PLUGIN_MPS.compared(said, said, True, of=f"{found.resource}, clients")
    if len(found.users) > 1:
        users = ", ".join(map(str, found.users))
        item = replace(item, cause=_USERS.format(users=users), remedy=_ONE_USER)
    yield item


def _in_the_way(found: PluginDaemon, actual: PluginMps) -> Iterator[Finding]:
    """Yield what keeps clients waiting without a word; no run mends it."""
    for server in found.servers:
        if server.state is not None:
            fault = PLUGIN_MPS.compared(
                server.state,
                "ACTIVE" if server.state == FAULT else server.state,
                server.state != FAULT,
                of=f"{found.resource}, server {server.pid}",
                cause=_FAULTY,
                remedy=_END_CLIENTS,
            )
            yield _person_s(fault)
    if not found.servers and found.errors:
        failed = PLUGIN_MPS.compared(
            f"no server, and {found.errors} failures",
            "a server, or no failure",
            False,
            of=f"{found.resource}, log",
            cause=found.last_error,
        )
        yield _person_s(failed)
    for each in actual.processes:
        if each.type == PROGRAM and not each.name.endswith(SERVER):
            beside = PLUGIN_MPS.compared(
                f"process {each.pid} ({each.name})",
                "its clients alone",
                False,
                of=f"{found.resource}, GPU {each.gpu}",
                cause=_BYPASSES,
                remedy=_END_IT,
            )
            yield _person_s(beside)


def _person_s(item: Finding) -> Finding:
    """Return a difference as a person's: no step of a run mends it, and it does not go by itself."""
    return replace(item, by_person=item.finding_class is not FindingClass.OK)
