"""Decide before anything is touched: can this node become what its settings ask?"""

from pyinfra.api.deploy import deploy

from gpunode.deploys.component import accepted, begin_whole_run, read_at_once
from gpunode.deploys.verify import verify


@deploy("Preflight")
def preflight() -> bool:
    """Judge settings, node and tables; a refused node gets one operation, the refusal."""
    begin_whole_run()
    read_at_once(verify)
    return accepted()
