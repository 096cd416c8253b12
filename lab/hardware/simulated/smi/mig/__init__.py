"""The `mig` command of the SIMULATED nvidia-smi. It shares nothing with gpunode's own planner, so as to judge it."""
