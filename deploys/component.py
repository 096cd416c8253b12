"""What every deploy of ours shares: it runs alone or within gpu_node.py, on accepted nodes only, and fails alone.

An exception that leaves a deploy body aborts every host of the run (pyinfra 3.10); here it becomes a failing operation
of the one host.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any

from pyinfra import host
from pyinfra.api.arguments import all_argument_meta
from pyinfra.api.deploy import deploy
from pyinfra.context import ctx_host

from gpunode.base import tables
from gpunode.base.disruption import Drain
from gpunode.base.reading import Unknown
from gpunode.base.run_context import RETRIES, Slot
from gpunode.base.tables.sources import Distribution
from gpunode.facts.node import Machine as MachineFact
from gpunode.facts.node import Node as NodeFact
from gpunode.fleet import hooks, run_end
from gpunode.fleet.access import errors
from gpunode.fleet.inventory import validate_state
from gpunode.kubernetes.device_plugin.desired_cluster import DesiredCluster, desired_cluster
from gpunode.kubernetes.drain.commands import Drain as DrainSettings
from gpunode.kubernetes.drain.commands import drain_of
from gpunode.kubernetes.mig_label import FOREIGN_CORDON, asks, asks_for_cordon, by_label, left_alone
from gpunode.node import Node
from gpunode.node.components import desired_files
from gpunode.node.machine import Machine
from gpunode.node.preflight import Refusal, cautions, refusals
from gpunode.node.verdict import judge_apart
from gpunode.operations import applied, files
from gpunode.operations.control_plane import cluster_nodes, unanswered, wait_without_cluster
from gpunode.operations.drain import drain_before
from gpunode.operations.failure import has_work, leave_alone, reason_of, refuse
from gpunode.operations.own_files import keeps_no_others
from gpunode.operations.phase import announcing, begin_image, is_announcing, is_image, is_unattended
from gpunode.settings import Settings, component_models, settings_from
from gpunode.settings.hosts import data_of, in_domain


@dataclass
class _HostRun:
    """What the deploys of a run know of one host.

    machine: None until the host is accepted; only what a run does not change is read from it: system, GPUs
    settings, own_files: what they were made of, and the result
    announced: the deploys whose questions are announced
    is_whole: whether the run applies all components, and records that at its end
    """

    is_judged: bool = False
    machine: Machine | None = None
    settings: tuple[dict[str, Any], Settings] | None = None
    announced: set[Callable[..., Any]] = field(default_factory=set)
    own_files: tuple[Settings, Machine, Mapping[str, str | None]] | None = None
    is_whole: bool = False


_host_run = Slot(_HostRun)
_cluster: Slot[tuple[Settings | None, DesiredCluster | None] | None] = Slot(lambda: None)
_bodies: dict[Callable[..., Any], Callable[[], None]] = {}


def _known() -> _HostRun:
    return _host_run.of(ctx_host.get())


def begin_whole_run() -> None:
    """Have it known that this host's deploys are not run alone."""
    _known().is_whole = True
    # A run lists no operation that has nothing to do: it may come to its end without one about own files.
    keeps_no_others(ctx_host.get())


def is_whole_run() -> bool:
    """Say whether this run brings everything about on this host."""
    return _known().is_whole


def accepted() -> bool:
    """Say whether this node can become what its settings ask; one that cannot gets one operation, the refusal."""
    current, known = ctx_host.get(), _known()
    if not known.is_judged:
        reading: Machine | None = None
        reasons: Sequence[Refusal | str]
        run_end.takes_part(current)
        try:
            if (why := _left_alone()) is not None and why.code == FOREIGN_CORDON.code:
                known.is_judged = True
                run_end.note(current, left_alone=f"{why.reason}; {why.remedy}")
                host.log(f"left alone: {why.reason}; {why.remedy}")
                leave_alone(name="Leave this node alone", reason=why.reason)
                return False
            reading, reasons = _judged() if why is None else (None, [why])
        except Exception as error:
            reasons = [reason_of(error)]
        known.is_judged, known.machine = True, None if reasons else reading
        if reading is not None and reading.is_image:
            begin_image()
            run_end.note(current, unverified="an image is made here, which its first boot verifies")
            host.log("an image is made here: what is started, loaded and verified is left to its first boot")
        if reasons:
            run_end.refused(current, reasons)
            refuse(name="Refuse this node", reasons=[str(item) for item in reasons])
            refused = [each for each in reasons if isinstance(each, Refusal)]
            with suppress(Exception):
                if refused and isinstance(node := host.get_fact(NodeFact), Node):
                    desired = asked if isinstance(asked := _asked(), Settings) else _own()
                    run_end.judged(current, judge_apart(desired, node, refused, errors.unjudged))
    return known.machine is not None


def _left_alone() -> Refusal | None:
    """Return why the node is left to whoever has cordoned it; the cluster is asked once in a run, for all hosts."""
    found = _own()
    if not asks_for_cordon(found):
        return None
    return left_alone(host.name, found, cluster_nodes(found.kubernetes, found.proxy))


def _judged() -> tuple[Machine | None, Sequence[Refusal | str]]:
    """Return what the node is, and the reasons to refuse it."""
    reading = host.get_fact(MachineFact)
    if isinstance(reading, Unknown):
        return None, [reading.reason]
    if isinstance(desired := _asked(), Refusal):
        return None, [desired]
    actual = refusals(settings(), reading)
    for item in cautions(settings(), reading):
        host.log(f"caution: {item}")
    return reading, list(actual)


def settings() -> Settings:
    """Return this host's validated settings, with what its label in the cluster says where that is asked for."""
    found = _asked()
    if isinstance(found, Refusal):
        raise RuntimeError(f"{host.name} was not accepted")
    return found


