"""Settings of the lab's nodes (simulated GPUs, real everything else); where they are is in inventories/lab.py."""

driver = {"version": "580.95.05", "flavour": "open"}
cuda = {"version": "12.9"}
toolkit = {"version": "1.17.8"}
containerd = {"source": "distribution", "default_runtime": "nvidia"}
