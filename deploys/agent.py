"""The agent by which nodes ask for themselves: `gpunode agent install` and `gpunode agent remove` run this."""

import os
from pathlib import Path

from gpunode.agent.files import INSTALL, install_from
from gpunode.operations import agent as control


def agent() -> None:
    """Keep the agent as the command says, or take it away."""
    if told := os.environ.get(INSTALL):
        desired = install_from(Path(told).read_text(encoding="utf-8"))
        control.installed(name="Install the agent, and run it from time to time", desired=desired)
    else:
        control.removed(name="Take the agent away", textfile=os.environ.get(f"{INSTALL}_TEXTFILE"))


# pyinfra runs the file by itself, where whoever reads the deploys imports it.
if not __name__.endswith("deploys.agent"):
    agent()
