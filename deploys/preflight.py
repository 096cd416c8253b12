"""Decide before anything is touched: can this node become what its settings ask?"""

from pyinfra.api.deploy import deploy

from gpunode.deploys.component import accepted, begin_whole_run, read_at_once
from gpunode.deploys.verify import verify
from gpunode.operations import agent_turn


@deploy("Preflight")
def preflight() -> bool:
    """Judge settings, node and tables; a refused node gets one operation, the refusal."""
    begin_whole_run()
    read_at_once(verify)
    if not accepted():
        return False
    if agent_turn.pulls():
        agent_turn.taken(name="Wait until the node is at no bundle, and keep it from beginning one")
    return True
