"""SIMULATED GPU hardware: programs that run inside a lab node, on Python's standard library alone.

A node has them as /usr/lib/gpunode-lab/simulated, and inside the zip archive that is the fixture /usr/bin/nvidia-smi.
"""
