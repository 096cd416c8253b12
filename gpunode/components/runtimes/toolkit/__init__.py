"""The NVIDIA container toolkit on a node: its packages, its configuration, CDI specifications, device links."""
