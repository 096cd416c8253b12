"""A Dask scheduler and its workers as processes of this machine, for tests and benchmarks of gpunode's engine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

CHECKOUT = Path(__file__).parents[2]
BINARIES = Path(sys.executable).parent
# Above what any of it takes on a busy machine.
SECONDS = 180.0


def until(true: Callable[[], bool], cluster: Cluster | None = None, seconds: float = SECONDS) -> None:
    """Wait until something is so; where it does not come about, raise TimeoutError with the cluster's logs."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() >= end:
            said = "\n".join(path.read_text()[-2000:] for path in cluster.folder.glob("*.log")) if cluster else ""
            raise TimeoutError(f"it did not happen within {seconds:g} s\n{said}")
        time.sleep(0.05)


@dataclass
class Cluster:
    """Hold a scheduler's port, and the processes, the scheduler first; logs are in `folder`."""

    folder: Path
    environment: Mapping[str, str]
    port: int = 0
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def engine(self) -> str:
        """Return what --engine takes."""
        return f"dask://127.0.0.1:{self.port}"

    @property
    def scheduler(self) -> subprocess.Popen[bytes]:
        """Return the scheduler's process."""
        return self.processes[0]

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        """Return the workers' processes."""
        return self.processes[1:]

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """Start one of Dask's programs."""
        with (self.folder / f"{words[0]} {len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                [BINARIES / "dask", *words],
                cwd=CHECKOUT,
                env=dict(self.environment),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self.processes.append(process)
        return process

    def work(self, *sites: str | None) -> None:
        """Start a worker for each of these sites (None: of no site), and wait until the scheduler has them."""
        for site in sites:
            of_site = ("--resources", f"site-{site}=1") if site else ()
            self.start(
                "worker", f"tls://127.0.0.1:{self.port}", "--host", "127.0.0.1", "--no-nanny",
                "--no-dashboard", "--nthreads", "1", "--local-directory", str(self.folder), *of_site,
            )  # fmt: skip
        logs = self.folder.glob
        until(
            lambda: sum("Registered to" in path.read_text() for path in logs("worker *.log")) == len(self.workers), self
        )

    def until_killed(self, number: int) -> None:
        """Wait until so many workers were killed."""
        until(lambda: [each.poll() for each in self.workers].count(-signal.SIGKILL) == number, self)


@contextmanager
def cluster(folder: Path, *sites: str | None, **environment: str) -> Iterator[Cluster]:
    """Give a scheduler with a worker for each of these sites; all end where this is left.

    Meanwhile this process's environment names their certificates, as docs/scale.md has them made. environment: of
    scheduler and workers alone, added to this process's own
    """
    where = folder / "scheduler.json"
    with patch.dict(os.environ, certificates(folder)):
        found = Cluster(folder, {**os.environ, "PYTHONPATH": str(CHECKOUT), **environment})
        try:
            found.start(
                "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(where),
                "--protocol", "tls",
            )  # fmt: skip
            until(lambda: where.exists() and where.read_text().strip() != "", found)
            found.port = int(json.loads(where.read_text())["address"].rpartition(":")[2])
            found.work(*sites)
            yield found
        finally:
            for process in reversed(found.processes):
                if process.poll() is None:
                    process.kill()
                process.wait()


def certificates(folder: Path) -> dict[str, str]:
    """Make certificates in a folder by the commands of docs/scale.md; return the environment that names them."""
    make, name = re.findall(r"```bash\n(.+?)```", (CHECKOUT / "docs" / "scale.md").read_text(), re.DOTALL)
    script = f"set -eu\n{make}\n{name}\nenv -0"
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, check=True)
    found = dict(line.partition("=")[::2] for line in done.stdout.decode().split("\0"))
    return {name: value for name, value in found.items() if name.startswith("DASK_DISTRIBUTED__COMM__")}


def is_there(process: int) -> bool:
    """Say whether a process lives; one that has ended and was not yet waited for does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
