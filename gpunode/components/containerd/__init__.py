"""containerd: what a node runs (`state`) and what its configuration file should become (`editor`)."""
