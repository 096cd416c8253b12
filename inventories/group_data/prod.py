"""Settings of the production nodes: fill in, then run `gpunode check inventories/prod.py`.

Versions are strings, in quotes. docs/settings.md of gpunode's checkout lists every setting.
"""

# --- how to reach them ---------------------------------------------------------------------------------------------
ssh_user = "root"
# ssh_key = "~/.ssh/id_ed25519"
ssh_known_hosts_file = "~/.ssh/known_hosts"
ssh_strict_host_key_checking = "yes"
# _sudo = True          # with an ssh_user that is not root: passwordless sudo

# --- what they shall have ------------------------------------------------------------------------------------------
driver = {
    "branch": "580",  # the newest version of the branch; or exactly: "version": "580.178.04"
    "flavour": "auto",  # open where the GPU allows it
}
cuda = {"version": "12.9"}
toolkit = {"channel": "stable"}  # or exactly: "version": "1.17.8"
containerd = {
    "source": "distribution",  # or "docker-repository", or "present"
    "default_runtime": "nvidia",  # or "runc", and a Kubernetes RuntimeClass
    "systemd_cgroup": True,
}

# --- how Kubernetes offers their GPUs ------------------------------------------------------------------------------
# A run changes the cluster: it installs and upgrades the device plugin, labels nodes, and may drain them. Look first by
# `gpunode cluster inventories/prod.py`, and name the kubeconfig's context where it has several.
# kubernetes = {"enabled": True, "version": "1.31"}
# sharing = {"strategy": "time-slicing", "replicas": 5}   # or "mps"; or {"mig_strategy": "mixed"} with mig

# --- where packages come from --------------------------------------------------------------------------------------
# repositories = {"cuda": {"url": "https://mirror.example.org/cuda/{distribution}/{architecture}"}}
# proxy = {"https": "http://proxy.example.org:3128", "no_proxy": [".example.org", "10.0.0.0/8"]}

# --- how much a run may disturb ------------------------------------------------------------------------------------
disruption = {"allow": "restart", "max_parallel": 1}
