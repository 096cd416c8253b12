"""Containers, started on the node to see what they see of its GPUs, and removed again."""

from __future__ import annotations

import shlex

from gpunode.base.probe import Text
from gpunode.base.shell_file import script_file
from gpunode.components.smoke import Smoke as Reading
from gpunode.components.smoke import parse_smoke
from gpunode.components.toolkit.configuration import ENVVAR, PATH
from gpunode.facts.base import SMI, NodeFact, changing_command

ACCEPTED = ENVVAR[0]

# crictl's functions are there already: smoke_choose.sh asks by them.
_WAYS = ("docker", "ctr")


class Smoke(NodeFact[Reading]):
    """Start containers and read what they see: one that asks for all GPUs, one that does not, one by a way forbidden.

    By docker where it has a runtime nvidia, else by crictl where it can start a pod, else by ctr with the runtime
    named, for ctr knows no default. What is asked of the runtime goes by what config.toml allows. The one that asks for
    all GPUs runs nvidia-smi, and looks for libcuda, which the toolkit hands in. The node is left as it was; the
    operation asks in execution alone.
    """

    parse = staticmethod(parse_smoke)

    def command(self, reload: bool) -> str:  # type: ignore[override]
        """Return the command; with `reload` False, systemd is not reloaded on a node where other containers run.

        It is no Probe: containers come and go by it, so that it ends what was read before, and is asked alone and once.
        """
        ways = "".join(f"{way}) {script_file(f'smoke_{way}')};;\n" for way in _WAYS)
        trials = f'{script_file("smoke_root")}case "$by" in\n{ways}esac\n{script_file("smoke")}'
        values = f"reload={'yes' if reload else 'no'}; CONFIG={PATH}; ACCEPTED={ACCEPTED}"
        text = (
            f"{values}; check={shlex.quote(script_file('smoke_seen'))}\n"
            f"{script_file('smoke_crictl', 'smoke_choose')}"
            f'if [ -n "$by" ] && [ -c /dev/nvidia0 ]; then{trials}fi\necho tested=yes'
        )
        return changing_command(Text(text, shared=(SMI,)))
