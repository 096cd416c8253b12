"""The files that are gpunode's alone: what a run writes, and what drift compares with, a module each."""
