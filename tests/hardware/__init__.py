"""`make test-hardware`: what gpunode reads on a machine with a GPU, beside what NVIDIA's own programs say there."""
