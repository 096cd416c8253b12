"""Objects of the cluster that are gpunode's own, and the RuntimeClass."""
