"""What is to be done about a node of an IMEX domain: every comparison, and the steps for the differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice

from gpunode.base.comparison import (
    AS_DESIRED,
    BY_HAND,
    RESTART,
    by_hand,
    file_message,
    finding_message,
    pending,
    running_configuration,
)
from gpunode.base.decision import Decision, Step, bad, is_forbidden
from gpunode.base.disruption import Disruption
from gpunode.base.findings import Finding
from gpunode.components.driver.services import RUNS, state_of
from gpunode.components.driver.state import DriverState
from gpunode.components.imex.state import Domain, Imex
from gpunode.settings.imex import ImexSettings, known

STOPPED = "stopped, does not start at boot"
_NOT_INSTALLED = (
    "nvidia-imex is not installed. Remedy: take the driver from NVIDIA's repository, which brings it (driver.source = "
    "'cuda-repository'); with another source's driver install it yourself, or set imex.enabled = False"
)
_MOST = 6

_NODES = "the domain's nodes are {nodes}, and each needs the same list"
_MASKED = (
    "it was masked (the DRA driver's ComputeDomains need that). Remedy: `systemctl unmask nvidia-imex`, or set "
    "imex.enabled = False"
)
_OTHER_LIST = "{file} has IMEX_NODE_CONFIG_FILE={named}: take that line back"
_NO_ANSWER = "nvidia-imex-ctl says: {answer}"
_NO_PORT = "{file} has {command}: set it to 1, and IMEX_CMD_PORT to 50005, by which the daemon reports the domain"
_LACKING = (
    "{names}: see to nvidia-imex there (journalctl -u nvidia-imex), to TCP port 50000 between the nodes, and to one "
    "version of the driver; after another list of nodes, stop it on all before it starts on any, as a run of all does"
)
_FORBIDDEN = "{unit} runs, by which jobs share memory, and disruption.allow is nothing"
_BOOT = "{device} comes when the module is loaded with {parameter}=1: boot the node"
_declared = partial(finding_message, "imex")
SERVICE = _declared(
    "service",
    "The IMEX daemon is not in the state that the settings ask for.",
    "By nvidia-imex GPUs of several machines share memory over NVLink. Without it such jobs do not start.",
    classes=RESTART,
    causes=(_MASKED, _NOT_INSTALLED, _FORBIDDEN),
)
FILE = file_message("imex")
RUNNING_CONFIGURATION = running_configuration(
    "imex", "the list was written after nvidia-imex started, which reads it then alone"
)
CONFIGURATION = _declared(
    "list of nodes by config.cfg",
    "IMEX's configuration reads its list of nodes from another file.",
    "config.cfg names the file with the domain's nodes. gpunode writes another one, which then counts for nothing.",
    causes=(_OTHER_LIST,),
    remedies=(BY_HAND,),
)
DOMAIN = _declared(
    "IMEX domain",
    "The IMEX domain is not up.",
    "All nodes have to be connected, with the same list and driver. One of them is down, or has another list.",
    causes=(_NO_ANSWER, _NO_PORT, _LACKING),
    remedies=(BY_HAND,),
)
CHANNEL = _declared(
    "IMEX channel 0",
    "IMEX channel 0 has no device file.",
    "Programs share memory between machines by this channel.",
    causes=(_BOOT,),
    remedies=(BY_HAND,),
)


@dataclass(frozen=True)
class Desired:
    """Hold what a node of a domain is to be, and what a change of it may disturb.

    comes: whether nvidia-imex comes with a driver of gpunode's
    """

    settings: ImexSettings
    allowed: Disruption = Disruption.restart
    comes: bool = True


@dataclass(frozen=True)
class ImexChange:
    """Hold what a run does: `text` of the list of nodes to be written, None: it stays, or goes with `removes`.

    stop: whether the service is stopped first, on all nodes before it starts on any; start: whether it starts behind
    """

    text: str | None = None
    stop: bool = False
    start: bool = False
    removes: bool = False


def text_of(settings: ImexSettings) -> str:
    """Return the list of nodes, the same on every node: an address in each line, by the hosts' names."""
    return "".join(f"{address}\n" for _, address in sorted(settings.nodes.items()))


