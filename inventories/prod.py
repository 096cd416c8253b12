"""Production GPU nodes: put your own in. Settings stand in group_data/prod.py, those of one host beside its name.

gpunode check inventories/prod.py
pyinfra inventories/prod.py deploys/gpu_node.py --dry
"""

# Names must resolve by DNS, or carry "ssh_hostname". The host keys must stand in the known hosts file that
# group_data/prod.py names: ssh-keyscan HOST, and compare the fingerprints with the machines' consoles.
gpu_nodes = [
    "gpu-1.example.org",
    "gpu-2.example.org",
    # One that differs; a host's mapping is merged with its group's, key by key:
    # ("gpu-3.example.org", {"driver": {"branch": "580", "flavour": "proprietary"}}),
]
