"""Helpers and data for the tests of kubelet."""

from __future__ import annotations

FILE, STATE = "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/cpu_manager_state"
