"""CUDA toolkits: which a node has (`state`), and what is to be done about the one that is desired (`decide`)."""
