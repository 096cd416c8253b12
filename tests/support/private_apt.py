"""A real apt with a root of its own: dpkg's status and the repository are what a test says; nothing is installed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from gpunode.operations.apt import APT_GET, READ_LISTS, REFRESH
from gpunode.operations.families.apt import INSTALL
from gpunode.operations.script import script

_STATUS = ("Status: install ok installed",)
_HELD = ("Status: hold ok installed",)


class PrivateApt:
    """Hold apt's folders; `installed` and `offered` are stanzas. dpkg is a program that only notes its calls."""

    def __init__(self, root: Path, installed: Iterable[str], offered: Iterable[str]) -> None:
        """Make the root, and have apt read the repository."""
        self.root = root
        for folder in ("state/lists/partial", "cache/archives/partial", "repository", "etc"):
            (root / folder).mkdir(parents=True)
        (root / "status").write_text("\n".join(installed))
        (root / "repository/Packages").write_text("\n".join(offered))
        (root / "sources.list").write_text(f"deb [trusted=yes] file:{root}/repository ./\n")
        dpkg = root / "dpkg"
        dpkg.write_text(f'#!/bin/sh\necho "$*" >> {root}/dpkg-calls\nexit 1\n')
        dpkg.chmod(0o755)
        settings = {
            "Dir::State": "state", "Dir::State::status": "status", "Dir::Cache": "cache", "Dir::Etc": "etc",
            "Dir::Etc::sourcelist": "sources.list", "Dir::Etc::sourceparts": "none", "Dir::Bin::dpkg": "dpkg",
            "Dir::Etc::preferences": "etc/preferences", "Dir::Etc::preferencesparts": "none",
            "Dir::Etc::main": "none", "Dir::Etc::parts": "none", "Dir::Log": "cache",
        }  # fmt: skip
        text = "".join(f'{key} "{root / path}";\n' for key, path in settings.items())
        # Hooks of this machine's apt have no place in it.
        text += 'APT::Architecture "amd64";\nAPT::Architectures {"amd64";};\nAPT::Sandbox::User "root";\n'
        text += "#clear DPkg::Pre-Install-Pkgs;\n#clear DPkg::Post-Invoke;\n#clear APT::Update::Post-Invoke;\n"
        (root / "apt.conf").write_text(text)
        self.environment = {**os.environ, "APT_CONFIG": str(root / "apt.conf"), "LC_ALL": "C"}
        done = self.apt("update")
        assert done.returncode == 0, done.stderr

    def apt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run apt-get."""
        return subprocess.run(
            ["apt-get", "-q", "-y", *arguments], env=self.environment, capture_output=True, text=True, timeout=60,
            check=False,
        )  # fmt: skip

    def install(self, *asked: str, instead: str = "") -> subprocess.CompletedProcess[str]:
        """Run gpunode's own script of an installation by apt."""
        text = script(f"{APT_GET}{READ_LISTS}{REFRESH}{INSTALL}")
        return subprocess.run(
            ["sh", "-c", text, "gpunode", *asked],
            env={**self.environment, "repository": "", "instead": instead},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    @property
    def touched(self) -> bool:
        """Say whether dpkg was called, or anything fetched."""
        return (self.root / "dpkg-calls").exists() or any((self.root / "cache/archives").glob("*.deb"))


def installed(stanza: str, held: bool = False) -> str:
    """Return a stanza as dpkg's status has it."""
    return stanza + "".join(f"{line}\n" for line in (_HELD if held else _STATUS))


def offered(stanza: str) -> str:
    """Return a stanza as a repository's list has it; there is nothing to fetch behind it."""
    name = stanza.splitlines()[0].removeprefix("Package: ")
    return f"{stanza}Filename: ./{name}.deb\nSize: 1000\nSHA256: {'0' * 64}\n"


def plain(name: str, version: str = "99") -> str:
    """Return the stanza of a package without relations."""
    return f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: x\nDescription: x\n"
