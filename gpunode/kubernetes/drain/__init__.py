"""A node of a Kubernetes cluster emptied before it is disturbed, and given back after that.

Pure: whatever runs kubectl is handed in.

- `commands`: kubectl's command lines, and which pods hold a node up, by which disruption budget
- `session`: the drain itself, by whatever runs them
- whose cordon is on a node, and what drift reports of it: gpunode/kubernetes/nodes/cordon.py
"""
