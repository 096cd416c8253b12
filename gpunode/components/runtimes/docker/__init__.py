"""docker: what a node has (`state`) and what its daemon.json should become (`editor`)."""
