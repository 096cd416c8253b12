"""SIMULATED programs of DCGM, each a file that stands in a node by itself."""
