"""Decide before anything is touched: can this node become what its settings ask?"""

from deploys.component import accepted


def preflight() -> bool:
    """Judge settings, node and tables; a refused node gets one operation, the refusal."""
    return accepted()
