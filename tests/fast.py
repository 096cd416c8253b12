"""Run the unit tests in as many processes as there are processors: `make test-fast`.

pytest-xdist cannot: its workers and pyinfra's gevent do not get along.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

PARTS = min(os.cpu_count() or 1, 4)


def main() -> int:
    """Run all parts at once, print what each of them says, and return 0 where all of them pass."""
    begun = time.monotonic()
    pytest = [
        str(Path(sys.executable).with_name("pytest")),
        "-m",
        "not node and not slow and not builds",
        "-p",
        "no:cacheprovider",
        "-q",
    ]
    running = [
        subprocess.Popen(
            [*pytest, "--part", f"{part}/{PARTS}", "tests/unit", *sys.argv[1:]],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for part in range(1, PARTS + 1)
    ]  # fmt: skip
    for process in running:
        print(process.communicate()[0], end="", flush=True)
    failed = [part for part, process in enumerate(running, 1) if process.returncode != 0]
    what = f"part {', '.join(map(str, failed))} FAILED" if failed else "all passed"
    print(f"test-fast: {PARTS} parts side by side, {what}, {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
