"""Debian packages and apt repositories."""

from __future__ import annotations

import shlex

from facts.base import NodeFact, probe_command
from gpunode.deb import AptRepository as AptRepositoryReading
from gpunode.deb import parse_apt_repository, parse_deb_packages
from gpunode.keyring import PRIMARY_KEYS
from gpunode.packages import InstalledPackages
from gpunode.probe import Probe, Shared, Text

# Succeeds where dpkg was not interrupted.
_WHOLE = '[ -z "$(dpkg --audit 2>&1; ls /var/lib/dpkg/updates)" ]'
# dpkg tells of itself, so that its silence on others means that they are absent; and whether it was interrupted.
DPKG_ITSELF = (
    r"""dpkg-query -W -f 'dpkg=${db:Status-Status}\n' dpkg
"""
    + f"{_WHOLE} || echo interrupted=yes"
)


# What several ask of dpkg, asked once. $DEBS: STATUS NAME VERSION of each package that a part wants to know of, and of
# dpkg itself; $INTERRUPTED, where it was.
_DPKG = Shared(
    Text(
        r"""
set -f
DEBS=$(dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' dpkg $NAMES_OF_DEBS)
set +f
"""
        + f"INTERRUPTED=; {_WHOLE} || INTERRUPTED=yes"
    ),
    variable="NAMES_OF_DEBS",
)


class DebPackages(NodeFact[InstalledPackages]):
    """Read the installed versions of the packages that are asked about, and whether dpkg left something half-done."""

    parse = staticmethod(parse_deb_packages)

    def command(self, names: list[str]) -> Probe:  # type: ignore[override]
        """Return the probe for `names`, and for dpkg itself: silence on the others must mean that they are absent.

        + names: without an architecture behind them, and no patterns
        """
        asked = shlex.quote(f" {' '.join(names)} ")
        question = _DPKG.of(*names)
        text = rf"""
set -f; IFS=$NL
for line in $DEBS; do
  case "$line" in 'installed '*) line=${{line#installed }};; *) continue;; esac
  case "$line" in 'dpkg '*) echo dpkg=installed;; esac
  case {asked} in *" ${{line%% *}} "*) echo "package=$line";; esac
done
unset IFS; set +f
[ -z "$INTERRUPTED" ] || echo interrupted=yes
"""
        return Probe([(None, Text(text, (question,)))])


# Names that apt itself ignores are none of ours either; what is left needs no quoting in our answer's lines.
_OWN_NAME = '[ -f "$file" ] || continue; case "${file##*/}" in *[!A-Za-z0-9_.-]*) continue;; esac'


class AptRepository(NodeFact[AptRepositoryReading]):
    """Read keyring, source and refresh stamp of a repository, and what else the node trusts in its place.

    Paths are those of operations.apt.
    """

    parse = staticmethod(parse_apt_repository)

    def command(  # type: ignore[override]
        self, keyring: str, source: str, stamp: str, uri: str, distrusted: list[str]
    ) -> Probe:
        """Return the probe for a repository's three files, for other lists with `uri`, and for keys in `distrusted`.

        All world-trusted keys are listed by one gpg; only where a distrusted one is among them is each file asked.
        """
        key, list_file, stamped = (shlex.quote(path) for path in (keyring, source, stamp))
        # Up to apt's own $(ARCH), and without the scheme: the other entry may write both differently.
        needle = shlex.quote(uri.partition("://")[2].partition("$(")[0].rstrip("/"))
        ids = shlex.quote("|".join(f"{identity}$" for identity in distrusted))
        return probe_command(
            f"{PRIMARY_KEYS}\n"
            f"[ -f {key} ] && {{ primary_keys {key} | sed s/^/fingerprint=/; "
            f"echo \"permissions=$(stat -c '%a %U:%G' {key})\"; }}\n"
            f'[ -f {list_file} ] && echo "source=$(base64 -w0 {list_file})"\n'
            f"[ -f {list_file} ] && [ -f {key} ] && "
            f'echo "digest=$(cat {list_file} {key} | sha256sum | cut -d" " -f1)"\n'
            f'[ -f {stamped} ] && echo "refreshed=$(cat {stamped})"\n'
            'echo "architecture=$(dpkg --print-architecture)"\n'
            "for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do\n"
            f'{_OWN_NAME}; [ "$file" = {list_file} ] && continue\n'
            f'grep -qiF -e {needle} "$file" && echo "other=$file $(base64 -w0 "$file")"\n'
            "done\n"
            "( set --\n"
            "for file in /etc/apt/trusted.gpg /etc/apt/trusted.gpg.d/*.gpg /etc/apt/trusted.gpg.d/*.asc; do\n"
            f'{_OWN_NAME}; set -- "$@" "$file"\n'
            "done\n"
            f'if [ "$#" -gt 0 ] && primary_keys "$@" | grep -qE -e {ids}; then\n'
            'for file in "$@"; do\n'
            'primary_keys "$file" | sed "s|\\$| $file|; s/^/trusted=/"\n'
            "done\n"
            "fi )"
        )
