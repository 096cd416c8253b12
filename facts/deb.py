"""Debian packages and apt repositories."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, probe_command
from gpunode.deb import AptRepository as AptRepositoryReading
from gpunode.deb import DebPackages as DebPackagesReading
from gpunode.deb import parse_apt_repository, parse_deb_packages


class DebPackages(NodeFact[DebPackagesReading]):
    """Read the installed versions of the packages that are asked about."""

    parse = staticmethod(parse_deb_packages)

    def command(self, names: list[str]) -> str:  # type: ignore[override]
        """Return the probe for `names`."""
        asked = " ".join(shlex.quote(name) for name in names)
        return probe_command(
            f"dpkg-query -W -f '${{db:Status-Status}} ${{Package}} ${{Version}}\\n' {asked} | "
            "sed -n 's/^installed /package=/p'"
        )


class AptRepository(NodeFact[AptRepositoryReading]):
    """Read keyring, source and refresh stamp of a repository; paths are those of operations.apt."""

    parse = staticmethod(parse_apt_repository)

    def command(self, keyring: str, source: str, stamp: str) -> str:  # type: ignore[override]
        """Return the probe for a repository's three files."""
        key, list_file, stamped = (shlex.quote(path) for path in (keyring, source, stamp))
        return probe_command(
            f"[ -f {key} ] && gpg --batch --show-keys --with-colons {key} | "
            'awk -F: \'$1=="pub"{p=1} $1=="fpr"&&p{print "fingerprint=" $10; p=0}\'\n'
            f'[ -f {list_file} ] && echo "source=$(base64 -w0 {list_file})"\n'
            f"[ -f {list_file} ] && [ -f {key} ] && "
            f'echo "digest=$(cat {list_file} {key} | sha256sum | cut -d" " -f1)"\n'
            f'[ -f {stamped} ] && echo "refreshed=$(cat {stamped})"'
        )
