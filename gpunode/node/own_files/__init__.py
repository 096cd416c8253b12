"""gpunode's own files that several components need, and what is to be done about all own files of a node."""
