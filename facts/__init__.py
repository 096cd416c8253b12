"""Facts: what a node is."""

if "." not in __name__:
    from gpunode.base.importing import alias

    alias(__name__)
