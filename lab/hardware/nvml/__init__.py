"""The SIMULATED libnvidia-ml of the lab, compiled from the C sources of this folder."""