def decide(desired: Desired, actual: Imex, driver: DriverState) -> Decision[ImexChange]:
    """Return what is to be done about the list of nodes and the service; what the domain lacks is told by name."""
    if not desired.settings.enabled:
        return _removal(desired, actual)
    unit = actual.unit
    if unit is not None and unit.masked:
        item = SERVICE.compared("masked", RUNS, False, of=known().unit)
        return Decision((by_hand(item, _MASKED),))
    file, service = _file(desired.settings, actual), _service(actual, driver)
    if unit is None and not desired.comes:
        return Decision((file, by_hand(service, _NOT_INSTALLED)))
    elsewhere = tuple(_elsewhere(actual))
    running = tuple(_running(actual)) if not bad(file) else ()
    done = bad(file, service, *running)
    settled = not done and not elsewhere and unit is not None and unit.active and not driver.reboot_pending
    told = (*elsewhere, *(_domain(desired.settings, actual) if settled else ()), *_channel(desired, actual, driver))
    if not done:
        return Decision((file, service, *running, *told))
    active = unit is not None and unit.active
    stop = active and bool(bad(file, *running))
    change = ImexChange(text_of(desired.settings) if bad(file) else None, stop, start=True)
    findings = (file, service, *running, *told)
    if _is_foreign(desired.settings, actual):
        reason = (
            f"{known().nodes_file} has another list of nodes, and is not of gpunode's making. Remedy: have "
            "imex.domain, or imex.nodes, name all of them, or move the file away"
        )
        judged = tuple(by_hand(item, reason) if item in done else item for item in findings)
        return Decision(judged, (), f"imex: {reason}")
    return _with_step(desired, findings, done, change, active=stop, boot=driver.reboot_pending)


def _with_step(
    desired: Desired,
    findings: tuple[Finding, ...],
    done: tuple[Finding, ...],
    change: ImexChange,
    *,
    active: bool,
    boot: bool = False,
) -> Decision[ImexChange]:
    """Have a change wait that stops a running daemon, where the settings do not allow it: jobs share memory by it.

    boot: whether another driver is on disk than loaded: a daemon that is stopped does not start again before the boot
    """
    waits = None
    if is_forbidden(Disruption.restart, desired.allowed, int(active)):
        waits = _FORBIDDEN.format(unit=known().unit)
    if active and boot:
        waits = f"{known().unit}, once stopped, does not start again before the node boots into the driver on disk"
    if waits is not None:
        waiting = {item: pending(item, waits) for item in done}
        findings = tuple(waiting.get(item, item) for item in findings)
        done = tuple(waiting[item] for item in done)
    steps = tuple(
        Step(_action(item), (item,), item.disruption or Disruption.nothing, waits, change, felt=active) for item in done
    )
    return Decision(findings, steps)


def _is_foreign(settings: ImexSettings, actual: Imex) -> bool:
    """Say whether the list is somebody else's, with nodes in it: a domain that runs by it may have more than ours."""
    lines = (actual.nodes or "").splitlines()
    named = any(line.strip() and not line.strip().startswith("#") for line in lines)
    return named and actual.record is None and actual.nodes != text_of(settings)


def _file(settings: ImexSettings, actual: Imex) -> Finding:
    wanted = text_of(settings)
    found = AS_DESIRED if actual.nodes == wanted else "none" if actual.nodes is None else "another list"
    return FILE.compared(
        found,
        AS_DESIRED,
        found == AS_DESIRED,
        of=known().nodes_file,
        cause=_NODES.format(nodes=", ".join(sorted(settings.nodes))),
        disruption=Disruption.restart if actual.unit is not None and actual.unit.active else Disruption.nothing,
    )


def _service(actual: Imex, driver: DriverState) -> Finding:
    unit = actual.unit
    found = "not installed" if unit is None else state_of(unit.active, unit.enabled)
    # It starts with the module of its own version alone, which comes with the boot.
    waits = driver.reboot_pending and unit is not None and unit.enabled
    return SERVICE.compared(found, RUNS, found == RUNS or waits, of=known().unit)


