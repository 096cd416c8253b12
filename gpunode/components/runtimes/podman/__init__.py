"""Podman, which hands GPUs to containers by CDI: what it is, and what is to be done about it."""
