"""How rpm is asked, beneath dnf and zypper alike: what is installed, and how a repository of ours is trusted."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, probe_command
from gpunode.deb import AptRepository, parse_apt_repository
from gpunode.families.rpm import parse_installed
from gpunode.keyring import PRIMARY_KEYS
from gpunode.packages import InstalledPackages
from gpunode.probe import Probe

# rpm prints (none) for the epoch of a package that has none.
VERSION = "%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}"


class RpmPackages(NodeFact[InstalledPackages]):
    """Read the installed versions of the packages that are asked about."""

    parse = staticmethod(parse_installed)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`; rpm's own list must end well, so that silence means absent."""
        asked = " ".join(shlex.quote(name) for name in names)
        return probe_command(
            f'for name in {asked}; do rpm -q --qf "package=%{{NAME}} {VERSION}\\n" "$name" | grep ^package=; done\n'
            'rpm -qa >/dev/null; echo "rpm=$?"'
        )


class RpmRepository(NodeFact[AptRepository]):
    """Read key, .repo file and refresh stamp of a repository, and other .repo files that mention its address.

    `FOLDER` is that of the .repo files; `TRUSTED` is shell text that fails where the manager does not trust the key in
    the file $key, so that nothing would be read: the repository then counts as not refreshed.
    """

    FOLDER = ""
    TRUSTED = ":"
    parse = staticmethod(parse_apt_repository)

    def command(self, keyring: str, source: str, stamp: str, uri: str) -> Probe:  # type: ignore[override]
        """Return the probe for a repository's three files; the paths are those of the family's operations."""
        key, repo, stamped = (shlex.quote(path) for path in (keyring, source, stamp))
        # By the server alone: the other entry may write the path with the manager's variables.
        needle = shlex.quote(uri.partition("://")[2].partition("/")[0])
        folder = shlex.quote(self.FOLDER)
        return probe_command(
            f"{PRIMARY_KEYS}\nkey={key}\n"
            f"[ -f {key} ] && {{ primary_keys {key} | sed s/^/fingerprint=/; "
            f"echo \"permissions=$(stat -c '%a %U:%G' {key})\"; }}\n"
            f'[ -f {repo} ] && echo "source=$(base64 -w0 {repo})"\n'
            f"[ -f {repo} ] && [ -f {key} ] && {{ {self.TRUSTED}; }} && "
            f'echo "digest=$(cat {repo} {key} | sha256sum | cut -d" " -f1)"\n'
            f'[ -f {stamped} ] && echo "refreshed=$(cat {stamped})"\n'
            f"for file in {folder}/*.repo; do\n"
            '[ -f "$file" ] || continue; case "${file##*/}" in *[!A-Za-z0-9_.-]*) continue;; esac\n'
            f'[ "$file" = {repo} ] && continue\n'
            f'grep -qiF -e {needle} "$file" && echo "other=$file $(base64 -w0 "$file")"\n'
            "done"
        )
