"""What gpunode brings to a node: a package each, found by its name."""
