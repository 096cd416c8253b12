"""What apt would do with given repositories: a real apt with a root of its own, which installs nothing.

Nothing of this machine's apt is read but how it reaches the network (proxy, certificates: lab/host_apt.py); nothing of
it is changed. The same code resolves live archives and repositories in a folder.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpunode.lab.host_apt import host_apt

_INSTALLED = re.compile(r"^Inst (?P<name>[^ :]+)(?::\S+)? (?:\[(?P<old>[^\]]*)\] )?\((?P<new>\S+)")
_REMOVED = re.compile(r"^(?:Remv|Purg) (?P<name>[^ :]+)")
# What apt says of a repository that it could not read. Lines with Err: tell of attempts, which a later one may mend.
_FAILED = re.compile(
    r"^[EW]: (?:Failed to fetch (?P<fetch>\S+)|.*GPG error: (?P<signed>\S+)|The repository '(?P<known>\S+))(?P<why>.*)"
)
_INDEX = re.compile(r"^ *(?P<name>\S+) \| *(?P<version>\S+) \|")


class AptFailed(RuntimeError):
    """Say which command of apt failed, and its last words."""


@dataclass(frozen=True)
class Unreachable:
    """Hold a repository (its address) that apt could not read, and apt's reason."""

    uri: str
    reason: str


@dataclass(frozen=True)
class Resolved:
    """Hold what a transaction would do: name -> version of what comes, the names of what goes.

    Where apt refuses, `errors` are its words on what cannot be met (else it is empty), and nothing comes or goes.
    """

    installed: dict[str, str] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
    errors: str = ""

    @property
    def possible(self) -> bool:
        """Say whether apt would do it."""
        return not self.errors


