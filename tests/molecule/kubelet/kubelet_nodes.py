"""What several tests share with molecule/kubelet/test_kubelet.py."""

from __future__ import annotations

FILE, STATE = "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/cpu_manager_state"
