"""Facts: what a node is."""

if "." not in __name__:
    from gpunode.base.bare_names import alias

    alias(__name__)