class Apt:
    """One apt: repositories, architecture, preferences and what is installed, below one folder."""

    def __init__(
        self, folder: Path, sources: str, *, architecture: str = "amd64", preferences: str = "", status: str = ""
    ) -> None:
        """Make the root.

        + folder: an empty one, for this apt alone
        + sources: deb822 stanzas, or one-line entries (`deb [trusted=yes] file:/x ./`)
        + architecture: as dpkg names it; amd64, arm64
        + preferences: text of an apt preferences file
        + status: text of dpkg's status file, as `status_of` makes it; empty: nothing is installed
        """
        self.folder = folder
        for path in ("etc/apt", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/lib/dpkg"):
            (folder / path).mkdir(parents=True, exist_ok=True)
        one_line = re.search(r"^\s*deb(-src)?\s", sources, re.MULTILINE)
        self._sources = folder / ("etc/apt/our.list" if one_line else "etc/apt/our.sources")
        self._sources.write_text(sources, encoding="utf-8")
        (folder / "etc/apt/preferences").write_text(preferences, encoding="utf-8")
        self._status = folder / "var/lib/dpkg/status"
        self._status.write_text(status, encoding="utf-8")
        options = {
            "Dir": f"{folder}/",
            "Dir::Etc::sourcelist": self._sources,
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::parts": "/dev/null",
            "Dir::Etc::main": "/dev/null",
            "Dir::Etc::preferences": folder / "etc/apt/preferences",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::status": self._status,
            "APT::Architecture": architecture,
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
            "Acquire::Languages": "none",
            "Acquire::Retries": "2",
            "Acquire::http::Timeout": "30",
            "Acquire::https::Timeout": "30",
        }
        text = "".join(f'{key} "{value}";\n' for key, value in options.items())
        text += f'APT::Architectures {{ "{architecture}"; }};\n'
        (folder / "apt.conf").write_text(text + host_apt().configuration, encoding="utf-8")

    def prefer(self, preferences: str) -> None:
        """Set the text of the preferences file for what is asked from now on."""
        (self.folder / "etc/apt/preferences").write_text(preferences, encoding="utf-8")

    def update(self) -> tuple[Unreachable, ...]:
        """Read the repositories' indexes; return those that could not be read. What could stays usable."""
        done = self._run("apt-get", "update", "-q")
        found: dict[str, str] = {}
        for line in done.stderr.splitlines():
            if match := _FAILED.match(line):
                found.setdefault(match["fetch"] or match["signed"] or match["known"], match["why"].strip())
        if done.returncode and not found:
            raise AptFailed(f"apt-get update: {_last(done)}")
        return tuple(Unreachable(uri, reason) for uri, reason in found.items())

    def resolve(self, *arguments: str, recommends: bool = False, purge: bool = False) -> Resolved:
        """Return what `apt-get install` of these arguments would do (NAME, NAME=VERSION, NAME-)."""
        options = [f"APT::Install-Recommends={str(recommends).lower()}", "APT::Get::allow-downgrades=true"]
        more = [part for option in options for part in ("-o", option)] + (["--purge"] if purge else [])
        done = self._run("apt-get", "-s", "-q", *more, "install", "--", *arguments)
        if done.returncode:
            return Resolved(errors=(done.stdout + done.stderr).strip() or "apt-get failed and said nothing")
        came = {match["name"]: match["new"] for line in done.stdout.splitlines() if (match := _INSTALLED.match(line))}
        gone = (match["name"] for line in done.stdout.splitlines() if (match := _REMOVED.match(line)))
        return Resolved(came, tuple(sorted(gone)))

    def offers(self, *names: str) -> dict[str, tuple[str, ...]]:
        """Return name -> versions of these packages, newest first, as the repositories have them; none: no entry."""
        found: dict[str, list[str]] = {}
        for line in self._run("apt-cache", "madison", *names).stdout.splitlines():
            if match := _INDEX.match(line):
                versions = found.setdefault(match["name"], [])
                if match["version"] not in versions:
                    versions.append(match["version"])
        return {name: tuple(versions) for name, versions in found.items()}

    def names(self) -> frozenset[str]:
        """Return the names of all packages of the repositories, and of what is installed."""
        return frozenset(self._run("apt-cache", "pkgnames").stdout.split())

    def stanza(self, name: str, version: str) -> str:
        """Return one package's stanza of the index."""
        done = self._run("apt-cache", "show", f"{name}={version}")
        if done.returncode or not done.stdout.strip():
            raise AptFailed(f"apt-cache show {name}={version}: {_last(done)}")
        return done.stdout.strip().partition("\n\n")[0] + "\n"

    def status_of(self, packages: Iterable[tuple[str, str]]) -> str:
        """Return the text of dpkg's status file of a machine with these packages (name, version) of the index."""
        return "\n".join(_status(self.stanza(name, version)) for name, version in packages)

    def install(self, *arguments: str) -> Resolved:
        """Take what `resolve` says as done, so that the next question is asked of a machine that has it.

        Only the package lists change: no file of a package is fetched. Raises AptFailed where it cannot be done.
        """
        found = self.resolve(*arguments)
        if not found.possible:
            raise AptFailed(found.errors[-2000:])
        gone = {*found.removed, *found.installed}
        kept = [
            stanza
            for stanza in self._status.read_text(encoding="utf-8").split("\n\n")
            if stanza.strip() and _name(stanza) not in gone
        ]
        text = "\n\n".join(stanza.strip() for stanza in kept)
        new = self.status_of(found.installed.items())
        self._status.write_text(f"{text}\n\n{new}".lstrip() + "\n", encoding="utf-8")
        return found

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "LC_ALL": "C", "APT_CONFIG": str(self.folder / "apt.conf")}
        return subprocess.run(
            [program, *arguments], capture_output=True, text=True, env=environment, timeout=600, cwd=self.folder
        )


def _status(stanza: str) -> str:
    """Return a stanza of an index as dpkg's status file has it."""
    dropped = ("Filename:", "Size:", "MD5sum:", "SHA1:", "SHA256:", "SHA512:", "Description-md5:")
    lines = [line for line in stanza.splitlines() if not line.startswith(dropped)]
    return "\n".join([lines[0], "Status: install ok installed", *lines[1:]]) + "\n"


def _name(stanza: str) -> str:
    return stanza.strip().partition("\n")[0].removeprefix("Package: ")


def _last(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip() or done.stdout.strip())[-1000:]
