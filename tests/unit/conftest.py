"""Fixtures of the unit tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from pyinfra.context import ctx_host

from gpunode.base.comparison import FindingMessage
from gpunode.base.findings import Finding
from gpunode.facts.transaction import TransactionJournal
from gpunode.system.transaction import Journal
from tests.support.generated import EXAMPLES, MANY
from tests.support.simulated_host import Host

if TYPE_CHECKING:
    from tests.support import postgresql

# This machine is the node of several tests at once; tests of the lock have files of their own.
os.environ["GPUNODE_LOCKED"] = "1"

# In a fresh checkout hypothesis first builds its tables of Unicode, which it takes for a slow test; and the time of a
# busy machine is no property of the code. The inputs are the same ones while a test is the same, lest a change be held
# for what it did not do; `make test-all`, which asks for many, looks for others each time.
settings.register_profile(
    "unit",
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow],
    deadline=None,
    derandomize=EXAMPLES < MANY,
)
settings.load_profile("unit")
if EXAMPLES < MANY:
    # Else a constant of any module that is imported, the code's own too, may be an input: others in every part.
    providers._get_local_constants = lambda: providers._local_constants


@pytest.fixture(scope="session", autouse=True)
def declared_not_known() -> Iterator[None]:
    """Check that the page of a finding which a setting asks for, and which is not known, does not promise exit 0."""
    not_known = FindingMessage.not_known

    def checked(message: FindingMessage, desired: str | None, *texts: str, **of: Any) -> Finding:
        assert desired is None or message.classes, f"{message.code} changes no exit code by its page"
        return not_known(message, desired, *texts, **of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FindingMessage, "not_known", checked)
        yield


@pytest.fixture
def run_shell() -> Callable[[str], tuple[int, list[str]]]:
    """Return a function that runs a probe under this machine's sh: exit code and lines."""

    def run(command: str) -> tuple[int, list[str]]:
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout.splitlines()

    return run


@pytest.fixture(scope="session")
def server() -> Iterator[postgresql.Server]:
    """Return a running PostgreSQL, one for all tests of a process, each of which makes a database of its own."""
    # Late: most processes have no test that needs it.
    from tests.support import postgresql

    if postgresql.programs() is None:
        pytest.skip(postgresql.MISSING)
    with postgresql.server() as found:
        yield found


@pytest.fixture
def host() -> Iterator[Host]:
    """Return the host that operations see."""
    current = Host({TransactionJournal: Journal(None, None, None, False)})
    ctx_host.set(current)
    yield current
    ctx_host.reset()
