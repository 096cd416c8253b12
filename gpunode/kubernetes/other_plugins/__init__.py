"""Device plugins other than NVIDIA's that gpunode brings: Mellanox's for RDMA, and those of a manifest or a chart."""
