"""Do the plugin's MPS daemons on a node limit their clients as the node's settings ask? Pure.

source: NVIDIA/k8s-device-plugin v0.20.0, cmd/mps-control-daemon/mps/daemon.go (limits, compute mode), README.md (With
CUDA MPS)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpunode.base.comparison import compared, not_known
from gpunode.base.findings import Finding, FindingClass
from gpunode.base.subject import Subject
from gpunode.components.mps.plugin import CLIENT, FAULT, PROGRAM, ROOT, SERVER, PluginDaemon, PluginMps
from gpunode.kubernetes.nodes.component import COMPONENT
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
            foreign = compared(
                COMPONENT,
                Subject.MPS_DAEMON.of(each.resource),
                ANSWERS,
                "none",
                False,
                f"see who starts it: `kubectl get pods --all-namespaces`, and {ROOT} on the node",
            )
            yield _person_s(foreign)
    found = None if desired is None else actual.daemon(desired)
    if desired is not None:
        yield _there(desired, found, actual.program)
    if found is not None and found.answers:
        yield from _limits(settings, found, gpus)
        yield from _modes(gpus)
        yield from _clients(found, actual)
        yield from _in_the_way(found, actual)


def _there(resource: str, found: PluginDaemon | None, program: str | None) -> Finding:
    if found is not None and program is None:
        # As on a node whose driver is below another root (driver.root): it can be as desired all the same.
        cause = "nvidia-cuda-mps-control, by which it is asked, is not on the node's PATH"
        return not_known(COMPONENT, Subject.MPS_DAEMON.of(resource), None, cause, _LOOK)
    return compared(
        COMPONENT,
        Subject.MPS_DAEMON.of(resource),
        "none" if found is None else ANSWERS if found.answers else "does not answer",
        ANSWERS,
        found is not None and found.answers,
        _LOOK,
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
    yield compared(
        COMPONENT,
        Subject.MPS_DAEMON.of(f"{found.resource}, active thread percentage"),
        found.percentage,
        threads,
        found.percentage == threads,
        _LOOK,
        f"{replicas} replicas mean that, and the plugin tells its daemon once, when it starts",
    )
    for index, limit in found.limits:
        if (total := memory.get(index)) is not None:
            yield _limit(found.resource, index, limit, total, replicas)
        else:
            what = Subject.MPS_DAEMON.of(f"{found.resource}, pinned memory limit of GPU {index}")
            cause = (
                f"nvidia-smi does not tell the memory of GPU {index}, of which each of {replicas} replicas has a part"
            )
            yield not_known(COMPONENT, what, f"1/{replicas} of its memory", cause, "run `nvidia-smi` on the node")


def _limit(resource: str, index: int, limit: str, total: int, replicas: int) -> Finding:
    right = limits(total, replicas)
    return compared(
        COMPONENT,
        Subject.MPS_DAEMON.of(f"{resource}, pinned memory limit of GPU {index}"),
        limit or "none",
        limit if limit in right else right[0],
        limit in right,
        _LOOK,
        f"{replicas} replicas mean {total // replicas}M of {total} MiB, which the daemon answers rounded",
    )


def _modes(gpus: Gpus) -> Iterator[Finding]:
    for gpu in gpus.gpus:
        yield compared(
            COMPONENT,
            Subject.COMPUTE_MODE.of(str(gpu.index)),
            gpu.compute_mode,
            _MODE,
            gpu.compute_mode == _MODE,
            _LOOK,
            "the plugin's daemon sets it when it starts: in another mode programs pass the MPS server by",
        )
        if gpu.mig_mode.current == _ENABLED:
            divided = compared(
                COMPONENT,
                Subject.MIG_MODE.of(str(gpu.index)),
                _ENABLED,
                "Disabled",
                False,
                "set mig.config = 'all-disabled', or another sharing.strategy",
                "the plugin does not share GPUs by MPS while MIG is enabled on them",
            )
            yield _person_s(divided)


def _clients(found: PluginDaemon, actual: PluginMps) -> Iterator[Finding]:
    """Yield who uses the daemon; clients of several users are a caution."""
    seen = sum(each.type == CLIENT for each in actual.processes)
    said = f"{len(found.clients)}, of {len(found.servers)} servers; {seen} processes are {CLIENT} to nvidia-smi"
    item = compared(COMPONENT, Subject.MPS_DAEMON.of(f"{found.resource}, clients"), said, said, True)
    if len(found.users) > 1:
        users = ", ".join(map(str, found.users))
        cause = (
            f"clients of users {users} came since it was started, and a daemon serves one user at a time: those of "
            "another wait, and look as if they hang"
        )
        item = replace(item, cause=cause, remedy="have its pods run as one user (securityContext.runAsUser)")
    yield item


def _in_the_way(found: PluginDaemon, actual: PluginMps) -> Iterator[Finding]:
    """Yield what keeps clients waiting without a word; no run mends it."""
    for server in found.servers:
        if server.state is not None:
            fault = compared(
                COMPONENT,
                Subject.MPS_DAEMON.of(f"{found.resource}, server {server.pid}"),
                server.state,
                "ACTIVE" if server.state == FAULT else server.state,
                server.state != FAULT,
                "end its clients: then the server takes others again",
                "after a fault of one client it takes no other until its own have gone",
            )
            yield _person_s(fault)
    if not found.servers and found.errors:
        failed = compared(
            COMPONENT,
            Subject.MPS_DAEMON.of(f"{found.resource}, log"),
            f"no server, and {found.errors} failures",
            "a server, or no failure",
            False,
            _LOOK,
            found.last_error,
        )
        yield _person_s(failed)
    for each in actual.processes:
        if each.type == PROGRAM and not each.name.endswith(SERVER):
            beside = compared(
                COMPONENT,
                Subject.MPS_DAEMON.of(f"{found.resource}, GPU {each.gpu}"),
                f"process {each.pid} ({each.name})",
                "its clients alone",
                False,
                "end it, or have it ask for the GPU by a pod",
                f"it uses the GPU without the daemon: in compute mode {_MODE} no MPS server starts beside it",
            )
            yield _person_s(beside)


def _person_s(item: Finding) -> Finding:
    """Return a difference as a person's: no step of a run mends it, and it does not go by itself."""
    return replace(item, by_person=item.finding_class is not FindingClass.OK)
