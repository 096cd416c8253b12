"""Change samples for some minutes, and keep in tests/fuzz/corpus what broke a reader.

`python -m tests.fuzz [--seconds N] [TARGET ...]`: each target has its share of the seconds, in a process of its own
that may take 300 MB more than it has at its start, and two seconds for a text. Exits 1 where something broke.
tests/unit/test_fuzz.py replays the corpus.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from random import Random
from types import FrameType

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.targets import Target, targets

CORPUS = Path(__file__).parent / "corpus"
SECONDS, MEMORY = 2, 300 << 20
_BATCH = 100


class _TooLong(BaseException):
    """Say that a text took too long; no `except Exception` of a reader may stop this."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise _TooLong


def within_limits(target: Target, text: str) -> None:
    """Check a text; raise AssertionError where that takes too long."""
    signal.signal(signal.SIGPROF, _stop)
    # Of processor time: other processes may keep a machine busy.
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        target.check(text)
    except _TooLong:
        raise AssertionError(f"took longer than {SECONDS} s") from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _place(error: BaseException) -> tuple[str, str]:
    """Return the kind of an error, and where it was raised: the same fault is reported once."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "/tests/" not in each.filename]
    return type(error).__name__, f"{frames[-1].filename}:{frames[-1].lineno}" if frames else str(error)[:80]


def _fuzz(target: Target, seconds: float, first: int, last_text: int) -> int:
    """Check changed samples until the time is over; return how many faults there were."""
    until, faults, runs = time.monotonic() + seconds, set[tuple[str, str]](), 0
    samples = target.samples
    failing: list[str] = []

    @settings(
        max_examples=_BATCH, database=None, deadline=None, suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False,
    )  # fmt: skip
    @given(sample=st.sampled_from(samples), random=st.randoms(use_true_random=False))
    def check(sample: str, random: Random) -> None:
        nonlocal runs
        runs += 1
        text = target.change(random, sample, samples)
        raw = text.encode("utf-8", "surrogatepass")
        os.ftruncate(last_text, 0)
        os.pwrite(last_text, raw, 0)
        try:
            within_limits(target, text)
        except Exception as error:
            if _place(error) in faults or time.monotonic() > until + 20:
                return
            failing.append(text)
            raise

    number = first
    while time.monotonic() < until:
        number += 1
        try:
            seed(number)(check)()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or not failing:
                raise
            cause = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else error
            faults.add(_place(cause))
            keep(target, failing[-1])
            frames = "".join(traceback.format_tb(cause.__traceback__)[-4:])
            print(f"{target.name}: {type(cause).__name__}: {str(cause)[:300]}\n{frames[-1500:]}", flush=True)
    print(f"{target.name}: {runs} texts, {len(faults)} faults", flush=True)
    return len(faults)


def keep(target: Target, text: str) -> Path:
    """Write a text into the corpus; return where."""
    raw = text.encode("utf-8", "surrogatepass")
    path = CORPUS / target.name / f"{hashlib.sha256(raw).hexdigest()[:12]}.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(raw)
    return path


def _alone(target: Target, seconds: float, first: int) -> bool:
    """Fuzz a target in a child; return whether nothing broke, a crash or an endless loop of the child included."""
    last_text = os.memfd_create("text")
    child = os.fork()
    if child == 0:
        status = 2
        with suppress(BaseException):
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY,) * 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            status = 1 if _fuzz(target, seconds, first, last_text) else 0
        if status == 2:
            traceback.print_exc()
        sys.stdout.flush()
        os._exit(status)
    until = time.monotonic() + seconds + 60
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
        time.sleep(0.05)
    status = os.waitstatus_to_exitcode(done[1])
    if status not in (0, 1):
        text = os.pread(last_text, 1 << 24, 0).decode("utf-8", "surrogatepass")
        print(f"{target.name}: ended with status {status}; the text is kept in {keep(target, text)}", flush=True)
    os.close(last_text)
    return status == 0


def main() -> int:
    """Fuzz the targets that are named, or all of them; return 1 where something broke."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="where the random numbers begin")
    chosen = parser.parse_args()
    every = [each for each in targets() if not chosen.targets or each.name in chosen.targets]
    if len(every) < len(set(chosen.targets)) or not every:
        parser.error(f"no such target; there are: {' '.join(each.name for each in targets())}")
    print(f"{len(every)} targets, seed {chosen.seed}", flush=True)
    good = [_alone(each, chosen.seconds / len(every), chosen.seed) for each in every]
    print(f"{good.count(False)} of {len(good)} targets broke")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