def _running(actual: Imex) -> Iterator[Finding]:
    if actual.unit is not None and actual.unit.active and actual.unit.stale:
        yield RUNNING_CONFIGURATION.compared(
            "older than its list of nodes", "the list's", False, of=known().unit, disruption=Disruption.restart
        )


def _elsewhere(actual: Imex) -> Iterator[Finding]:
    """Yield what config.cfg, which is its owner's, says otherwise: IMEX then reads another list."""
    named = dict(actual.config).get("IMEX_NODE_CONFIG_FILE")
    if named and named != known().nodes_file:
        item = CONFIGURATION.compared(named, known().nodes_file, False)
        yield by_hand(item, _OTHER_LIST.format(file=known().config_file, named=named))


def _domain(settings: ImexSettings, actual: Imex) -> Iterator[Finding]:
    desired = f"{known().up}, {len(settings.nodes)} nodes"
    if actual.domain is None:
        cause = _NO_ANSWER.format(answer=actual.answer or "nothing")
        if (enabled := dict(actual.config).get("IMEX_CMD_ENABLED")) != "1":
            said = "no IMEX_CMD_ENABLED" if enabled is None else f"IMEX_CMD_ENABLED={enabled}"
            cause = _NO_PORT.format(file=known().config_file, command=said)
        yield DOMAIN.not_known(desired, cause, BY_HAND)
        return
    lacking = tuple(_lacking(settings, actual.domain))
    good = actual.domain.status == known().up and not lacking
    item = DOMAIN.compared(desired if good else actual.domain.status, desired, good)
    names = ", ".join(islice(lacking, _MOST)) + (f" and {len(lacking) - _MOST} more" if len(lacking) > _MOST else "")
    yield by_hand(item, _LACKING.format(names=names or "the daemon names no node"))


def _lacking(settings: ImexSettings, domain: Domain) -> Iterator[str]:
    """Yield who is missing, by the host's name and address, and which nodes that are ready do not reach each other."""
    names = {address: f"{host} ({address})" for host, address in settings.nodes.items()}
    told = {node.address: node for node in domain.nodes}
    ready = {address for address, node in told.items() if node.status == known().ready}
    for address, name in names.items():
        if address not in told:
            yield f"{name} is not among the daemon's nodes"
        elif address not in ready:
            yield f"{name} is {told[address].status or 'without a status'}"
    for node in domain.nodes:
        for other, status in node.connections:
            if node.address in ready and other in ready and status != known().connected:
                yield f"{names.get(node.address, node.address)} to {names.get(other, other)} is {status}"


def _channel(desired: Desired, actual: Imex, driver: DriverState) -> Iterator[Finding]:
    if not desired.settings.channel0 or driver.loaded_version is None or driver.reboot_pending:
        return
    loaded = dict(driver.parameters).get(known().channel_parameter.removeprefix("NVreg_"))
    if loaded not in (None, "1"):
        return  # the driver's own finding tells that its parameters are to come
    item = CHANNEL.compared("there" if actual.channel0 else None, "there", actual.channel0)
    yield by_hand(item, _BOOT.format(device=known().channel_device, parameter=known().channel_parameter))


def _removal(desired: Desired, actual: Imex) -> Decision[ImexChange]:
    if actual.record is None:
        return Decision(())
    unit = actual.unit
    item = FILE.compared("gpunode's", "none", False, of=known().nodes_file)
    findings = [item]
    active = unit is not None and unit.active
    if unit is not None and not unit.masked and (active or unit.enabled):
        disruption = Disruption.restart if active else Disruption.nothing
        findings.append(
            SERVICE.compared(state_of(active, unit.enabled), STOPPED, False, of=known().unit, disruption=disruption)
        )
    change = ImexChange(stop=unit is not None and not unit.masked, removes=True)
    return _with_step(desired, tuple(findings), tuple(findings), change, active=active)


def _action(item: Finding) -> str:
    if path := FILE.named(item):
        return f"remove {path}" if item.desired == "none" else f"write {path}, with nvidia-imex stopped"
    if RUNNING_CONFIGURATION.named(item):
        return "restart nvidia-imex"
    return "stop nvidia-imex" if item.desired == STOPPED else "run nvidia-imex, now and at boot"
