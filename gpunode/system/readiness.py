"""Whether a machine that was made a minute ago has come up: cloud-init is done, and the system has started."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gpunode.base.probe_output import repeated, values
from gpunode.base.reading import Reading, Unknown

# What `cloud-init status` calls the time before its end; `not run` is what it says before its first stage.
_UNDER_WAY = ("running", "not started", "not run", "silent")
_STARTING = ("initializing", "starting")
_KEY = (
    "give GPUNODE_CI_KEY, or the machine's ssh_key, the path of a private key that can be read; one that is encrypted "
    "needs ssh_key_password"
)
_CLOUD_INIT = "look at /var/log/cloud-init-output.log on the machine"


@dataclass(frozen=True)
class Readiness(Reading):
    """Hold cloud-init's status, None where there is no cloud-init; what it tells beside it; and systemd's state."""

    cloud_init: str | None
    told: tuple[str, ...] = ()
    system: str | None = None


@dataclass(frozen=True)
class Unconnectable:
    """Hold why no attempt connects to a machine, however long one waits: what is wrong is on this side."""

    why: str


# What a machine said, or a text: why it was not reached.
Answer = Readiness | Unknown | Unconnectable | str


class Stage(StrEnum):
    """Name how far a machine is."""

    READY = "ready"
    WAITING = "waiting"
    FAILED = "failed"


@dataclass(frozen=True)
class Outcome:
    """Hold how far a machine is, and why; `remedy` is for what no waiting mends."""

    stage: Stage
    why: str
    remedy: str | None = None


def parse_readiness(lines: list[str]) -> Readiness:
    """Parse `system=STATE`, and what `cloud-init status --long` prints, a `cloud_init=` line for each of its own."""
    printed = repeated(lines, "cloud_init")
    told = tuple(line.strip() for line in printed if line.strip())
    status = next((line.removeprefix("status:").strip() for line in told if line.startswith("status:")), None)
    if printed and status is None:
        # It is there and says nothing that we know.
        status = "silent"
    return Readiness(status, told, values(lines).get("system"))


def judged(answer: Answer) -> Outcome:
    """Return how far a machine is."""
    if isinstance(answer, Unconnectable):
        return Outcome(Stage.FAILED, f"no connection can be made: {answer.why}", _KEY)
    if isinstance(answer, str):
        return Outcome(Stage.WAITING, f"no connection: {answer}")
    if isinstance(answer, Unknown):
        return Outcome(Stage.WAITING, f"no answer: {answer.reason}")
    if answer.cloud_init == "error":
        return Outcome(Stage.FAILED, "cloud-init failed: " + "; ".join(answer.told), _CLOUD_INIT)
    if answer.cloud_init in _UNDER_WAY:
        return Outcome(Stage.WAITING, f"cloud-init is {answer.cloud_init}")
    if answer.system in _STARTING:
        return Outcome(Stage.WAITING, f"the system is {answer.system}")
    return Outcome(Stage.READY, "no cloud-init" if answer.cloud_init is None else f"cloud-init: {answer.cloud_init}")


def awaited(
    read: Callable[[float], Mapping[str, Answer]],
    seconds: float,
    tell: Callable[[str, Outcome], None],
    *,
    interval: float = 3.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, Outcome]:
    """Read all machines again and again, until none is waiting, one has failed, or `seconds` are over.

    `read` is given the seconds that are left. `tell` is given a machine and its outcome each time that it differs from
    the one before.
    """
    deadline = clock() + seconds
    known: dict[str, Outcome] = {}
    while True:
        now = {name: judged(answer) for name, answer in read(max(0, deadline - clock())).items()}
        for name, outcome in now.items():
            if known.get(name) != outcome:
                tell(name, outcome)
        known = now
        stages = {outcome.stage for outcome in now.values()}
        if Stage.WAITING not in stages or Stage.FAILED in stages or clock() + interval > deadline:
            return now
        sleep(interval)
