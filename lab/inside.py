"""Commands within a node: its namespaces are entered directly, as `podman exec` takes a third of a second."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from gpunode.lab.errors import LabError
from gpunode.lab.podman import attempt

# What podman gives to a command that it runs in a container.
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--root", "--wd", "--no-fork")
# What `timeout` ends with where its time was over, and how much later its caller gives up.
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_GRACE_SECONDS = 5


def run(container: str, first: Path, name: str, command: str, timeout: float) -> subprocess.CompletedProcess[str]:
    """Run a shell command as root in a container, and return the finished process whatever its exit code.

    + name: what the container calls itself
    + first: the file in which podman keeps the number of the container's first process

    A container that is just down, or not made with such a file, is asked by podman itself. Raises LabError if it takes
    longer than `timeout` seconds.
    """
    process = _process(first)
    if process is None:
        return attempt("exec", container, "sh", "-c", command, timeout=timeout)
    environment = {"PATH": _PATH, "HOME": "/root", "TERM": "xterm", "HOSTNAME": name}
    # `timeout` stays outside the node's processes, for two reasons. A node that goes down stops all of them for a
    # moment, and nsenter would stop itself together with what it began, and never be woken. And nsenter, once killed,
    # would leave behind what it began.
    watched = ("timeout", "--signal=KILL", f"{timeout:.1f}", "sh", "-c", command)
    begun = time.monotonic()
    try:
        done = subprocess.run(
            ["nsenter", "--target", process, *_NAMESPACES, *watched],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=timeout + _GRACE_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise LabError(_late(container, timeout, command)) from error
    if done.returncode in _KILLED and time.monotonic() - begun >= timeout:
        raise LabError(_late(container, timeout, command))
    return done


def _late(container: str, timeout: float, command: str) -> str:
    return f"a command in {container} did not end within {timeout:.0f} seconds: {command[:80]}"


def _process(first: Path) -> str | None:
    """Return the first process of a container, None where it is down: its number may be another process' by then."""
    try:
        number = first.read_text().strip()
        status = Path(f"/proc/{number}/status").read_text()
    except OSError:
        return None
    inner = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return number if len(inner) > 1 and inner[-1] == "1" else None
