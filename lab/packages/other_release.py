"""Real packages of other releases of Debian than this machine's: fetched and checked by apt, by lists of their own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpunode.lab.host_apt import host_apt
from gpunode.lab.packages.deb import DebError

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def unpacked(suite: str, packages: tuple[str, ...], folder: Path) -> dict[str, str]:
    """Unpack packages of a release of Debian (`trixie`) into a folder; return the version of each by its name.

    Raises DebError if apt cannot fetch one.
    """
    with _apt(suite) as (apt, state):
        _run([*apt, "download", *packages], state)
        found = {}
        for package in packages:
            (file,) = state.glob(f"{package}_*.deb")
            _run(["dpkg-deb", "-x", str(file), str(folder)], state)
            found[package] = _run(["dpkg-deb", "-f", str(file), "Version"], state).strip()
        return found


def unpacked_with_needed(suite: str, packages: Sequence[str], folder: Path) -> None:
    """Unpack packages of a release of Debian into a folder, and all that they depend on; scripts are not run.

    Raises DebError if apt cannot fetch one.
    """
    with _apt(suite) as (apt, state):
        # Nothing is installed here: by an empty list of packages apt fetches every one that is needed.
        _run([*apt, "install", "-y", "--download-only", "--no-install-recommends", *packages], state)
        for file in sorted(state.glob("cache/archives/*.deb")):
            _run(["dpkg-deb", "-x", str(file), str(folder)], state)


@contextmanager
def _apt(suite: str) -> Iterator[tuple[list[str], Path]]:
    """Yield how apt is asked with lists of a release alone, and the folder that holds them."""
    with tempfile.TemporaryDirectory(prefix="gpunode-apt-") as name:
        state = Path(name)
        for path in ("lists/partial", "cache/archives/partial"):
            (state / path).mkdir(parents=True)
        (state / "sources.list").write_text(f"deb [signed-by={_KEYRING}] {host_apt().mirror} {suite} main\n")
        options = {
            "Dir::Etc::sourcelist": state / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": state / "lists",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": state / "cache",
            "APT::Update::Error-Mode": "any",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Debug::NoLocking": "true",
        }
        apt = ["apt-get", "-q", *(part for key, value in options.items() for part in ("-o", f"{key}={value}"))]
        _run([*apt, "update"], state)
        yield apt, state


def _run(command: list[str], folder: Path) -> str:
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=300)
    if done.returncode:
        raise DebError(f"{command[0]} failed for a package of another release of Debian: {done.stderr.strip()[-500:]}")
    return done.stdout
