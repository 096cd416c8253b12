"""Container runtimes and NVIDIA's container toolkit, by which they start containers with GPUs."""
