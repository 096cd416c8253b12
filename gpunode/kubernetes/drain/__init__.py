"""A node of a Kubernetes cluster emptied before it is disturbed, and given back after that.

Pure: whatever runs kubectl is handed in.

- `cordon`: whose cordon is on a node, and the one request that sets or lifts ours
- `pods`: which pods hold a node up, and by which disruption budget
- `commands`: kubectl's command lines
- `session`: the drain itself, by whatever runs them
- `judgement`: what drift says of a node that is still cordoned
"""

# What `gpunode rollout` tells a run: how many nodes its wave has, which are unavailable together anyway.
WAVE = "GPUNODE_WAVE"
