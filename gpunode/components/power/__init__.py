"""Power limit, clocks and ECC of the GPUs: set, read back, and brought back at each boot."""
