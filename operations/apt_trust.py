"""Commands that take from apt what gpunode.apt_trust found; all is kept beside, as FILE.gpunode-disabled."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator

from pyinfra.api import StringCommand

from gpunode.apt_trust import DISABLED, Disable, Rewrite, Step
from operations.script import TEXT, command_with_input, script_command

# apt reads neither this suffix nor mv's numbered copies of it.
_DISABLE = 'mv -T --backup=numbered -- "$path" "$path$suffix"; echo "gpunode: $path is disabled: it $reason"'

_KEEP = """
keep=$(mktemp "$path.gpunode-kept.XXXXXX"); new="$path.gpunode-new"
trap 'rm -f "$keep" "$new"' EXIT
cp -p "$path" "$keep"; cp -p "$path" "$new"
"""
_SWAP = """
sync "$new"; mv -T --backup=numbered -- "$keep" "$path$suffix"; mv -f -T -- "$new" "$path"
echo "gpunode: $path is changed, its old text is $path$suffix: it $reason"
"""

# By standard input: an entry that is none of ours may hold a user and a password.
_REWRITE = f'{_KEEP}{TEXT} > "$new"{_SWAP}'

# Through a keyring of its own: gpg edits no armored file, and would leave a kbx where apt wants plain packets.
_UNTRUST = f"""
{_KEEP}
home=$(mktemp -d); trap 'rm -rf "$keep" "$new" "$home"' EXIT
ring() {{ gpg --homedir "$home" --batch --yes --quiet --no-autostart "$@"; }}
ring --import "$path"
ring --delete-keys "$@"
case "$path" in *.asc) ring --armor --export > "$new";; *) ring --export > "$new";; esac
[ -s "$new" ] || {{ echo "gpunode: gpg left no key of $path; it was not changed" >&2; exit 1; }}
{_SWAP}
"""


def commands(steps: Iterable[Step]) -> Iterator[StringCommand]:
    """Return one command per step."""
    for step in steps:
        if isinstance(step, Disable):
            yield script_command(_DISABLE, path=step.path, suffix=DISABLED, reason=step.reason)
        elif isinstance(step, Rewrite):
            encoded = base64.b64encode(step.text.encode()).decode()
            rewrite = script_command(_REWRITE, path=step.path, suffix=DISABLED, reason=step.reason)
            yield command_with_input(rewrite, encoded)
        else:
            yield script_command(_UNTRUST, *step.fingerprints, path=step.path, suffix=DISABLED, reason=step.reason)
