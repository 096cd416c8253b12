"""What several tests share with unit/test_dnf5_words.py."""

from __future__ import annotations

FLAVOUR = """Package                  Arch   Version            Repository        Size
Removing:
 kmod-nvidia-open-dkms   noarch 3:580.82.07-1.fc42 gpunode-cuda   0.0   B
 nvidia-open             noarch 3:580.82.07-1.fc42 gpunode-cuda   0.0   B
Removing dependent packages:
 nvidia-settings         x86_64 3:580.82.07-1.fc42 gpunode-cuda   0.0   B
Installing:
 cuda-drivers            x86_64 3:580.82.07-1.fc42 gpunode-cuda   0.0   B
 nvidia-fabric-manager   x86_64 0:570.172.08-1     gpunode-cuda 589.0   B
   replacing nvidia-fabricmanager x86_64 0:580.95.05-1  gpunode-cuda  587.0   B
Installing dependencies:
 kmod-nvidia-latest-dkms x86_64 3:580.82.07-1.fc42 gpunode-cuda   0.0   B
Downgrading:
 containerd.io           x86_64 0:1.6.20-1.fc42    docker       104.3 MiB
   replacing containerd.io x86_64 0:1.7.1-1.fc42    docker       104.3 MiB
Changing reason:
 bash                    noarch 0:5.1.8-1.el9 @System      0.0   B
   External User -> User

Transaction Summary:
 Installing:         3 packages
"""


FILTERED = """Updating and loading repositories:
Repositories loaded.
Failed to resolve the transaction:
Problem: installed package nvidia-driver-cuda-libs-3:580.82.07-1.x86_64 requires libnvidia-ml = 3:580.82.07-1
  - conflicting requests
  - problem with installed package
You can try to add to command line:
  --skip-broken to skip uninstallable packages
"""
