"""Device plugins other than NVIDIA's that gpunode brings, by a manifest or a chart; and DCGM's exporter."""
