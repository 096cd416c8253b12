"""Commands that take from apt what gpunode.packages.apt_trust found; all is kept beside, as FILE.gpunode-disabled."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyinfra.api import StringCommand

from gpunode.base.shell_file import script_file
from gpunode.operations.script import TEXT, command_with_input, script_command
from gpunode.packages.apt_trust import DISABLED, Disable, Rewrite, Step

# apt reads neither this suffix nor mv's numbered copies of it.
_DISABLE = 'mv -T --backup=numbered -- "$path" "$path$suffix"; echo "gpunode: $path is disabled: it $reason"'

# By standard input: an entry that is none of ours may hold a user and a password.
_REWRITE = script_file("keep_beside") + TEXT + ' > "$new"' + script_file("swap")
_UNTRUST = script_file("keep_beside", "apt_untrust", "swap")


def commands(steps: Iterable[Step]) -> Iterator[StringCommand]:
    """Return one command per step."""
    for step in steps:
        if isinstance(step, Disable):
            yield script_command(_DISABLE, path=step.path, suffix=DISABLED, reason=step.reason)
        elif isinstance(step, Rewrite):
            rewrite = script_command(_REWRITE, path=step.path, suffix=DISABLED, reason=step.reason)
            yield command_with_input(rewrite, step.text)
        else:
            yield script_command(_UNTRUST, *step.fingerprints, path=step.path, suffix=DISABLED, reason=step.reason)
