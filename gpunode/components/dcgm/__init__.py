"""DCGM on the host: its packages and services, what it says of the GPUs' health, and what is to be done."""