def _asked() -> Settings | Refusal:
    found = _own()
    if not asks(found):
        return found
    # The cluster is asked once in a run. Where it does not answer, MIG alone waits for it.
    named = by_label(host.name, found, cluster_nodes(found.kubernetes, found.proxy))
    return found if isinstance(named, Unknown) else named


def _own() -> Settings:
    """Return the settings in this host's data, validated anew where these changed; a run asks a hundred times."""
    run, data = _known(), data_of(ctx_host.get()).data
    ours = {name: data[name] for name in component_models() if name in data}
    if run.settings is None or run.settings[0] != ours:
        # Copied first: whoever changes a value within them has changed them.
        found = settings_from(ours)
        # The nodes of its IMEX domain are found among all hosts of the inventory.
        RETRIES.set(ctx_host.get(), found.disruption.retry)
        run.settings = copy.deepcopy(ours), in_domain(found, everyone()[host.name]) if found.imex.enabled else found
    return run.settings[1]


def everyone() -> Mapping[str, Settings]:
    """Return host -> settings of the whole inventory, of hosts that this run leaves out as well."""
    return validate_state(host.state.inventory)


def cluster() -> tuple[Settings | None, DesiredCluster | None]:
    """Return settings of a node of the inventory's cluster, and what the cluster is to get; None where there is none.

    What it is to get follows from all hosts, and is made once for all of them.
    """
    found = _cluster.of(host.state)
    if found is None:
        known = everyone()
        cluster_of = next((each for each in known.values() if each.kubernetes.enabled), None)
        found = cluster_of, None if cluster_of is None else desired_cluster(known)
        _cluster.set(host.state, found)
    return found


def drain_settings() -> DrainSettings | None:
    """Return how this host's node is emptied and given back; None where it is in no cluster or is not drained."""
    return None if is_image() else drain_of(host.name, settings())


def drain() -> Drain | None:
    """Return what empties this host's node before a step that its pods would feel; None where nothing does."""
    found = drain_settings()
    return None if found is None else partial(_emptied, found, settings())


def _emptied(how: DrainSettings, own: Settings, reason: str) -> Iterator[Any]:
    wait_without_cluster(own, f"a drain ({reason})")
    if unanswered(own) is None:
        yield from drain_before(how, reason)


def distribution() -> Distribution:
    """Return the supported distribution of the accepted node."""
    system = node().operating_system
    found = tables.distribution(system.id, system.version_id)
    if found is None:
        raise RuntimeError(f"{system.name} is not supported")
    return found


def node() -> Machine:
    """Return what the accepted node was at the start of the run; good for what a run does not change."""
    machine = _known().machine
    if machine is None:
        raise RuntimeError(f"{host.name} was not accepted")
    return machine


def own_file(path: str, keep: str, remove: str = "") -> None:
    """Keep a file of gpunode's own at what the settings ask for, or remove it where they ask for none.

    Of a path that they say nothing of, nothing is done.

    + keep, remove: what the one and the other are called
    """
    run, desired, machine = _known(), settings(), node()
    if run.own_files is None or run.own_files[0] is not desired or run.own_files[1] is not machine:
        # Rendered once for settings and node.
        run.own_files = desired, machine, desired_files(desired, machine)
    files_of = run.own_files[2]
    if path not in files_of:
        return
    text = files_of[path]
    if text is None:
        needed(False, files.absent, name=remove, path=path)
    else:
        files.content(name=keep, path=path, text=text)


def needed(asked: bool, operation: Callable[..., Any], **arguments: Any) -> None:
    """Add an operation where it is asked for, or has something to take away: a run lists nothing else.

    A deploy that is run alone was asked for by its name.
    """
    own = {key: value for key, value in arguments.items() if key not in all_argument_meta}
    if asked or is_announcing(ctx_host.get()) or not is_whole_run() or has_work(operation, **own):
        operation(**arguments)


def announce(*components: Callable[..., Any]) -> None:
    """Make known what the components' operations are going to ask, so that one round trip answers all of them.

    Their bodies run for it, which changes nothing; a component that is not announced here announces itself.
    """
    current = ctx_host.get()
    if not hooks.are_installed():
        return
    done = _known().announced
    bodies: list[Callable[[], None]] = [_bodies.get(item, item) for item in components]
    for body in bodies:
        if body not in done:
            done.add(body)
            # What is wrong with it is said when it runs in earnest.
            with suppress(Exception), announcing(current):
                body()


def read_at_once(*components: Callable[..., Any]) -> None:
    """Let preflight's reading answer what the components' operations ask, too, in a run that asks nobody in between.

    It counts until something is changed: where nothing is, the node has been read once. Where the cluster's labels say
    what is asked, that is known only when the cluster has been.
    """
    if is_unattended() and not asks(_own()):
        announce(*components)


def component(title: str, own_files: bool = False) -> Callable[[Callable[[], None]], Callable[..., Any]]:
    """Make a deploy of a function that names one component's operations.

    own_files: whether they keep files of gpunode's, which a deploy that is run alone brings up to date in the record
    """

    def decorate(function: Callable[[], None]) -> Callable[..., Any]:
        @deploy(title)
        @wraps(function)
        def contained() -> None:
            try:
                if accepted():
                    announce(function)
                    function()
                    if own_files and not is_whole_run():
                        applied.brought_up_to_date(name="Record what was applied")
            except Exception as error:
                refuse(name=f"Give up on {title}", reasons=[reason_of(error)])

        _bodies[contained] = function
        return contained

    return decorate


def run_alone(module: str, own: Callable[[], Any], then: Callable[[], Any] | None = None) -> None:
    """Run the deploys of a file that pyinfra executes; an imported file's `__name__` has `deploys.` in it."""
    if "deploys." not in module:
        own()
        if then is not None:
            then()
