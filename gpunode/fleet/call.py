"""A command as it can be pasted again: of the same inventory, hosts and settings of the command line. Pure.

Whatever names a next command takes it from here, so that none forgets `--limit` (more nodes would be touched) or
`--set` (a run without it puts back what it set).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from gpunode.base.comparison import RUN, RUN_AGAIN

# Where a run that is a command's child finds how that one was called.
CALL = "GPUNODE_CALL"
_DEPLOY = "deploys/gpu_node.py"
# A command in a message that was written without knowledge of the inventory.
_COMMAND = re.compile(r"`gpunode (apply|drift|plan|rollout)((?: --(?:resume|anew))?)(?: INVENTORY)?`")


@dataclass(frozen=True)
class Call:
    """Hold what a command was given: the inventory's name, the patterns of --limit, the words of --set.

    inventory: None of no inventory, such as a file of facts; settings: as they may be shown
    (gpunode.settings.overrides.shown); operations: what pyinfra's own command line was to carry out; options: its
    words that gpunode's commands do not have (--data, --sudo)
    """

    inventory: str | None = None
    limit: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    operations: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the inventory's name, as a command line has it; INVENTORY where there is none."""
        return self.inventory or "INVENTORY"

    @property
    def run(self) -> str:
        """Return the command of a run on these hosts: pyinfra's own where that was called, and `gpunode apply` else.

        pyinfra's own has no --set, and would put back what that sets.
        """
        return self._pyinfra(_DEPLOY) if self.operations and not self.settings else self.of("apply")

    @property
    def again(self) -> str:
        """Return the command whose verdict is told: pyinfra's own may have been of another deploy."""
        return self._pyinfra(*self.operations) if self.operations else self.run

    @property
    def retry(self) -> str:
        """Return the command of the same run that tries failed changes again."""
        data = ("--data", "gpunode_retry=1")
        more = () if data[1] in self.options else data
        return replace(self, options=self.options + more).again if self.operations else self.of("apply", "--retry")

    def _pyinfra(self, *operations: str) -> str:
        return shlex.join(["pyinfra", self.name, *operations, *self._limit, *self.options])

    def pasted(self, text: str) -> str:
        """Return a text with its commands between backquotes, of this inventory, these hosts and settings."""
        text = text.replace(RUN, f"run `{self.run}`").replace(RUN_AGAIN, f"run `{self.again}`")
        text = text.replace("`gpunode apply --retry`", f"`{self.retry}`")
        return _COMMAND.sub(lambda found: f"`{self.of(found[1], *found[2].split())}`", text)

    @property
    def waves(self) -> str | None:
        """Return the command of a rollout; None where pyinfra was given options that it does not have."""
        return None if self.options else self.of("rollout")

    @property
    def of_all(self) -> Call:
        """Return the call of all hosts."""
        return replace(self, limit=())

    def of(self, command: str, *options: str) -> str:
        """Return a command of gpunode's on these hosts: `gpunode drift prod.py --limit gpu-1`, and --set as it was."""
        return shlex.join(["gpunode", command, *options, self.name, *self._limit, *set_words(self.settings)])

    @property
    def _limit(self) -> list[str]:
        return [word for pattern in self.limit for word in ("--limit", pattern)]

    def to_json(self) -> dict[str, Any]:
        """Return what a document says at its head of what it is of."""
        return {"inventory": self.inventory, "limit": list(self.limit), "set": list(self.settings)}

    def environment(self) -> dict[str, str]:
        """Return what tells a child how this was called."""
        return {CALL: json.dumps(asdict(self))}


# Stands where nobody says how the command was called.
SOME_CALL = Call()


def set_words(settings: tuple[str, ...]) -> list[str]:
    """Return the words of a command line that give these settings."""
    return [word for setting in settings for word in ("--set", setting)]


def told_call(environment: Mapping[str, str]) -> Call | None:
    """Return how the command was called whose child this is; None where this is no such child."""
    try:
        found = json.loads(environment[CALL])
        inventory, limit, settings = (found[name] for name in ("inventory", "limit", "settings"))
        name = None if inventory is None else str(inventory)
        return Call(name, tuple(map(str, limit)), tuple(map(str, settings)))
    except (KeyError, ValueError, TypeError):
        return None
