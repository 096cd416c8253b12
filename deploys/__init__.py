"""Deploys: which operations run on a node, and when."""

if "." not in __name__:
    from gpunode.base.importing import alias

    alias(__name__)
