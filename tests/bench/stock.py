"""pyinfra's configuration without gpunode's hooks: the bench's `stock` rows."""
