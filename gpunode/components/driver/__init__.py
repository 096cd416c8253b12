"""The NVIDIA driver: what a node has of it (`state`), and what is to be done about it (`decide`)."""
